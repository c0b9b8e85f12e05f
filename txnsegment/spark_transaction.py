"""One transaction over the writes of a Spark program: `with cluster.transaction() as txn` (protocol.md sections 2, 5 and 7)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from metadata.client import Client
from metadata.errors import TxnConflict, TxnSegmentError
from metadata.names import any_topic_name, is_persistent
from metadata.options import option_text
from metadata.orphans import sweep_staging
from metadata.providers import Providers
from metadata.staging_manifests import StagingArea, StagingManifest
from metadata.write_set import Committed
from spark_txn_source.options import ReadOptions
from txnsegment.positions import acks_of, unread
from txnsegment.transaction import Appended, Batches, Transaction

log = logging.getLogger("txnsegment.transaction")

_inside: ContextVar[tuple[SparkTransaction, ...]] = ContextVar("inside", default=())
"""The transactions in whose blocks this thread is, outermost first."""


class SparkTransaction(Transaction):
    """Any number of `df.write`s into any topics, and what they read, committed together at the end of the block.

        with cluster.transaction(app="etl", version=7) as txn:
            orders = txn.read(spark, "orders", subscription="etl")
            orders.where("amount >= 20").write.format("txnsegment").mode("append").options(**txn.options).save("large")
            orders.where("amount < 20").write.format("txnsegment").mode("append").options(**txn.options).save("small")

    Each write only stages, and leaves a manifest of its parts. The end of the block reads the manifests, opens, registers once for
    all of them and decides by one compare-and-set: until then nothing is OPEN, holds a reader up, or runs against a timeout. An
    exception in the block, `abort()`, or the end of the process leave nothing visible; the files are swept once they are older than
    the orphan age. Writes may run in several threads of the driver; all must be done before the block ends.
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
        """What makes a `df.write.format("txnsegment").mode("append")` a part of this transaction: `.options(**txn.options)`.

        Raises TxnConflict (ended), StorageError.
        """
        self._check_open("write in")
        with self._opening:  # writes may begin in several threads
            if not self._opened:
                self._area.open()
                self._opened = True
        return {"serviceUrl": self._client.cluster.url, "txnStaging": self._area.token}

    def read(self, spark: SparkSession, topic: str | Sequence[str], *, subscription: str, **options: object) -> DataFrame:
        """What a subscription has still to get of one topic or several, up to now; all of it is acknowledged with the commit.

        The DataFrame stays exactly that, however often and late it is computed. `options`: those of a batch read, but for starts.
        Somebody else who acknowledges any of it first makes the commit an AckConflict. Raises TopicNotFound, SubscriptionNotFound,
        SchemaError (the topic has no columns yet), OptionError, DataLoss, AckConflict (this transaction has read it already).
        """
        self._check_open("read in")
        given = {name: text for name, value in options.items() if (text := option_text(name, value)) is not None}
        given |= {"serviceUrl": self._client.cluster.url}
        providers = Providers(self._client)
        names = [topic] if isinstance(topic, str) else topic
        names = [str(providers.named(name)) if is_persistent(name) else name for name in names]
        given |= {"path": names[0]} if isinstance(topic, str) else {"topics": json.dumps(names)}
        found = unread(self._client, ReadOptions.parse({**given, "subscription": subscription}, streaming=False))
        self.acknowledge(found.acks)
        log.info("read txn=%s topic=%s subscription=%s log=%s..%s", self.id, topic, subscription, found.start, found.end)
        given = {name: text for name, text in given.items() if name.lower() not in ("endingoffsets", "endingtimestamp")}
        return spark.read.format("txnsegment").options(**{**given, **found.options()}).load()

    def acknowledge_rows(self, rows: DataFrame, *, subscription: str) -> None:
        """Acknowledge with the commit the rows of a DataFrame that was read with `includeMetadata=true`: those of a micro-batch in
        `foreachBatch`, say. It runs a Spark job over `__segment` and `__messageId`.

        Raises SchemaError (they are not there), AckConflict (now: rows that it acknowledges already; at the commit: somebody else).
        """
        self._check_open("acknowledge in")
        self.acknowledge(acks_of(self._client, rows, subscription))

    def append(self, topic: str, batches: Batches) -> None:
        """Stage rows from this process, as `cluster.begin()` does. Raises what that raises."""
        super().append(topic, batches)
        if self._staged:
            order = self._area.begun() if self._opened else 0
            self._appended += [(order, one) for one in self._staged]
            self._appended_ms = self._appended_ms or self._staged_ms
            self._staged = []

    def commit(self) -> Committed:
        """What the end of the block does: make all of it visible, or raise. Also raises TxnConflict for writes that have begun and
        are not done, CorruptRecord, StorageError; else what `cluster.begin()`'s raises.
        """
        if self._committed is not None:
            return self._committed
        self._check_open("commit")
        self._gather()
        committed = super().commit()
        self._end()
        return committed

    def _gather(self) -> None:
        """Take what was staged: in the order in which it was begun, all of one thread's in the order of its calls."""
        manifests: list[StagingManifest] = []
        if self._opened:
            self._area.close()  # before the listing: see metadata.staging_manifests
            manifests = self._area.collect()
        found = [(order, 0, i, one) for i, (order, one) in enumerate(self._appended)]
        found += [(manifest.order, 1, i, _appended(manifest)) for i, manifest in enumerate(manifests)]
        self._staged = [one for *_, one in sorted(found, key=lambda place: place[:3])]
        begun = [manifest.staged_ms for manifest in manifests] + ([] if self._appended_ms is None else [self._appended_ms])
        self._staged_ms = min(begun, default=None)
        self._check_kind(str(staged.topic) for staged in self._staged)
        for name in dict.fromkeys(staged.topic for staged in self._staged):  # before any schema grows for it
            self._schema_with_staged(name, self._client.topics.schema(self._client.topics.get(name)))

    def abort(self) -> None:
        """What an exception in the block does: give it up. Idempotent. Raises TxnConflict after a commit that succeeded."""
        super().abort()
        self._end()

    def _end(self) -> None:
        """Writes that still run fail from now on, and the manifests are swept. Nobody waits for it."""
        if self._opened:
            self._client.coordinator.aftermath(self._sweep)

    def _sweep(self) -> None:
        self._area.close()
        self._area.end()
        sweep_staging(self._client.cluster, self._area.token)

    def __enter__(self) -> Self:
        self._check_open("enter")
        for outer in _inside.get():
            if outer._client.cluster.url == self._client.cluster.url:
                raise TxnConflict(
                    f"A transaction begins inside the block of transaction {outer.id}: it would commit by itself, and not with it.",
                    advice="Use one transaction for all of it, or end the outer block first.",
                )
        _inside.set((*_inside.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _inside.set(tuple(one for one in _inside.get() if one is not self))
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
        except TxnSegmentError as second:  # the first error is what the program has to know
            error.add_note(f"Then transaction {self.id} could not be ended, which its timeout does: {second}")


def _appended(manifest: StagingManifest) -> Appended:
    types = StructType.fromJson(json.loads(manifest.types))
    return Appended(any_topic_name(manifest.topic), types, manifest.key, manifest.parts)
