"""`connect`: a program's hands on a cluster, without Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from metadata.client import Client, client
from metadata.cluster import open_cluster
from metadata.orphans import sweep_orphans
from metadata.records import Settings
from metadata.sweeper import SweepReport
from txnsegment.subscriptions import ClusterSubscriptions, Where
from txnsegment.topics import ClusterTopics
from txnsegment.transaction import Transaction, identity, timeout_ms
from txnsegment.transactions import ClusterTransactions

if TYPE_CHECKING:
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
    ) -> Consumer:
        """Follow one or several topics (or segments) from where a subscription stands.

        `start`: makes the subscription there on topics that do not have it (`earliest`, `latest`, a number, a moment); without it
        that is an error. Raises TopicNotFound, SubscriptionNotFound, OptionError.
        """
        from txnsegment.consumer import Consumer

        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if start is not None:
            self.subscriptions.join(names, subscription, start)
        return Consumer(self.client, names, subscription, columns=columns)

    def producer(self, topic: str) -> Producer:
        """Write to one topic, transaction by transaction. Raises TopicNotFound."""
        from txnsegment.producer import Producer

        return Producer(self.begin, self.topics.describe(topic).name)

    def sweep(self) -> SweepReport:
        """Sweep once, all of it: time out, settle, fold, forget, and delete files that nothing protects. Anyone may, any time."""
        report = self.client.sweeper.sweep()
        orphans = sweep_orphans(self.client.cluster)
        return dataclasses.replace(report, orphans_deleted=orphans.files, orphan_bytes=orphans.bytes)

    def close(self) -> None:
        """Wait for the background work of commits, and disconnect."""
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
