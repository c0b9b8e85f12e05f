"""The end of a transaction over several topics: it records where the rows of each topic are, and commits a version of an
application once. `cluster.transaction()` and `cluster.begin()` share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import TopicMissing
from pulsar_protocol.layout import Position
from pulsar_protocol.sent_log import Sent, log_segment, record_sent
from spark_txn_sink.pulsar.attempts import Opened, opened
from spark_txn_sink.pulsar.committing import Committer
from spark_txn_sink.pulsar.control import ARGUMENTS
from spark_txn_sink.pulsar.control_topic import ControlTopic
from spark_txn_sink.pulsar.journal import Places, journal_name
from spark_txn_sink.pulsar.settling import settle
from spark_txn_sink.pulsar.work import Work

PATIENCE_SECONDS: Final = 60.0
"""How long the coordinator is asked again for an outcome."""


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


def record_places(client: PulsarClient, txn: TxnId, topics: Iterable[Topic]) -> dict[str, Opened]:
    """Record where the rows are, so that Spark's reads see all of a topic's rows or none. The caller then commits. Return the
    records that were written, by topic, for `settle_all`.

    A topic that Spark has never written has no log for such records. Each of its segments then shows the transaction's rows at a
    time of its own. Raises the broker's error.
    """
    found: dict[str, Opened] = {}
    for one in topics:
        if not one.segments:
            continue
        try:
            log = log_segment(client, one.name)
        except TopicMissing:
            if one.logged is not None:
                raise
            continue
        found[one.name] = Opened(txn, log, record_sent(client, log, Sent(txn, one.segments)))
    return found


def settle_all(client: PulsarClient, topics: Iterable[Topic], recorded: Mapping[str, Opened]) -> None:
    """Tell readers which records of the topics' logs they do not need any more. Call it after the commit."""
    for one in topics:
        if one.name in recorded:
            written = recorded[one.name]
            settle(client, one.name, Opened(written.txn, written.segment, one.logged or written.place), written.place)


class VersionCommit:
    """The commit of a transaction as a version of its application.

        if version.begin():
            ...                     # write acknowledgements into the transaction
            version.finish(recorded)

    `opened`: the opening of the transaction in the journal. The caller closes this object. The methods raise as those of
    `Committer`.
    """

    def __init__(
        self, connect: Callable[[], PulsarClient], application: Application, opened: Opened, topics: Iterable[Topic], rows: int
    ) -> None:
        assert application.name is not None
        assert application.version is not None
        parts = [*topics]
        self._work = Work(
            txn=opened.txn,
            run=opened.txn.text,
            version=application.version,
            topic=", ".join(one.name for one in parts),
            segments={name: places for one in parts for name, places in one.segments.items()},
            rows=rows,
            what=f"the application {application.name} over several topics",
            streaming=False,
            opened=opened,
            words=ARGUMENTS,
        )
        self._control = ControlTopic(connect, application.name, application.journal, application.admin_url)
        self._committer = Committer(self._control, pause=time.sleep, now=time.monotonic, patience=PATIENCE_SECONDS)

    def begin(self) -> bool:
        """Prepare the commit. Return False if another transaction has committed the version; then this transaction is aborted."""
        return self._committer.begin(self._work)

    def finish(self, recorded: Callable[[], object]) -> bool:
        """Commit. Return False if another transaction has committed the version; then this transaction is aborted. `recorded`:
        records where the rows are.
        """
        return self._committer.finish(self._work, recorded)

    def check(self) -> bool:
        """Return whether the version is not committed yet. Raises TakenOver, VersionRefused if it cannot be committed any more."""
        return self._committer.check(self._work) == "commit"

    def close(self) -> None:
        self._control.drop()
