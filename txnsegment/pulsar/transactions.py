"""`cluster.transactions` of a Pulsar cluster: the transactions of txnsegment's writers, as far as their records tell.

Neither the binary protocol nor the REST interface of Pulsar 5.0.0-M1 can list transactions. But the writers of this project write
into the writers' log of a topic which transactions they open, and, before a commit, where the rows are. A read of the first entry
shows the state of a transaction: the broker delivers this entry only if the transaction is committed. The journal of an application
has its transactions over several topics, and its control topic has their versions.

Open transactions of `cluster.begin()` without `app` write no such record before their commit. They are not listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from metadata.common.errors import OptionError, TransactionNotFound, TxnConflict
from metadata.common.html import Shown
from metadata.records.names import topic_name
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.errors import TRANSACTION_NOT_FOUND, TimedOut, TopicMissing, TransactionEnded
from pulsar_protocol.layout import Position
from pulsar_protocol.reader import entries
from pulsar_protocol.sent_log import Sent, decode, log_name
from spark_txn_sink.pulsar.control import Begin, Done
from spark_txn_sink.pulsar.control import decode as decode_control
from spark_txn_sink.pulsar.journal import Note
from spark_txn_sink.pulsar.log_records import naming
from txnsegment.pulsar.topics import damaged_topics

NEWEST: Final = 100
"""How many transactions of a topic are listed at most: the newest ones."""
WAIT_SECONDS: Final = 1.0
"""How long a call waits for the first entry of a transaction."""
_LOG_PREFIX: Final = "__txnsegment_attempts_"
_CONTROL_PREFIX: Final = "__txnsegment_control_"
COMMITTED: Final = "COMMITTED"
UNDECIDED: Final = "OPEN or ABORTED"
UNKNOWN: Final = "UNKNOWN"
GIVEN: Final = {COMMITTED: COMMITTED, UNDECIDED.upper(): UNDECIDED, "OPEN": UNDECIDED, "ABORTED": UNDECIDED, UNKNOWN: UNKNOWN}
"""The state that a caller means by each text."""


@dataclass(frozen=True)
class PulsarTransactionDescription(Shown):
    """One transaction, with the fields of `TransactionDescription` that can be known.

    - `state`: `COMMITTED`, `OPEN or ABORTED` (no row of it is delivered), or `UNKNOWN` (retention has removed its first row).
    - `app`: None for a batch without `txnAppId`, and for `cluster.begin()` and `cluster.transaction()` without `app`.
    - `topic`: empty if the logs of no topic name the transaction, but the journal of its application does.
    - `version`: the version of the application; None before the transaction's commit has begun, or without an application.
    - `created_ms`: the time of the transaction's first record in the log, by the clock of the writer.
    - `segments`: the segments with rows of the transaction; empty before the writer has begun to commit the transaction.
    """

    id: str
    state: str
    app: str | None
    topic: str
    created_ms: int
    segments: tuple[str, ...] = ()
    version: int | None = None
    owner: str | None = None
    deadline_ms: int | None = None
    finalized_ms: int | None = None
    commit: int | None = None
    has_participants: bool = True


@dataclass
class _Known:
    """What the records in the writers' log of a topic say about a transaction."""

    created_ms: int
    app: str | None = None
    sent: Sent | None = None


class PulsarTransactions:
    """List, look up and abort transactions of a Pulsar cluster."""

    def __init__(self, client: PulsarClient) -> None:
        self._client = client

    def list(self, state: str | None = None, *, namespace: str = "public/default") -> list[PulsarTransactionDescription]:
        """Return the newest transactions of txnsegment's writers to each scalable topic of a namespace, the newest first.
        Transactions of other clients are not known, nor open ones of `cluster.begin()` without `app`.

        `state`: `COMMITTED`, `OPEN or ABORTED`, or `UNKNOWN`. `OPEN` and `ABORTED` both mean the state `OPEN or ABORTED`. None: all
        states. Raises OptionError for any other state.
        """
        wanted = None if state is None else GIVEN.get(" ".join(state.upper().split()))
        if state is not None and wanted is None:
            raise OptionError(
                f"{state!r} is no state of a transaction that can be known of a Pulsar cluster.",
                advice=f"Give one of: {', '.join(GIVEN)}.",
            )
        return [one for one in self._all(namespace) if wanted in (None, one.state)]

    def get(self, txn_id: str, *, namespace: str = "public/default") -> PulsarTransactionDescription:
        """Return one of the transactions that `list` returns, with the segments of all its topics, and with all names in `topic`
        (divided by commas). Raises TransactionNotFound. Raises OptionError for a text that is no transaction id.
        """
        _parsed(txn_id)
        if found := [one for one in self._all(namespace) if one.id == txn_id]:
            segments = tuple(sorted({segment for one in found for segment in one.segments}))
            return replace(found[0], topic=", ".join(one.topic for one in found), segments=segments)
        raise TransactionNotFound(
            f"The logs of txnsegment's writers in {namespace} do not name a transaction {txn_id}.",
            advice="Pulsar itself does not tell its state. Give an id as `txnsegment txns list` shows it. An open transaction of "
            "another client, or of cluster.begin() without app, is not named; `txnsegment txns abort` ends it.",
        )

    def abort(self, txn_id: str) -> None:
        """Abort an OPEN transaction of any client. The commit of its owner then fails. Idempotent. Raises TxnConflict if the
        transaction has committed. Raises TransactionNotFound if the coordinator does not know the transaction, or not any more.
        """
        try:
            self._client.end(_parsed(txn_id), commit=False)
        except TransactionEnded as error:
            if error.code == TRANSACTION_NOT_FOUND:
                raise TransactionNotFound(
                    f"The coordinator does not know the transaction {txn_id}.", advice="It has ended long ago, or never was."
                ) from error
            raise TxnConflict(f"The transaction {txn_id} has committed.", advice="It cannot be aborted any more.") from error

    def _all(self, namespace: str) -> Sequence[PulsarTransactionDescription]:
        """Return the transactions, the newest first. A transaction with rows in several topics is there once for each of them."""
        names = {*self._client.topics(namespace)}
        owned = [name for name in names if topic_name(name).name.startswith((_LOG_PREFIX, _CONTROL_PREFIX))]
        names -= {*damaged_topics(self._client, owned)}  # `topics list` and `doctor` name them
        logs = {log_name(topic): topic for topic in names}
        recorded = {log: self._recorded(log) for log in sorted(names) if topic_name(log).name.startswith(_LOG_PREFIX)}
        apps = {txn: one.app for known in recorded.values() for txn, one in known.items() if one.app is not None}
        versions, committed = self._versions(sorted(names))
        found = []
        in_topics = {txn for log, known in recorded.items() if log in logs for txn in known}
        for log, known in recorded.items():
            topic = logs.get(log, "")
            for txn in [*known][-NEWEST:]:
                if topic or txn not in in_topics:
                    one = known[txn]
                    segments = () if one.sent is None else tuple(sorted(one.sent.segments))
                    state = COMMITTED if txn in committed else self._state(one.sent)
                    if state == COMMITTED:
                        committed.add(txn)
                    app, version = apps.get(txn), versions.get(txn)
                    found.append(PulsarTransactionDescription(txn, state, app, topic, one.created_ms, segments, version))
        decided = [replace(one, state=COMMITTED) if one.id in committed else one for one in found]
        return sorted(decided, key=lambda one: (-one.created_ms, one.topic))

    def _versions(self, names: Iterable[str]) -> tuple[dict[str, int], set[str]]:
        """Return the version of each transaction that a control topic names, and the transactions of which it says that they are
        committed. The broker delivers that record only if they are.
        """
        versions, committed = dict[str, int](), set[str]()
        for name in names:
            if topic_name(name).name.startswith(_CONTROL_PREFIX):
                for segment in self._client.layout(name).segments.values():
                    for _, entry in entries(self._client, segment.name, to=Segment(self._client, segment.name).cut().position):
                        for message in entry.messages():
                            with naming(name):
                                record = decode_control(message.value or b"")
                            if isinstance(record, Begin | Done):
                                versions[record.txn.text] = record.version
                            if isinstance(record, Done):
                                committed.add(record.txn.text)
        return versions, committed

    def _recorded(self, log: str) -> dict[str, _Known]:
        """Return the transactions that a log names, in the order of their first records."""
        found: dict[str, _Known] = {}
        for segment in self._client.layout(log).segments.values():
            for _, entry in entries(self._client, segment.name, to=Segment(self._client, segment.name).cut().position):
                for message in entry.messages():
                    data = message.value or b""
                    sent = decode(data, log) if Note.decoded(data, log) is None else None  # a note of a journal names no rows
                    fields = _fields(data)
                    if not fields.get("txn"):
                        continue
                    one = found.setdefault(fields["txn"], _Known(entry.metadata.publish_time))
                    one.app = fields.get("app") or one.app
                    one.sent = sent if isinstance(sent, Sent) else one.sent
        return found

    def _state(self, sent: Sent | None) -> str:
        """Return the state of a transaction, as a read of its first entry shows it. A writer records where the rows are before it
        commits. So a transaction without such a record (`sent`) is not committed.
        """
        if sent is None or not sent.segments:
            return UNDECIDED
        name, (first, _) = min(sent.segments.items())
        try:
            segment = Segment(self._client, name)
            if segment.before_first() >= first:
                return UNKNOWN
            delivered = segment.first_after(Position(first.ledger, first.entry - 1), WAIT_SECONDS).position == first
        except TimedOut:
            return UNDECIDED
        except TopicMissing:
            return UNKNOWN
        return COMMITTED if delivered else UNDECIDED


def _fields(data: bytes) -> dict[str, Any]:
    """Return the fields of a record that `decode` or `Note.decoded` has accepted."""
    found: dict[str, Any] = json.loads(data)
    return found


def _parsed(text: str) -> TxnId:
    try:
        return TxnId.parse(text)
    except ValueError:
        raise OptionError(
            f"{text!r} is no id of a transaction.", advice="Write it as `txnsegment txns list` does, e.g. 0_977."
        ) from None
