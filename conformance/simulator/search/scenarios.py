"""The casts of the exhaustive search: two writers, a reader and a sweeper. Each runs the real code for one short piece of work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from conformance.history.format import Commit, Event, Read, Row, Told, Written
from conformance.simulator.search.automata import Code, Emission, Hands, World, staged_info
from conformance.simulator.search.footprints import Role
from conformance.simulator.seen.observer import REFUSED, History
from conformance.simulator.store.clock import START_MS, SimulatedClock
from conformance.simulator.store.faults import GatedStore
from conformance.simulator.store.storage import Disk, GatedStorage
from conformance.simulator.world.scheduler import SETTINGS
from conformance.simulator.world.stage import T, U, staged
from ledgers.model import Part
from metadata.cluster.cluster import Cluster
from metadata.common.errors import TxnSegmentError
from metadata.instream.model import transaction_buffer
from metadata.maintenance.sweeper import FORGET_LIMIT, Sweeper, SweepReport
from metadata.read.reading import LogSelection, Reading
from metadata.rules.transitions import Claim
from metadata.store.memory import MemoryState
from metadata.write.coordinator import Coordinator
from metadata.write.write_set import WriteSet

SEGMENTS = ("segment://public/default/t/0000-ffff-0", "segment://public/default/u/0000-ffff-0")
TOPICS = (T, U)
TIMEOUT_MS = 1_000
LATE_MS = TIMEOUT_MS + SETTINGS.deadline_allowance_ms + 1
FINAL_MS = 10 * LATE_MS
FORGETFUL = SETTINGS.model_copy(update={"header_retention_ms": 0})
MARK = Emission(("mark",))
"""An emission without an event. The actor's next read begins at the time of this emission."""


@dataclass(frozen=True)
class Actor:
    """An actor of a scenario. `again`: the work that a new process does at the end if the actor crashed (None: no work)."""

    name: str
    role: Role
    code: Code
    again: Code | None = None


@dataclass(frozen=True)
class Scenario:
    """A cast. `what`: its description. `jump_ms`: the leap of the clock right before the first call of the sweeper, which is the
    last actor in `actors`.
    """

    name: str
    what: str
    actors: tuple[Actor, ...]
    jump_ms: int = 0


def start() -> World:
    """Return a world with two topics of one segment each. Its storage has no files: the parts of the writers exist only for
    `staged_info`.
    """
    return World(staged((T, 1), (U, 1)), {}, START_MS)


def _parts(app: str, attempt: str) -> dict[str, tuple[Part, ...]]:
    return {segment: (Part(f"parts/{app}/0/{attempt}/{i}.parquet", 1, 4, 0, (1,), 0),) for i, segment in enumerate(SEGMENTS)}


def writer(who: str, app: str, query: str, attempt: str) -> Code:
    """Return code that commits version 0 of the application into both segments, and then writes the events and settles the
    transaction. The transaction id was allocated before the schedule. Other background work (a share of the sweeping) is left out.
    """

    def code(hands: Hands) -> None:
        txn_id = f"0_{attempt[1:]}"
        cluster, later = hands.cluster, list[Callable[[], None]]()
        parts = _parts(app, attempt)
        claim = Claim(0, query, attempt, replays=True)
        rows = tuple(Written(part.path, None, segment) for segment, own in parts.items() for part in own)
        hands.emit(
            Emission(("asked", attempt), lambda at, _: Commit(at, attempt, who, app, T, 0, rows, query, attempt, True), True)
        )
        try:
            answer = Coordinator(cluster, later.append).commit(WriteSet(app, T, claim, parts, START_MS, TIMEOUT_MS, txn_id=txn_id))
            said, txn, error = "skipped" if answer.skipped else "committed", answer.txn_id, None
        except TxnSegmentError as raised:
            error, txn = type(raised).__name__, None
            said = "conflict" if error == "VersionConflict" else "failed" if error in REFUSED else "unknown"
        hands.emit(Emission(("told", attempt, said, txn, error), lambda at, _: Told(at, attempt, said, txn, None, error)))
        for each in later[:1]:
            try:
                each()
            except TxnSegmentError:
                continue  # the next sweep does this work, as after an error in `metadata.write.background`

    return code


def reader(who: str) -> Code:
    """Return code that reads all visible rows once."""

    def code(hands: Hands) -> None:
        buffer, selection = transaction_buffer(hands.cluster), LogSelection(TOPICS)
        hands.emit(MARK)
        reading = buffer.read(selection)
        cut = reading.cut
        rows = _rows(reading, cut)
        numbers = tuple(sorted({row.position[0] for row in rows}))
        hands.emit(Emission(("rows", cut, numbers, rows), lambda at, began: Read(at, began, who, TOPICS, rows, 0, cut, cut, None)))

    return code


def sweeper(*, timeouts: bool, forget: bool) -> Code:
    """Return code that settles and folds transactions as a sweep does. `timeouts`: whether it first aborts timed-out transactions.
    `forget`: whether it also expires headers.
    """

    def code(hands: Hands) -> None:
        own, report = Sweeper(hands.cluster, transaction_buffer(hands.cluster)), SweepReport()
        if timeouts:
            own.timeouts()
        own.settle(report)
        own.fold(report)
        if forget:
            own.forget(report, limit=FORGET_LIMIT)

    return code


def _rows(reading: Reading, end: int) -> tuple[Row, ...]:
    return tuple(
        Row(part.path, segment.name, (ledger.id, i, 0), txn=ledger.txn)
        for segment in reading.segments
        for ledger in segment.ledgers(0, end)
        for i, part in enumerate(ledger.parts)
    )


class _Staged(GatedStorage):
    """A storage whose `info` also describes the staged parts of the writers, although it has no files for them."""

    def info(self, rel: str) -> tuple[int, int] | None:
        return staged_info(rel) or super().info(rel)


def finish(world: World, crashed: Code | None) -> list[Event]:
    """Finish a schedule after all actors have ended, and return the events of this end. A new process repeats the work of a crashed
    writer (`crashed`). Then, after all deadlines, a sweep runs and a new reader reads.
    """
    state, clock = world.state.copy(), SimulatedClock()
    clock.now = world.now_ms
    disk = Disk(clock)
    disk.files = {path: (data, START_MS) for path, data in world.files.items()}
    history = History(MemoryState(), disk)
    names = (f"end{i:03d}" for i in count())
    store = GatedStore(state, clock, observer=history)
    cluster = Cluster("memory://end", store, _Staged(disk), FORGETFUL, clock, lambda: next(names))
    if crashed is not None:
        crashed(Hands(cluster, lambda said: None if said.make is None else history.events.append(said.make(history.now(), 0))))
    clock.now += FINAL_MS
    began = history.now()
    Sweeper(cluster, transaction_buffer(cluster)).sweep()
    history.swept("the end", began, clock.now)
    began = history.now()
    reading = transaction_buffer(cluster).read(LogSelection(TOPICS))
    rows = _rows(reading, reading.cut)
    history.saw(Read(history.now(), began, "the end", TOPICS, rows, 0, reading.cut, reading.cut, None, True))
    return history.events


def _cast(first: tuple[str, str], second: tuple[str, str], sweep: Code) -> tuple[Actor, ...]:
    """Return two writers, a reader and a sweeper. `first`, `second`: the (application, query) of each writer."""
    return (
        Actor("w1", Role.WRITER, writer("w1", *first, "a1"), writer("w1 again", *first, "a3")),
        Actor("w2", Role.WRITER, writer("w2", *second, "a2"), writer("w2 again", *second, "a4")),
        Actor("reader", Role.READER, reader("reader")),
        Actor("sweeper", Role.SWEEPER, sweep),
    )


TWINS = Scenario(
    "twins",
    "two drivers of one application commit the same version; the clock passes every deadline before the sweeper ends what is late, "
    "settles and folds",
    _cast(("q", "query"), ("q", "query"), sweeper(timeouts=True, forget=False)),
    LATE_MS,
)
CROSSING = Scenario(
    "crossing",
    "two applications commit into the same two segments; the sweeper settles, folds, and forgets at once",
    _cast(("p", "query-p"), ("q", "query-q"), sweeper(timeouts=False, forget=True)),
)
SCENARIOS = {scenario.name: scenario for scenario in (TWINS, CROSSING)}
