"""`PulsarSparkTransaction`: one Pulsar transaction over the writes of a Spark program (`cluster.transaction()`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from metadata.common.clock import SystemClock
from metadata.common.errors import NotAllowed, TxnConflict
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import Bits
from spark_txn_sink.local_properties import TRANSACTION
from spark_txn_sink.pulsar.journal import Note, Unfinished, close, merged, token
from spark_txn_sink.pulsar.many_topics import Application, Topic
from txnsegment.blocks import entered, left
from txnsegment.executions import active, has_succeeded
from txnsegment.pulsar.transaction import PulsarTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PulsarSparkTransaction(PulsarTransaction):
    """A Pulsar transaction over several `df.write`s into any topics. Made by `cluster.transaction()`.

        with cluster.transaction(app="etl", version=7) as txn:
            large.write.format("txnsegment").mode("append").options(**txn.options).save("large")
            small.write.format("txnsegment").mode("append").options(**txn.options).save("small")

    The tasks of each write send their rows in the transaction, which nobody sees before its commit. The end of the block records
    where the rows are, and commits all of them by one request. If the block raises, or a write fails, the transaction is aborted,
    since Pulsar cannot take back a part of it. If the driver dies, the next run of the application aborts it, or its timeout does.

    The transaction is open from the first use of `options` or `append` on. Writes may run in several threads of the driver. All of
    them must be done before the block ends.
    """

    def __init__(self, client: PulsarClient, timeout_ms: int, bits: Callable[[], Bits], application: Application) -> None:
        super().__init__(client, timeout_ms, bits, application)
        self._writes: list[Note] | None = None
        """The finished writes of Spark; None before the commit."""

    @property
    def _has_journal(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, str]:
        """The options that make a `df.write.format("txnsegment").mode("append")` part of this transaction:
        `.options(**txn.options)`. Read this property in the thread that writes.

        Raises OptionError (the transaction has ended), TopicMissing (the topic of its records does not exist, and there is no REST
        interface to create it), the broker's error.
        """
        self._check_takes("write")
        self._begin_once()
        assert self._opened is not None
        mine = token(self._opened)
        if (spark := active()) is not None:  # so that tasks report the token and the execution
            spark.setLocalProperty(TRANSACTION, mine)
        admin = self._application.admin_url
        return {"serviceUrl": self._client.url, "txnStaging": mine, **({} if admin is None else {"adminUrl": admin})}

    def read(self, spark: SparkSession, topic: str | Sequence[str], *, subscription: str, **options: object) -> DataFrame:
        """Refused (`_no_acknowledgements`). Read with `spark.read`, and let `app` and `version` say what was read."""
        _no_acknowledgements("read")

    def acknowledge_rows(self, rows: DataFrame, *, subscription: str) -> None:
        """Refused (`_no_acknowledgements`)."""
        _no_acknowledgements("acknowledge_rows")

    def _topics(self) -> list[Topic]:
        if self._writes is None and self._opened is not None:
            try:
                writes = close(self._client, self._opened)
            except Unfinished as error:
                raise TxnConflict(error.message, advice=error.advice) from error
            for one in writes:
                if not has_succeeded(one.execution, one.topic, SystemClock()):
                    raise TxnConflict(
                        f"A write to {one.topic} failed in Spark after it had sent its rows, and Pulsar cannot take them back.",
                        advice="Nothing of the transaction is visible. Run the whole block again.",
                    )
            self._rows += sum(one.rows for one in writes)
            self._writes = writes
        writes = self._writes or []
        logged = {one.topic: one.logged for one in reversed(writes)}
        places = merged([*self._places.items(), *((one.topic, one.segments) for one in writes)])
        return [Topic(name, segments, logged.get(name)) for name, segments in places.items()]

    def __enter__(self) -> Self:
        self._check_open("begin a block")
        entered(self, self._client.url)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left(self)
        if self._ended:
            return
        if error is None:
            try:
                self.commit()
            except BaseException as failed:
                self._abort_after(failed)
                raise
        else:
            self._abort_after(error)


def _no_acknowledgements(call: str) -> NoReturn:
    """Raise the refusal of the calls that acknowledge rows with the commit."""
    raise NotAllowed(
        f"{call} does not exist in a transaction of a Pulsar cluster: Spark's reads acknowledge nothing there.",
        advice="Acknowledge the rows of cluster.consumer with ack(.., txn=txn), or read with spark.read between two positions "
        "(startingOffsets, endingOffsets) that app and version determine, so that a repeated run reads the same rows.",
    )
