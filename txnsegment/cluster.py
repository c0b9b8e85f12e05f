"""`connect` and `Cluster`: the per-process client of a cluster, for programs with and without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from ledgers.compaction import Policy
from ledgers.model import TARGET_BYTES
from metadata.client.client import Client, client
from metadata.client.passes import sweep_pass
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import OptionError, TxnSegmentError
from metadata.common.failures import complain
from metadata.common.html import columns, table
from metadata.common.service import VARIABLE
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.maintenance.sweeper import SweepReport
from metadata.records.cluster_records import Settings
from metadata.records.names import is_persistent, segment_name
from pulsar_protocol.schemes import is_pulsar
from txnsegment.retention import ClusterRetention
from txnsegment.rows import Rows, committed_rows
from txnsegment.scaling import ClusterScaling
from txnsegment.segments import TopicReport, report
from txnsegment.subscriptions import ClusterSubscriptions, Where
from txnsegment.topics import ClusterTopics, scalable, to_be_created
from txnsegment.transaction import Transaction, identity, timeout_ms
from txnsegment.transactions import ClusterTransactions
from txnsegment.verify import Verified, verify

if TYPE_CHECKING:
    from txnsegment.backup import BackupDescription
    from txnsegment.consumer import Consumer
    from txnsegment.producer import Producer
    from txnsegment.spark_transaction import SparkTransaction


def connect(service_url: str | None = None, *, ledgers: str | None = None) -> Cluster:
    """Connect to the cluster of a service URL: `file:///path` (embedded, created on first use), `zk://h:p[,h:p]/chroot`, or
    `pulsar://host:6650` (a live Pulsar cluster: see `PulsarCluster`).

        with connect("file:///tmp/sandbox") as cluster:
            cluster.topics.create("orders", schema="id bigint, price double")

    `service_url`: default is the environment variable TXNSEGMENT_SERVICE_URL. `ledgers`: the URI of the ledger root, a folder or
    bucket, for a cluster that does not exist yet. (An existing cluster has recorded its ledger root.) Raises OptionError,
    ConfigurationError, ClusterFormatError, Unavailable, StorageError.
    """
    return cluster_at(service_url, ledgers=ledgers)


def cluster_at(service_url: str | None, *, ledgers: str | None = None, create: bool = True) -> Cluster:
    """Connect as `connect` does. `create`: whether to create a missing embedded cluster."""
    url = service_url if service_url is not None else os.environ.get(VARIABLE, "")
    if is_pulsar(url):
        from txnsegment.pulsar.cluster import open_pulsar

        return cast("Cluster", open_pulsar(url, ledgers))  # a `PulsarCluster`, which refuses the calls that Pulsar cannot do
    return Cluster(client(open_cluster(service_url, ledgers=ledgers, create=create)))


class Cluster:
    """An open cluster, also a context manager. The end of the `with` block waits for the background work of commits and
    disconnects.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        """The internal client. It is not part of the stable interface."""
        _ = (
            client.coordinator
        )  # imports the module now: a fork during a later import would leave the child with the lock of this import
        self.topics = ClusterTopics(client)
        self.transactions = ClusterTransactions(client)
        self.subscriptions = ClusterSubscriptions(client)
        self.retention = ClusterRetention(client)
        self.scaling = ClusterScaling(client)

    @property
    def url(self) -> str:
        return self.client.cluster.url

    @property
    def ledgers(self) -> str:
        """The URI of the ledger root: the folder or bucket that holds all files of rows."""
        return self.client.cluster.storage.uri

    @property
    def settings(self) -> Settings:
        return self.client.cluster.settings

    def _repr_html_(self) -> str:
        """The cluster and its topics, for notebooks."""
        rows = [(topic.name, len(topic.segments), topic.key, columns(topic.schema)) for topic in self.topics.list()]
        return table((), [("cluster", self.url), ("ledgers", self.ledgers)]) + table(("topic", "segments", "key", "columns"), rows)

    def rows(self, topic: str, limit: int = 20, *, message_ids: bool = False) -> Rows:
        """Return the first committed rows of a topic or of one `segment://..`, as JSON values, to look at. Programs read with
        `consumer` or Spark. `message_ids`: whether to add the column `__messageId`. Raises TopicNotFound, CorruptPart.
        """
        return committed_rows(self.client, topic, limit, message_ids=message_ids)

    def verify(self, topic: str, *, told: Callable[[Verified], None] = lambda _: None) -> Verified:
        """Read every committed part of a topic and compare it with its record and checksums. `told`: a function that is called with
        the progress. Raises TopicNotFound, StorageError.
        """
        return verify(self.client, topic, told=told)

    def segments(self, topic: str) -> TopicReport:
        """Return the maxReadPosition, watermark, undecided transactions and ledgers of each segment. Raises TopicNotFound."""
        return report(self.client, topic)

    def begin(self, *, app: str | None = None, version: int | None = None, timeout: timedelta | float | None = None) -> Transaction:
        """Begin a transaction over any number of topics.

            with cluster.begin(app="loader", version=7) as txn:
                txn.append("orders", table)
                txn.commit()

        `app` and `version`, given together, make the transaction idempotent: each version of an application commits at most once,
        and versions must rise. `timeout`: the longest time from opening to deciding, in seconds or as a timedelta (default: the
        cluster's `txnTimeoutMs`, 30 s). This call raises OptionError. `commit` raises VersionConflict for a version below the last
        committed version.
        """
        app, version = identity(app, version)
        settings = self.settings
        return Transaction(
            self.client,
            app=app,
            version=version,
            timeout_ms=timeout_ms(timeout, settings.txn_timeout_ms, settings.max_txn_timeout_ms),
        )

    def transaction(
        self, *, app: str | None = None, version: int | None = None, timeout: timedelta | float | None = None
    ) -> SparkTransaction:
        """Return a transaction over several Spark writes, for a `with` block. The end of the block commits the transaction.

            with cluster.transaction() as txn:
                df.write.format("txnsegment").mode("append").options(**txn.options).save("orders")

        `app`, `version`, `timeout`: as in `begin`. Raises OptionError.
        """
        from txnsegment.spark_transaction import SparkTransaction

        app, version = identity(app, version)
        most = timeout_ms(timeout, self.settings.txn_timeout_ms, self.settings.max_txn_timeout_ms)
        return SparkTransaction(self.client, app=app, version=version, timeout_ms=most)

    def consumer(
        self,
        topics: str | Sequence[str],
        subscription: str,
        *,
        start: Where | None = None,
        columns: Sequence[str] | None = None,
        value_format: str = "columns",
        schema_version: int | None = None,
    ) -> Consumer:
        """Return a consumer of one or several topics (or segments), which starts at the cursors of a subscription.

        `start`: creates the subscription at this place on each topic that does not have it: `earliest`, `latest`, a log
        number, or a datetime with a time zone. Without `start` a missing subscription is an error. `columns`: the columns to
        read; default: all. `value_format="avro"`: each row is `{"value": bytes}`, encoded by the latest version of the topic's
        schema or by `schema_version`. Raises TopicNotFound, SubscriptionNotFound, OptionError.
        """
        from txnsegment.consumer import Consumer

        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if start is not None:
            self.subscriptions.join(names, subscription, start)
        return Consumer(self.client, names, subscription, columns=columns, value_format=value_format, schema_version=schema_version)

    def producer(
        self,
        topic: str,
        *,
        key: str | None = None,
        segments: int | None = None,
        auto_create: bool = True,
        merge_schema: bool = False,
        value_format: str = "columns",
        schema_version: int | None = None,
        plain: bool = False,
        max_waiting: int = 1_000_000,
    ) -> Producer:
        """Return a producer of rows for one topic, which commits them transaction by transaction. If the topic does not exist, the
        first rows create it, with their columns. `key`, `segments`, `auto_create`, `merge_schema`: see
        `Transaction.append`.

        `value_format="avro"`: rows are Avro bytes, encoded by the version of the topic's schema that is the latest now, or by
        `schema_version`. `plain`, for marker-based topics (`persistent://`) only: rows are sent outside of transactions. Each flush
        costs one append, and its rows are visible at once. A retry after a lost reply may write the rows of the flush twice.
        `max_waiting`: how many rows may wait for a flush. `send` raises ProducerFull if as many rows wait. Raises TopicNotFound,
        SchemaError, OptionError.
        """
        from txnsegment.plain import PlainSend
        from txnsegment.producer import Producer
        from txnsegment.values import written_values

        new = None if value_format == "avro" or not auto_create else to_be_created(self.client, topic)
        name = self.topics.describe(topic).name if new is None else str(new)
        if plain and not is_persistent(name):
            raise OptionError(f"{name} takes rows in transactions alone.", advice="Leave plain out: a flush is a transaction.")
        begin = (lambda: PlainSend(self.client)) if plain else self.begin
        return Producer(
            begin,
            name,
            written_values(self.client, name, value_format, schema_version),
            plain=plain,
            max_waiting=max_waiting,
            options={"key": key, "segments": segments, "merge_schema": merge_schema},
            new=new is not None,
        )

    def snapshot(self, topic: str | Sequence[str] | None = None, **options: object) -> str:
        """Return the current state of one topic, or of several together, as a value of `endingOffsets`. Every batch read and `scan`
        that ends there sees the same rows, at any later time. (Delta Lake: `versionAsOf`; Iceberg: a snapshot id.)

            state = cluster.snapshot(["orders", "payments"])
            spark.read.format("txnsegment").option("endingOffsets", state).load("orders")

        A read with this value may take all of these topics or some of them. The call reads no rows. Retention may
        still trim rows of this state. `options`: `topicsPattern` in place of names; `endingTimestamp`, with `timestampTimeoutMs`,
        for the state at a time. Raises TopicNotFound, OptionError, OffsetOutOfRange.
        """
        from txnsegment.snapshot import snapshot

        return snapshot(self.client, topic, options)

    def sweep(self) -> SweepReport:
        """Run one full sweep: abort timed-out transactions, settle, fold and expire records, trim and compact by policy, delete
        orphans, and split and merge segments by policy. If another running sweeper is the leader, only that sweeper splits and
        merges. Any process may sweep at any time.

        A failure in one step or topic does not stop the others. If exactly one step failed, and with an error of txnsegment, this
        call raises that error. After other failures it raises SweepIncomplete, which lists them.
        """
        try:
            report, failed = sweep_pass(self.client, files=True)
        finally:
            self.client.autoscaler.leadership.resign()
        errors = list(failed.values())
        if len(errors) == 1 and isinstance(errors[0], TxnSegmentError):
            raise errors[0]
        complain(failed, done="The sweep was done except for some steps.")
        return report

    def compact(
        self,
        name: str,
        *,
        target_bytes: int = TARGET_BYTES,
        min_files: int = 2,
        told: Callable[[Compacted], None] = lambda _: None,
    ) -> Compacted:
        """Join small files of a topic (or of one `segment://...`) into files of about `target_bytes`. Rows, their order and their
        positions stay the same.

        `min_files`: fewer adjacent small files than this are not joined. `told`: a function that is called with the progress after
        each file. Files of registrations that are not folded yet are left alone. The log of a migrated `persistent://` topic is
        left alone, too, and the result names it in `left_out`. Replaced files are deleted after the grace period.

        The call is safe while writers, readers and other compactions run. Raises TopicNotFound, OptionError, CorruptPart,
        StorageError, TxnConflict.
        """
        if target_bytes < 1 or min_files < 2:
            raise OptionError(
                f"Cannot compact with target_bytes={target_bytes}, min_files={min_files}.",
                advice="Give target_bytes >= 1 and min_files >= 2.",
            )
        done = Compacted()
        for segment in self._segments(name):
            Compactor(self.client.cluster).compact(segment, Policy(target_bytes, min_files), done, told=told)
        return done

    def _segments(self, name: str) -> list[str]:
        if name.startswith("segment:"):
            one = segment_name(name)
            topic = self.client.topics.get(one.topic)
            if str(one) not in {topic.segment(info) for info in topic.layout.kept()}:
                raise OptionError(f"There is no segment {one}.", advice="txnsegment segments show TOPIC lists them.")
            return [str(one)]
        topic = self.client.topics.get(scalable(self.client, name, "It is not compacted"))
        return list(topic.segments())

    def backup(self, file: str | Path, *, patience: timedelta | float | None = None) -> BackupDescription:
        """Write a consistent backup of the cluster's metadata into a new file, while writers run. `txnsegment.restore` reads it.

        The backup contains every commit that was acknowledged before the call, and no undecided transaction. The backup names
        the ledger files, and does not contain their rows. So it can be restored for as long as those files are kept: at least the
        grace period (7 days by default). `patience`: how long the backup may take, in seconds or as a timedelta. Raises
        BackupUnsettled (the metadata kept changing for that long), ConfigurationError (the file exists already, or cannot be
        written).
        """
        from txnsegment.backup import backup

        return backup(self.client.cluster, Path(file), patience)

    def close(self) -> None:
        """Wait for the background work of commits, and disconnect."""
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
