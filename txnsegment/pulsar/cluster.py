"""`PulsarCluster`: the calls of `Cluster` that a live Pulsar cluster has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, cast

from metadata.common.errors import OptionError
from metadata.common.html import columns, table
from metadata.records.names import topic_name
from pulsar_protocol import auth
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import OlderModel, TopicMissing
from pulsar_protocol.layout import Bits, bits_of
from pulsar_protocol.rest import admin_url
from spark_txn_sink.pulsar.many_topics import Application
from txnsegment.producer import MAX_WAITING, Producer
from txnsegment.pulsar.consumer import PulsarConsumer
from txnsegment.pulsar.feeding import Where
from txnsegment.pulsar.opening import open_consumer
from txnsegment.pulsar.refused import refusal
from txnsegment.pulsar.rows import committed_rows
from txnsegment.pulsar.subscriptions import PulsarSubscriptions
from txnsegment.pulsar.topics import PulsarTopics
from txnsegment.pulsar.transaction import PulsarTransaction
from txnsegment.pulsar.transactions import PulsarTransactions
from txnsegment.rows import Rows
from txnsegment.transaction import Transaction, identity, timeout_ms

if TYPE_CHECKING:
    from txnsegment.pulsar.spark_transaction import PulsarSparkTransaction

TIMEOUT_MS = 60_000
"""The default for the longest time from the begin of a transaction to its end."""
SPARK_TIMEOUT_MS = 600_000
"""The same for a transaction over Spark writes."""
MAX_TIMEOUT_MS = 24 * 3_600_000
NAMESPACE = "public/default"
"""The default namespace of the topics that remember the versions of an application."""
_WHY = {
    "retention": "It is a policy of the namespace: pulsar-admin namespaces set-retention.",
    "scaling": "The broker splits and merges by its own policy.",
    "sweep": "The brokers clean up by themselves.",
    "compact": "Its rows are in BookKeeper, not in files.",
    "backup": "Back up its metadata store and bookies by Pulsar's own means.",
    "verify": "Its rows are in BookKeeper, which checks them at each read.",
    "segments": "txnsegment topics describe shows the segments; watermarks and op records are in the brokers' metadata store.",
    "snapshot": "Give a read endingTimestamp, or as endingOffsets the endOffset of a stream's progress (docs/pulsar.md).",
    "ledgers": "Its rows are in BookKeeper, not in files.",
    "settings": "They are in the configuration of the brokers.",
}
"""The parts of `Cluster` that a Pulsar cluster does not have, each with what to do in its place."""


def open_pulsar(url: str, ledgers: str | None) -> PulsarCluster:
    """Connect to a Pulsar cluster. Raises OptionError if `ledgers` is given. Raises BadUrl, Unreachable, AuthenticationFailed."""
    if ledgers is not None:
        raise OptionError(f"The Pulsar cluster {url} has no ledger root.", advice="Leave ledgers out: its rows are in BookKeeper.")
    client = auth.connect(url)
    try:
        client.channel()
        return PulsarCluster(client)
    except BaseException:
        client.close()
        raise


class PulsarCluster:
    """A live Pulsar cluster, also a context manager. Made by `connect("pulsar://host:6650")`.

        with connect("pulsar://localhost:6650") as cluster:
            with cluster.begin() as txn:
                txn.append("orders", table)
                txn.commit()

    A call of `Cluster` that this class lacks raises NotAllowed, which says what to do in its place.
    """

    def __init__(self, client: PulsarClient) -> None:
        self.client = client
        """The internal client. It is not part of the stable interface."""
        self.topics = PulsarTopics(client)
        self.subscriptions = PulsarSubscriptions(client)
        self.transactions = PulsarTransactions(client)

    @property
    def url(self) -> str:
        return self.client.url

    def _repr_html_(self) -> str:
        """The cluster and the topics of `public/default`, for notebooks."""
        rows = [(topic.name, len(topic.segments), columns(topic.schema)) for topic in self.topics.list()]
        return table((), [("cluster", self.url)]) + table(("topic", "segments", "columns"), rows)

    def rows(self, topic: str, limit: int = 20, *, message_ids: bool = False) -> Rows:
        """Return the first committed rows of a topic or of one `segment://..`, as JSON values, to look at. `message_ids`: whether
        to add the column `__messageId`. Raises TopicMissing.
        """
        return committed_rows(self.url, topic, limit, message_ids=message_ids)

    def begin(
        self,
        *,
        app: str | None = None,
        version: int | None = None,
        timeout: timedelta | float | None = None,
        namespace: str = NAMESPACE,
    ) -> PulsarTransaction:
        """Begin a transaction over any number of topics.

        `app` and `version`, given together, make the transaction idempotent: each version of an application commits at most once,
        and versions rise. `namespace`: the `tenant/namespace` of the two topics that remember this, one for each application.
        `timeout`: the longest time until the end of the transaction, in seconds or as a timedelta (default: 60 s). Raises
        OptionError.
        """
        application = _application(app, version, namespace)
        return PulsarTransaction(self.client, timeout_ms(timeout, TIMEOUT_MS, MAX_TIMEOUT_MS), self._bits, application)

    def transaction(
        self,
        *,
        app: str | None = None,
        version: int | None = None,
        timeout: timedelta | float | None = None,
        namespace: str = NAMESPACE,
    ) -> PulsarSparkTransaction:
        """Return a transaction over several Spark writes, for a `with` block. The end of the block commits the transaction.

            with cluster.transaction(app="etl", version=7) as txn:
                df.write.format("txnsegment").mode("append").options(**txn.options).save("orders")

        `app`, `version`, `namespace`: as in `begin`. `timeout`: as in `begin`, but ten minutes by default. It must be longer than
        the block with its Spark jobs. Rows of other writers to the same segments stay hidden from readers while the transaction is
        open. Raises OptionError.
        """
        from txnsegment.pulsar.spark_transaction import PulsarSparkTransaction

        application = _application(app, version, namespace)
        most = timeout_ms(timeout, SPARK_TIMEOUT_MS, MAX_TIMEOUT_MS)
        return PulsarSparkTransaction(self.client, most, self._bits, application)

    def producer(
        self,
        topic: str,
        *,
        key: str | None = None,
        segments: int | None = None,
        auto_create: bool = True,
        max_waiting: int = MAX_WAITING,
    ) -> Producer:
        """Return a producer of rows for one topic, which commits them transaction by transaction. If the topic does not exist, the
        first rows create it, with their columns. `key`, `segments`, `auto_create`: see `PulsarTransaction.append`. `max_waiting`:
        how many rows may wait for a flush. The values of rows take the types of the topic, and a column that no waiting row has is
        refused by `flush`. Raises TopicMissing (`auto_create` is False, or a `persistent://` topic has the name).
        """
        name, new = str(topic_name(topic)), False
        try:
            self.client.layout(name)
        except OlderModel:
            raise
        except TopicMissing:
            if not auto_create:
                raise
            new = True

        return Producer(
            lambda: cast("Transaction", self.begin()),
            name,
            max_waiting=max_waiting,
            options={"key": key, "segments": segments},
            new=new,
        )

    def consumer(
        self,
        topics: str | Sequence[str],
        subscription: str,
        *,
        start: Where | None = None,
        columns: Sequence[str] | None = None,
        value_format: str = "columns",
        schema_version: int | None = None,
    ) -> PulsarConsumer:
        """Return the consumer of a topic (`topic://..`, a bare name, `persistent://..`) for a subscription, which has one consumer.

        `start`: creates the subscription at this place if it does not exist: `earliest`, `latest`, or a datetime with a time zone.
        The first consumer of a subscription needs Pulsar's REST interface: the variable TXNSEGMENT_PULSAR_ADMIN_URL. `columns`: the
        columns to read; default: all. `value_format`, `schema_version`: see the options valueFormat and schemaVersion of reads.

        Raises TopicMissing, SubscriptionNotFound, SubscriptionBusy (another consumer has the subscription), OptionError.
        """
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if len(names) != 1:
            raise OptionError(
                f"A consumer of a Pulsar cluster has one topic, not {len(names)}.",
                advice="Make a consumer for each topic. One transaction may have acknowledgements of all of them.",
            )
        return open_consumer(
            self.client,
            self.subscriptions,
            names[0],
            subscription,
            start=start,
            columns=columns,
            value_format=value_format,
            schema_version=schema_version,
        )

    def _bits(self) -> Bits:
        return bits_of(self.client.channel().ready.server)

    def close(self) -> None:
        self.client.close()

    def __getattr__(self, name: str) -> NoReturn:
        raise refusal(self, "cluster", _WHY, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _application(app: str | None, version: int | None, namespace: str) -> Application:
    """Return who commits a transaction. Raises OptionError."""
    app, version = identity(app, version)
    if namespace.count("/") != 1 or not all(namespace.split("/")):
        raise OptionError(f"{namespace!r} is no namespace.", advice="Write it as tenant/namespace, such as public/default.")
    return Application(app, version, namespace, admin_url())
