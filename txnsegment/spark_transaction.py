"""One transaction over the writes of a Spark program: `with cluster.transaction() as txn` (protocol.md sections 2, 5 and 7)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from ledgers.spark_json import columns_from_json
from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import CorruptRecord, TxnSegmentError
from metadata.common.options import option_text
from metadata.maintenance.orphans import sweep_staging
from metadata.records.names import any_topic_name, is_persistent
from metadata.write.staging_manifests import StagingArea, StagingManifest
from metadata.write.write_set import Committed
from spark_txn_sink.local_properties import TRANSACTION
from spark_txn_source.options import ReadOptions
from txnsegment.batches import Batches
from txnsegment.blocks import entered, left
from txnsegment.executions import active, has_succeeded
from txnsegment.positions import acks_of, unread
from txnsegment.transaction import Appended, Transaction

log = logging.getLogger("txnsegment.transaction")


class SparkTransaction(Transaction):
    """A transaction over several Spark writes (`df.write`) into any topics, and over the acknowledgement of the rows from which
    these writes were computed. Made by `cluster.transaction()`.

        with cluster.transaction(app="etl", version=7) as txn:
            orders = txn.read(spark, "orders", subscription="etl")
            orders.where("amount >= 20").write.format("txnsegment").mode("append").options(**txn.options).save("large")
            orders.where("amount < 20").write.format("txnsegment").mode("append").options(**txn.options).save("small")

    Each write only stages its parts, and leaves a manifest of them. The end of the block reads the manifests, opens the
    transaction, registers all parts at once, and decides by one compare-and-set. Before the end of the block the transaction is not
    OPEN, so it delays no reader, and no timeout runs.

    If the block raises, `abort()` is called, or the process ends, nothing becomes visible. A sweep deletes the files once they are
    older than the orphan age. Writes may run in several threads of the driver. All of them must be done before the block ends.
    """

    def __init__(self, client: Client, *, app: str | None, version: int | None, timeout_ms: int) -> None:
        super().__init__(client, app=app, version=version, timeout_ms=timeout_ms)
        self._area = StagingArea(client.cluster.storage, self._attempt)
        self._opened = False
        self._opening = threading.Lock()
        self._appended: list[tuple[int, Appended]] = []
        self._appended_ms: int | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options that make a `df.write.format("txnsegment").mode("append")` part of this transaction:
        `.options(**txn.options)`. Read this property in the thread that writes.

        Raises TxnConflict (the transaction has ended), StorageError.
        """
        self._check_takes_more("write in")
        with self._opening:  # writes may begin in several threads
            if not self._opened:
                self._area.open()
                self._opened = True
        if (spark := active()) is not None:  # so that tasks report the token and the execution
            spark.setLocalProperty(TRANSACTION, self._area.token)
        return {"serviceUrl": self._client.cluster.url, "txnStaging": self._area.token}

    def read(self, spark: SparkSession, topic: str | Sequence[str], *, subscription: str, **options: object) -> DataFrame:
        """Read the rows of one or several topics that a subscription has not acknowledged, up to now. The commit acknowledges
        exactly these rows.

        The DataFrame returns the same rows whenever and however often Spark computes it. `options`: those of a batch read,
        without a start. If another consumer acknowledges one of the rows first, the commit raises AckConflict. Raises
        TopicNotFound, SubscriptionNotFound, SchemaError (the topic has no columns yet), OptionError, DataLoss, AckConflict
        (this transaction acknowledges the rows already).
        """
        self._check_takes_more("read in")
        self._query = self._query or _query_of(spark)
        given = {name: text for name, value in options.items() if (text := option_text(name, value)) is not None}
        given |= {"serviceUrl": self._client.cluster.url}
        providers = Providers(self._client)
        names = [topic] if isinstance(topic, str) else topic
        names = [str(providers.named(name)) if is_persistent(name) else name for name in names]
        given |= {"path": names[0]} if isinstance(topic, str) else {"topics": json.dumps(names)}
        found = unread(self._client, ReadOptions.parse({**given, "subscription": subscription}, streaming=False))
        given = {name: text for name, text in given.items() if name.lower() not in ("endingoffsets", "endingtimestamp")}
        df = spark.read.format("txnsegment").options(**{**given, **found.options()}).load()
        self.acknowledge(found.acks)  # the last step: rows that the caller does not get are not acknowledged
        for one in found.ranges:
            log.info("read txn=%s %s=%s..%s subscription=%s", self.id, one.log, one.start, one.end, subscription)
        return df

    def acknowledge_rows(self, rows: DataFrame, *, subscription: str) -> None:
        """Acknowledge, with the commit, the rows of a DataFrame that was read with `includeMetadata=true`, such as a micro-batch
        in `foreachBatch`. Runs a Spark job over the columns `__segment` and `__messageId`.

        Raises SchemaError (the columns are missing) and AckConflict (this transaction acknowledges the rows already). The
        commit raises AckConflict if another consumer acknowledged one of the rows.
        """
        self._check_takes_more("acknowledge in")
        self._query = self._query or _query_of(rows.sparkSession)
        self.acknowledge(acks_of(self._client, rows, subscription))

    def append(
        self,
        topic: str,
        batches: Batches,
        *,
        key: str | None = None,
        segments: int | None = None,
        auto_create: bool = True,
        merge_schema: bool = False,
    ) -> None:
        """Stage rows from this process, as `Transaction.append` does, with the same errors."""
        self._put_back()
        super().append(topic, batches, key=key, segments=segments, auto_create=auto_create, merge_schema=merge_schema)
        if self._staged:
            order = self._area.begun() if self._opened else 0
            self._appended += [(order, one) for one in self._staged]
            self._appended_ms = self._appended_ms or self._staged_ms
            self._staged = []

    def _all_staged(self) -> list[Appended]:
        return [one for _, one in self._appended] + self._staged

    def _put_back(self) -> None:
        """Drop the list of staged writes and appends that a failed commit collected. The next commit collects them again."""
        self._staged = []

    def commit(self) -> Committed:
        """Make all writes visible at once; the end of the block calls this.

        Raises TxnConflict if a write has begun and is not done. Raises CorruptRecord (a damaged manifest), StorageError, and the
        errors of `Transaction.commit`.
        """
        if self._committed is not None:
            return self._committed
        self._check_open("commit")
        self._gather()
        committed = super().commit()
        self._end()
        return committed

    def _gather(self) -> None:
        """Collect the staged writes and appends in the order in which they began. Within a thread this is the order of calls."""
        manifests: list[StagingManifest] = []
        if self._opened:
            self._area.close()  # before the listing, so that a write that the listing misses finds the area closed and fails
            manifests = [manifest for manifest in self._area.collect() if self._has_succeeded(manifest)]
        found = [(order, 0, i, one) for i, (order, one) in enumerate(self._appended)]
        found += [(manifest.order, 1, i, _appended(manifest)) for i, manifest in enumerate(manifests)]
        self._staged = [one for *_, one in sorted(found, key=lambda place: place[:3])]
        self._query = next((manifest.query for manifest in manifests if manifest.query is not None), self._query)
        begun = [manifest.staged_ms for manifest in manifests] + ([] if self._appended_ms is None else [self._appended_ms])
        self._staged_ms = min(begun, default=None)
        self._check_kind(str(staged.topic) for staged in self._staged)
        for name in dict.fromkeys(
            staged.topic for staged in self._staged
        ):  # raises for writes that do not fit each other, before any topic's schema grows
            self._schema_with_staged(name, self._client.topics.schema(self._client.topics.get(name)))

    def _has_succeeded(self, manifest: StagingManifest) -> bool:
        """Return whether a write that published a manifest also succeeded in Spark. The write has failed if the process that
        published the manifest died before its reply. The manifest is still there if Spark's abort of the write failed, too. The
        program then got an error, and may have run the write again. Raises TxnConflict as `has_succeeded`.
        """
        if has_succeeded(manifest.execution, manifest.topic, self._client.cluster.clock):
            return True
        log.warning("txn=%s a write to %s failed after it had left its manifest: it does not count", self.id, manifest.topic)
        self._area.withdraw(manifest.write)
        return False

    def abort(self) -> None:
        """Abort the transaction. An exception in the block calls this. Idempotent. Raises TxnConflict after a successful commit."""
        super().abort()
        self._end()

    def _end(self) -> None:
        """In the background, close the staging area, which makes running writes fail. Then delete the staging files."""
        if self._opened:
            self._client.coordinator.background(self._sweep)

    def _sweep(self) -> None:
        self._area.close()
        self._area.end()
        sweep_staging(self._client.cluster, self._area.token)

    def __enter__(self) -> Self:
        self._check_open("enter")
        entered(self, self._client.cluster.url)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left(self)
        if self._committed is not None or self._aborted:
            return
        if error is None:
            try:
                self.commit()
            except BaseException as failed:
                self._give_up(failed)
                raise
        else:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        try:
            self.abort()
        except TxnSegmentError as second:  # raise the first error, and add this one as a note
            error.add_note(f"Transaction {self.id} could not be aborted either; its timeout will end it: {second}")


def _query_of(spark: SparkSession) -> str | None:
    """Return the id of the streaming query whose `foreachBatch` this thread runs. None outside of `foreachBatch`, and under Spark
    Connect.
    """
    context = getattr(spark, "sparkContext", None)
    return None if context is None else context.getLocalProperty("sql.streaming.queryId")


def _appended(manifest: StagingManifest) -> Appended:
    try:
        types = columns_from_json(manifest.types)
    except ValueError as error:
        raise CorruptRecord(
            f"The staging manifest of the write {manifest.write} to {manifest.topic} is damaged: {error}.",
            advice="Nothing of its transaction was committed: run the transaction again.",
        ) from error
    return Appended(any_topic_name(manifest.topic), types, manifest.key, manifest.parts, manifest.grows)
