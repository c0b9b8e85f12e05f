"""What one look at a cluster has found. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from metadata.client.transactions import TransactionDescription, TxnState
from metadata.read.backlog import Lag
from metadata.records.records import State
from metadata.rules.transitions import cut, void_by_seal
from txnsegment.findings import Finding, Health
from txnsegment.look.drivers import DriverSeen
from txnsegment.topics import SegmentDescription, TopicDescription

NO_LAG = Lag(0, 0, 0.0)

DRAWN = 256
"""Maximum number of segments in a drawing of a topic."""


@dataclass(frozen=True, slots=True)
class Size:
    """An amount of committed rows. `bytes`: their size as written. `parts`: how many parts (files as written) they are in."""

    rows: int = 0
    bytes: int = 0
    parts: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.rows + other.rows, self.bytes + other.bytes, self.parts + other.parts)


@dataclass(frozen=True, slots=True)
class SegmentSeen:
    """A segment. `live`: how many of its registrations are still in the live log. `sealed_at`: the number of its seal."""

    segment: SegmentDescription
    size: Size
    live: int
    sealed_at: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic.

    `horizon`: the log number up to which every transaction on the topic is decided; readers get rows up to it. `waiting`: the
    committed rows above the horizon, which readers do not get yet. `undecided`: the undecided registrations of the topic, as (log
    number, transaction id). `problem`: why the topic could not be read; None if it was. A topic with a problem has no other values.
    """

    name: str
    key: str | None = None
    epoch: int = 0
    segments: tuple[SegmentSeen, ...] = ()
    horizon: int = 0
    behind: int = 0
    """How many log numbers the horizon is behind the end of the log."""
    waiting: Size = Size()
    undecided: tuple[tuple[int, str], ...] = ()
    problem: str | None = None

    @property
    def size(self) -> Size:
        return sum((one.size for one in self.segments), Size())

    @property
    def active(self) -> int:
        return sum(one.segment.sealed_ms is None for one in self.segments)

    @property
    def description(self) -> TopicDescription:
        """The topic as a drawing takes it, with at most DRAWN segments: the active ones first, then the newest sealed ones."""
        found = [one.segment for one in self.segments]
        chosen = sorted(found, key=lambda s: (s.sealed_ms is not None, -s.id))[:DRAWN]
        return TopicDescription(self.name, self.key, None, self.epoch, tuple(sorted(chosen, key=lambda s: s.id)))


@dataclass(frozen=True, slots=True)
class PersistentSeen:
    """A marker-based topic (`persistent://`). Its rows are not counted, because a count reads its whole log."""

    name: str
    created_ms: int
    sealed: bool
    migrated_to: str | None


@dataclass(frozen=True, slots=True)
class SubscriptionSeen:
    """A subscription of a `topic://`. `at_least`: the lag is larger than `lag`, because not all unacknowledged rows were counted.
    `claims`: how many open transactions have acknowledged rows of it. `problem`: why its lag is not known.
    """

    topic: str
    name: str
    lag: Lag = NO_LAG
    at_least: bool = False
    claims: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LogSeen:
    """The live log: how many registrations and seals it has, and the newest number."""

    length: int
    newest: int


@dataclass(frozen=True, slots=True)
class SweepsSeen:
    """Who sweeps. `last_ms`: when a process last began to sweep, to a minute; None: never. `sweeper`: the running sweeper that
    leads, since `since_ms`; None if no sweeper runs. `committer`: the committer that swept last, at `began_ms`. `orphans_ms`: when
    a committer last looked for orphans.
    """

    last_ms: int | None = None
    sweeper: str | None = None
    since_ms: int | None = None
    committer: str | None = None
    began_ms: int | None = None
    orphans_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look has found.

    `now_ms`: the store's time. `topics`: the topics that were looked at, by name; `topic_count` counts all topics. `open`: the OPEN
    transactions, oldest first. `ended`: the transactions that have ended since the look before (the first look: in the last
    minute), by the time of their end. Each is in one look only. `drivers`: the drivers that reported last; `driver_count` counts
    all reports that were found.
    """

    url: str
    ledgers: str
    now_ms: int
    log: LogSeen
    topics: tuple[TopicSeen, ...] = ()
    topic_count: int = 0
    persistent: tuple[PersistentSeen, ...] = ()
    open: tuple[TransactionDescription, ...] = ()
    ended: tuple[TransactionDescription, ...] = ()
    sweeps: SweepsSeen = SweepsSeen()
    allowance_ms: int = 0
    drivers: tuple[DriverSeen, ...] = ()
    driver_count: int = 0

    @property
    def size(self) -> Size:
        return sum((topic.size for topic in self.topics), Size())

    @property
    def overdue(self) -> tuple[TransactionDescription, ...]:
        """The open transactions past their deadline and the allowance. Only a marker-based transaction that is not decided has a
        deadline.
        """
        past = self.now_ms - self.allowance_ms
        return tuple(t for t in self.open if t.deadline_ms <= past and t.state in (State.OPEN, TxnState.OPEN))

    @property
    def oldest_open_s(self) -> float:
        """The age of the oldest open transaction, in seconds; 0 without one."""
        return max((age_s(t, self.now_ms) for t in self.open), default=0.0)

    def topic(self, name: str) -> TopicSeen | None:
        return next((topic for topic in self.topics if topic.name == name), None)


def age_s(txn: TransactionDescription, now_ms: int) -> float:
    """Return the age of an open transaction, or how long an ended one was open, in seconds."""
    return max(0, (txn.finalized_ms or now_ms) - txn.created_ms) / 1000


def committed(txn: TransactionDescription) -> bool:
    return txn.state in (State.COMMITTED, TxnState.COMMITTED)


def horizon(
    topic: str, seals: Mapping[str, int | None], undecided: Iterable[tuple[int, str, Iterable[str]]], end_of_log: int
) -> tuple[int, tuple[tuple[int, str], ...]]:
    """Return the horizon of a topic, and its undecided registrations as (number, transaction).

    `seals`: the number of the seal of each of its segments. `undecided`: the undecided registrations of the cluster, with the
    segments that they touch. A registration above the seal of a segment adds no rows to the segment.
    """
    prefix = topic.replace("topic://", "segment://", 1) + "/"
    found = tuple(
        (number, txn)
        for number, txn, segments in undecided
        if any((s in seals or s.startswith(prefix)) and not void_by_seal(number, seals.get(s)) for s in segments)
    )
    return cut((number for number, _ in found), end_of_log), found


def worst(findings: Sequence[Finding]) -> Health:
    """Return the worst health of the findings."""
    order = (Health.FAIL, Health.WARN)
    return next((health for health in order if any(f.health is health for f in findings)), Health.OK)


def merged(
    before: Sequence[TransactionDescription], now: Sequence[TransactionDescription], most: int
) -> list[TransactionDescription]:
    """Return the newest `most` ended transactions of both lists, newest first, each once."""
    found = {t.id: t for t in (*before, *now)}
    return sorted(found.values(), key=lambda t: (t.finalized_ms or 0, t.id), reverse=True)[:most]


def with_problem(name: str, problem: str) -> TopicSeen:
    return replace(TopicSeen(name), problem=problem)
