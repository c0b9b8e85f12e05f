"""`connect`: a program's hands on a cluster, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ledgers.compaction import TARGET_BYTES, Policy
from metadata.client.client import Client, client
from metadata.client.passes import sweep_pass
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import OptionError, TxnSegmentError
from metadata.common.failures import complain
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.maintenance.sweeper import SweepReport
from metadata.records.cluster_records import Settings
from metadata.records.names import is_persistent, segment_name
from txnsegment.retention import ClusterRetention
from txnsegment.scaling import ClusterScaling
from txnsegment.subscriptions import ClusterSubscriptions, Where
from txnsegment.topics import ClusterTopics, scalable
from txnsegment.transaction import Transaction, identity, timeout_ms
from txnsegment.transactions import ClusterTransactions

if TYPE_CHECKING:
    from txnsegment.backup import BackupDescription
    from txnsegment.consumer import Consumer
    from txnsegment.producer import Producer
    from txnsegment.spark_transaction import SparkTransaction


def connect(service_url: str | None = None, *, ledgers: str | None = None) -> Cluster:
    """Connect to the cluster behind a service URL: `file:///path` (embedded, made on first use) or `zk://h:p[,h:p]/chroot`.

    Default: the environment variable TXNSEGMENT_SERVICE_URL. `ledgers`: the URI of the ledgers' folder or bucket, to make a cluster
    that is not there yet; after that the URL alone is enough. Raises OptionError, ConfigurationError, ClusterFormatError,
    Unavailable, StorageError.
    """
    return Cluster(client(open_cluster(service_url, ledgers=ledgers)))


class Cluster:
    """An open cluster. A context manager: leaving the block waits for what commits left to the background, and disconnects."""

    def __init__(self, client: Client) -> None:
        self.client = client
        """The parts that the cluster is made of, for programs that go deeper (not part of the stable interface)."""
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
        """The URI of the folder or bucket that holds the ledgers."""
        return self.client.cluster.storage.uri

    @property
    def settings(self) -> Settings:
        return self.client.cluster.settings

    def begin(self, *, app: str | None = None, version: int | None = None, timeout: timedelta | float | None = None) -> Transaction:
        """Begin a transaction over any number of topics.

        `app` and `version` together make it idempotent: a version commits at most once, versions rise, and one that is lower than
        what has committed is an error. `timeout`: from opening to deciding, in seconds or as a timedelta (default: the cluster's,
        30 s). Raises OptionError.
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
        """A transaction over several writes of Spark, to be used as `with cluster.transaction() as txn:`; the end of the block
        commits it. The arguments are those of `begin`. Raises OptionError.
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
        """Follow one or several topics (or segments) from where a subscription stands.

        `start`: makes the subscription there on topics that do not have it (`earliest`, `latest`, a number, a moment); without it
        that is an error. `value_format="avro"`: each row is `{"value": bytes}`, by the last version of the topic's schema or by
        `schema_version`. Raises TopicNotFound, SubscriptionNotFound, OptionError.
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
        value_format: str = "columns",
        schema_version: int | None = None,
        plain: bool = False,
        max_waiting: int = 1_000_000,
    ) -> Producer:
        """Write to one topic, transaction by transaction. `value_format="avro"`: rows are bytes, by the last version of the topic's
        schema as it is now, or by `schema_version`. `plain` (persistent:// topics only): without a transaction, so each flush is
        seen at once and costs one append, but may be there twice after a reply that was lost. `max_waiting`: how many rows may wait
        for a flush; `send` raises ProducerFull beyond. Raises TopicNotFound, SchemaError, OptionError.
        """
        from txnsegment.plain import PlainSend
        from txnsegment.producer import Producer
        from txnsegment.values import written_values

        name = self.topics.describe(topic).name
        if plain and not is_persistent(name):
            raise OptionError(f"{name} takes rows in transactions alone.", advice="Leave plain out: a flush is a transaction.")
        begin = (lambda: PlainSend(self.client)) if plain else self.begin
        return Producer(
            begin, name, written_values(self.client, name, value_format, schema_version), plain=plain, max_waiting=max_waiting
        )

    def snapshot(self, topic: str | Sequence[str] | None = None, **options: object) -> str:
        """The newest state of a topic, or of several topics together, as the value of `endingOffsets`: every batch read and `scan`
        that ends there sees the same rows, however often and late it runs. (With Delta Lake this is `versionAsOf`, with Iceberg a
        snapshot id.) Each read may take all of these topics or some. It reads nothing itself and keeps nothing from retention.

        `options`: `topicsPattern` in place of names; `endingTimestamp` for the state as of a moment, with `timestampTimeoutMs`.
        Raises TopicNotFound, OptionError, OffsetOutOfRange.
        """
        from txnsegment.snapshot import snapshot

        return snapshot(self.client, topic, options)

    def sweep(self) -> SweepReport:
        """Sweep once, all of it: time out, settle, fold, forget, trim and compact by policy, and delete files that nothing
        protects; and split and merge by policy, unless a sweeper that stays leads. Anyone may, any time.

        A step or topic that fails holds up no other one. Raises the error if one failed, SweepIncomplete if several did, or one
        with an error that is none of ours; all the others were done then.
        """
        try:
            report, failed = sweep_pass(self.client, files=True)
        finally:
            self.client.autoscaler.leadership.resign()
        errors = list(failed.values())
        if len(errors) == 1 and isinstance(errors[0], TxnSegmentError):
            raise errors[0]
        complain(failed, done="The sweep was done but for some of it.")
        return report

    def compact(
        self,
        name: str,
        *,
        target_bytes: int = TARGET_BYTES,
        min_files: int = 2,
        told: Callable[[Compacted], None] = lambda _: None,
    ) -> Compacted:
        """Put the many small files of a topic (or of one `segment://...`) together into few of about `target_bytes` each. What
        reads return, in which order and under which positions, stays the same. What is not folded yet stays as it is; files of
        which fewer than `min_files` follow each other, too, and a persistent topic that was migrated (`left_out` names it). The old
        files go after the grace period. `told` hears of the progress.

        Runs beside writers, readers and others who compact. Raises TopicNotFound, OptionError, CorruptPart, StorageError,
        TxnConflict.
        """
        if target_bytes < 1 or min_files < 2:
            raise OptionError(
                "At least one byte, and two files, can be put together.", advice="Give targetBytes >= 1, minFiles >= 2."
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
        """Write a consistent backup of the cluster's metadata, while writers run, into a new file; `txnsegment.restore` reads it.

        Everything that was acknowledged before the call is in it; what is undecided by then is not. It names the ledgers' files and
        holds none of their rows: it can be restored for as long as those are kept, at least the grace period (7 days by default).
        `patience`: how long it may take, in seconds or as a timedelta. Raises BackupUnsettled (something kept changing),
        ConfigurationError (the file is there already, or cannot be written).
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
