"""Finds the outcome of a SQL execution in this process's Spark. The outcome must be known, because a write may publish its
staging manifest and fail nevertheless.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pyspark import SparkContext

from metadata.common.clock import Clock
from metadata.common.errors import TxnConflict

PATIENCE_SECONDS = 60.0
"""Longest time to wait for Spark's listeners, in seconds. The listeners report the end of an execution with a short delay."""
LOOK_SECONDS = 0.05


class Ended(StrEnum):
    """The state of an execution in Spark's status store."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    FORGOTTEN = "FORGOTTEN"
    """Spark dropped the execution from its store, which keeps the last `spark.sql.ui.retainedExecutions` executions."""


def active() -> SparkContext | None:
    """Return the Spark context of this process; None if the process has no JVM of its own (Spark Connect)."""
    found: SparkContext | None = SparkContext._active_spark_context
    return found


def ended(spark: SparkContext, number: int, clock: Clock) -> Ended:
    """Return the state of the execution with this number. Waits up to PATIENCE_SECONDS for its end. After that the result is
    RUNNING or FORGOTTEN.
    """
    store = _executions(spark)
    until = clock.monotonic() + PATIENCE_SECONDS
    while True:
        found = store.execution(number)
        said = Ended(found.get().executionStatus()) if found.isDefined() else Ended.FORGOTTEN
        if said in (Ended.COMPLETED, Ended.FAILED) or clock.monotonic() >= until:
            return said
        clock.sleep(LOOK_SECONDS)


def has_succeeded(execution: int | None, topic: str, clock: Clock) -> bool:
    """Return whether a write of a transaction over several topics succeeded in Spark. The write has reported that it is done.
    `execution`: the number of its SQL execution, if it is known.

    A write that this process's Spark does not know counts as successful: the write ran in another process, under Spark Connect, or
    in a thread that did not ask for `options`. Raises TxnConflict if the write is still running, or if Spark has forgotten it.
    """
    spark = active()
    if execution is None or spark is None:
        return True
    said = ended(spark, execution, clock)
    if said is Ended.RUNNING:
        raise TxnConflict(
            f"A write to {topic} of this transaction is still running: execution {execution} of Spark.",
            advice="Nothing was committed. Wait for every write, those of other threads too, before the block ends.",
        )
    if said is Ended.FORGOTTEN:
        raise TxnConflict(
            f"Spark has forgotten whether a write to {topic} of this transaction succeeded: execution {execution} is not in its "
            "store any more.",
            advice="Nothing was committed. Set spark.sql.ui.retainedExecutions above the number of the transaction's queries, and "
            "run it again.",
        )
    return said is Ended.COMPLETED


def _executions(spark: SparkContext) -> Any:
    """Return Spark's store of SQL executions. Spark's UI reads the same store. The store exists also when the UI is disabled."""
    jvm = spark._jvm
    assert jvm is not None
    kept = spark._jsc.sc().statusStore().store()
    return jvm.org.apache.spark.sql.execution.ui.SQLAppStatusStore(kept, jvm.scala.Option.empty())
