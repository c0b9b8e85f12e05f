"""The committed data, as far as a history shows it: from store records where they were recorded, else from clients and readers.

A recorder that watches the store provides headers and registrations. They are then the truth, and the answers of clients are judged
by them. Without them a write is committed from the moment at which its committer was answered or a reader returned it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from conformance.history.format import Application, Commit, Entry, Header, Registration, Time, Told, Written
from conformance.history.trims import Trims
from conformance.history.words import topic_of

NEVER = float("inf")
Version = tuple[str, str, int]
"""(application, its topic, version)."""


@dataclass(slots=True)
class Batch:
    """The write of one transaction. `number`: of its registration, once known.

    committed_at  time of the commit (the header's change; else the first answer or read that shows it)
    told_at       time of the first answer "committed" to a committer
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
        """The segment or topic of a row of the batch."""
        return row.segment or self.topic


@dataclass(slots=True)
class Txn:
    """The states of a transaction's header."""

    header: Header
    opened_at: Time
    decided_at: Time = NEVER
    state: str = "OPEN"
    gone: bool = False


@dataclass(slots=True)
class Registered:
    """A registration (in a persistent topic: an entry with data) as it appeared, and its outcome. `gone`: it was deleted."""

    first: Registration | Entry
    state: str | None = None
    topics: frozenset[str] = frozenset()
    gone: bool = False


@dataclass(slots=True)
class Truth:
    """The state derived from the events so far."""

    store: bool = False
    """Whether headers and registrations were recorded."""
    txns: dict[str, Txn] = field(default_factory=dict)
    registered: dict[int, Registered] = field(default_factory=dict)
    committed: dict[int, Batch] = field(default_factory=dict)
    """Number -> the batch committed by it."""
    decided: dict[Version, Batch] = field(default_factory=dict)
    by: dict[Version, str | None] = field(default_factory=dict)
    """Version -> the query that committed it."""
    last: dict[tuple[str, str], int] = field(default_factory=dict)
    """Application -> highest version committed."""
    applications: dict[tuple[str, str], Application] = field(default_factory=dict)
    calls: dict[str, Commit] = field(default_factory=dict)
    attempts: dict[str, Commit] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    batches: dict[Version, list[Batch]] = field(default_factory=dict)
    """Version -> the writes that its committers requested: one batch for each different set of rows."""
    writer_of: dict[str, Batch] = field(default_factory=dict)
    """Row -> the batch that writes it."""
    seals: dict[str, int] = field(default_factory=dict)
    """Segment -> number of its seal: the first of those made from one layout."""
    left: dict[str, Time] = field(default_factory=dict)
    """Segment -> the time at which it left its layout: from then on its rows and its seal are gone."""
    deleted: dict[str, Time] = field(default_factory=dict)
    """Topic -> when its deletion began."""
    trims: Trims = field(default_factory=Trims)
    unkeyed: frozenset[str] = frozenset()
    """Topics without a key: rows of one key may lie in any segment, in the order of their numbers."""

    def decided_at(self, number: int) -> Time:
        """The time at which the registration was decided; NEVER while its transaction is OPEN; 0 if the transaction was never
        opened.
        """
        txn = self.registered[number].first.txn
        found = self.txns.get(txn) if txn is not None else None
        return 0 if found is None else found.decided_at

    def batch_of_call(self, call: Commit) -> Batch:
        """The write that the call asks for; calls of one version with the same rows share one batch."""
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
        """Whether the registration touches one of the topics, in a segment that was not sealed below it."""
        found = self.registered[number]
        if not found.topics.isdisjoint(topics):
            seals = self.seals
            return not seals or any(
                seals.get(row.segment or "", number) >= number for row in found.first.rows if topic_of(row.segment or "") in topics
            )
        return False
