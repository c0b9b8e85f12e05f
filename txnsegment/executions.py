"""How a SQL execution of this process's Spark ended, as Spark has it. A write may leave its manifest and fail all the same."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pyspark import SparkContext

from metadata.common.clock import Clock

PATIENCE_SECONDS = 60.0
"""For Spark's own listeners: an execution has ended a moment before they say so."""
LOOK_SECONDS = 0.05


class Ended(StrEnum):
    """What Spark says of an execution."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    FORGOTTEN = "FORGOTTEN"
    """It keeps `spark.sql.ui.retainedExecutions`."""


def active() -> SparkContext | None:
    """The Spark context of this process, if it has one with a JVM of its own (Spark Connect has none)."""
    found: SparkContext | None = SparkContext._active_spark_context
    return found


def ended(spark: SparkContext, number: int, clock: Clock) -> Ended:
    """How an execution ended. Waits for Spark's listeners."""
    store = _executions(spark)
    until = clock.monotonic() + PATIENCE_SECONDS
    while True:
        found = store.execution(number)
        said = Ended(found.get().executionStatus()) if found.isDefined() else Ended.FORGOTTEN
        if said in (Ended.COMPLETED, Ended.FAILED) or clock.monotonic() >= until:
            return said
        clock.sleep(LOOK_SECONDS)


def _executions(spark: SparkContext) -> Any:
    """Spark's store of SQL executions: what its UI shows, and there without a UI."""
    jvm = spark._jvm
    assert jvm is not None
    kept = spark._jsc.sc().statusStore().store()
    return jvm.org.apache.spark.sql.execution.ui.SQLAppStatusStore(kept, jvm.scala.Option.empty())
