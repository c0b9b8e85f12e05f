"""What a transaction over several topics has: its application, and its rows in each topic. It records where these rows are.
`cluster.transaction()` and `cluster.begin()` share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.layout import Position
from pulsar_protocol.log_holding import forget, hold
from pulsar_protocol.sent_log import Sent, log_name, record_sent
from spark_txn_sink.pulsar.admin import found_or_created, when_created
from spark_txn_sink.pulsar.attempts import Opened, opened
from spark_txn_sink.pulsar.journal import Places, journal_name
from spark_txn_sink.pulsar.settling import settle


@dataclass(frozen=True)
class Application:
    """Who commits a transaction over several topics. `name`, `version`: None without an application. `namespace`: the
    `tenant/namespace` of the journal and the control topic. `admin_url`: the REST interface, which creates these topics.
    """

    name: str | None = None
    version: int | None = None
    namespace: str = "public/default"
    admin_url: str | None = None

    @property
    def journal(self) -> str:
        return journal_name(self.namespace, self.name)

    def open(self, client: PulsarClient, txn: TxnId, unique: str) -> Opened:
        """Write the record of the opening of a transaction into the journal. Raises TopicMissing, the broker's error."""
        return opened(client, self.journal, self.admin_url, txn, unique, self.name)


@dataclass(frozen=True)
class Topic:
    """The rows of a transaction in one topic. `segments`: the first and last position in each segment. `logged`: the position of
    the first record that a Spark write of the transaction has in the topic's writers' log; None: no Spark write has one.
    """

    name: str
    segments: Places
    logged: Position | None = None


def record_places(client: PulsarClient, txn: TxnId, topics: Iterable[Topic], admin_url: str | None) -> dict[str, Opened]:
    """Record where the rows are, so that reads have all of the transaction's rows in a topic or none. The caller then commits.
    Return the records that were written, by topic, for `settle_all`. `admin_url`: the REST interface, which creates a writers' log
    that does not exist. Raises TopicMissing without it, or the broker's error.
    """

    def record(topic: str, sent: Sent) -> Opened:
        log = found_or_created(client, log_name(topic), admin_url, 1, lambda: forget(client, topic)).active[0].name
        when_created(lambda: hold(client, topic, log))
        return Opened(txn, log, when_created(lambda: record_sent(client, log, sent)))

    found: dict[str, Opened] = {}
    for one in topics:
        if one.segments:
            found[one.name] = record(one.name, Sent(txn, one.segments))
    return found


def settle_all(client: PulsarClient, topics: Iterable[Topic], recorded: Mapping[str, Opened]) -> None:
    """Tell readers which records of the topics' logs they do not need any more. Call it after the commit."""
    for one in topics:
        if one.name in recorded:
            written = recorded[one.name]
            settle(client, one.name, Opened(written.txn, written.segment, one.logged or written.place), written.place)
