"""The truth of a history: the committed data, as far as the events show it.

A recorder that watches the store records changes of headers and registrations. The truth then follows from these changes, and the
checker judges the answers to clients by it. In a history without store records, a write counts as committed as soon as its client
is told so, or a reader returns a row of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from conformance.history.format import Application, Commit, Entry, Header, Registration, Time, Told, Written
from conformance.history.trims import Trims
from conformance.history.words import topic_of

NEVER = float("inf")
Version = tuple[str, str, int]
"""(app, topic, version). The application is the pair (app, topic)."""


@dataclass(slots=True)
class Batch:
    """The write of one transaction.

    number        the number of its registration, once it is known
    committed_at  when its header became COMMITTED; without store records: when the first answer or read showed that it is committed
    told_at       when a client was first told that it is committed
    """

    label: str
    rows: tuple[Written, ...]
    number: int | None = None
    txn: str | None = None
    version: Version | None = None
    committed_at: Time = NEVER
    told_at: Time = NEVER
    topic: str = ""
    calls: list[Commit] = field(default_factory=list)

    def place(self, row: Written) -> str:
        """Return the segment of a row of the batch, or its topic if the segment is unknown."""
        return row.segment or self.topic


@dataclass(slots=True)
class Txn:
    """The current state of a transaction. `header`: the first event of its header. `gone`: whether its header was deleted."""

    header: Header
    opened_at: Time
    decided_at: Time = NEVER
    state: str = "OPEN"
    gone: bool = False


@dataclass(slots=True)
class Registered:
    """A registration, or a DATA entry of a persistent topic's log. `first`: the event in which it appeared. `state`: COMMITTED or
    VOID once it is settled. `topics`: the topics of its rows. `gone`: whether its record was deleted.
    """

    first: Registration | Entry
    state: str | None = None
    topics: frozenset[str] = frozenset()
    gone: bool = False


@dataclass(slots=True)
class Truth:
    """The committed data, as derived from the events so far."""

    store: bool = False
    """Whether headers and registrations were recorded."""
    txns: dict[str, Txn] = field(default_factory=dict)
    registered: dict[int, Registered] = field(default_factory=dict)
    committed: dict[int, Batch] = field(default_factory=dict)
    """Number of a registration -> the batch that it commits."""
    decided: dict[Version, Batch] = field(default_factory=dict)
    by: dict[Version, str | None] = field(default_factory=dict)
    """Version -> the query that committed the version; None for a batch write."""
    last: dict[tuple[str, str], int] = field(default_factory=dict)
    """Application -> its highest committed version."""
    applications: dict[tuple[str, str], Application] = field(default_factory=dict)
    calls: dict[str, Commit] = field(default_factory=dict)
    attempts: dict[str, Commit] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    batches: dict[Version, list[Batch]] = field(default_factory=dict)
    """Version -> the batches that calls for this version asked for: one batch for all calls with the same rows."""
    writer_of: dict[str, Batch] = field(default_factory=dict)
    """Row id -> the first batch with the row."""
    seals: dict[str, int] = field(default_factory=dict)
    """Segment -> the number of its seal in the log. If several seals were made from one layout, only the first of them counts."""
    left: dict[str, Time] = field(default_factory=dict)
    """Segment -> the time at which it left its topic's layout. From then on, readers find neither its rows nor its seal."""
    deleted: dict[str, Time] = field(default_factory=dict)
    """Topic -> the time at which its deletion began."""
    trims: Trims = field(default_factory=Trims)
    spanning: bool = False
    """Whether a transaction may have rows of one key in a segment and in its children (`Start.spanning`)."""
    unkeyed: frozenset[str] = frozenset()
    """Topics without a key: rows of one key may lie in any segment, in the order of their numbers."""

    def decided_at(self, number: int) -> Time:
        """Return the time at which a registration was decided; NEVER if its transaction is OPEN; 0 if it has no known header."""
        txn = self.registered[number].first.txn
        found = self.txns.get(txn) if txn is not None else None
        return 0 if found is None else found.decided_at

    def batch_of_call(self, call: Commit) -> Batch:
        """Return the batch that a call asks for. Calls for the same version and with the same rows share one batch."""
        version = (call.app, call.topic, call.version)
        known = self.batches.setdefault(version, [])
        for batch in known:
            if batch.rows == call.rows:
                return batch
        batch = Batch(
            f"version {call.version} of {call.app}", call.rows, version=version, topic=call.topic if call.topic else "topic://"
        )
        known.append(batch)
        for row in call.rows:
            self.writer_of.setdefault(row.id, batch)
        return batch

    def where(self, number: int, topics: Iterable[str]) -> bool:
        """Return whether a registration has a row in one of the topics. Rows above the seal of their segment do not count."""
        found = self.registered[number]
        if not found.topics.isdisjoint(topics):
            seals = self.seals
            return not seals or any(
                seals.get(row.segment or "", number) >= number for row in found.first.rows if topic_of(row.segment or "") in topics
            )
        return False
