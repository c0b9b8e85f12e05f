"""Worlds with a past: transactions that were committed, aborted, settled and folded before the first step of a schedule.

The real code creates each past once. Later worlds get copies. So a schedule about sweeping and reading does not have to begin with
many steps of writing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from conformance.history.format import Event
from conformance.simulator.actors.writers import Job, Write
from conformance.simulator.store.faults import Fate
from conformance.simulator.store.keyed import COLUMN
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import Process, World
from conformance.simulator.world.stage import T, U, staged
from ledgers import snapshots
from metadata.common.errors import TxnSegmentError
from metadata.records.cluster_records import Settings
from metadata.store.memory import MemoryState
from metadata.write import coordinator

Then = Callable[[MemoryState], object]
UNEVENTFUL = Plan(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, (), 0)
Q = Job("q", "q", T, (T,), (0, 1), replays=True, by="query-q")
M = Job("m", "m", "", (T, U), (1,))


@dataclass(frozen=True)
class Past:
    """The initial state of a world. `jobs`: the writers of its transactions, with their progress."""

    state: MemoryState
    files: dict[str, tuple[bytes, int]]
    events: tuple[Event, ...]
    commits: int
    now_ms: int
    names: int
    jobs: tuple[Job, ...]

    def world(self, rng: random.Random, plan: Plan, settings: Settings, *, trace: bool, files_go: bool, rested: bool) -> World:
        """Return a new world that continues from this state."""
        lines: list[str] | None = [] if trace else None
        world = World(rng, plan, settings, self.state.copy(), lines, files_go, rested, self.events)
        world.disk.files.update(self.files)
        world.history.before = self.commits
        world.clock.now = self.now_ms
        world.names = self.names
        return world


def past(name: str, *topics: tuple[str, int], keyed: bool = False, then: Then | None = None) -> Past:
    """Return one of PASTS, made with the size limits of snapshots and registrations that are set now.

    `topics`: the topics, each with its count of segments (default: T and U with one segment each). `keyed`: whether the rows have
    keys. `then`: a function that changes the store afterwards. It must make the same change each time, since its result is cached.
    """
    sizes = snapshots.TAIL_PARTS, snapshots.FANOUT, coordinator.MAX_INLINE
    return made(name, topics or ((T, 1), (U, 1)), keyed, *sizes) if then is None else more(then, name, topics, keyed, *sizes)


@cache  # only a few pasts exist
def more(then: Then, name: str, topics: tuple[tuple[str, int], ...], keyed: bool, *sizes: int) -> Past:
    """Return a past after `then` has changed its store."""
    before = past(name, *topics, keyed=keyed)
    state = before.state.copy()
    then(state)
    return replace(before, state=state)


@cache  # making a past costs as much as a schedule
def made(name: str, topics: tuple[tuple[str, int], ...], keyed: bool, tail_parts: int, fanout: int, max_inline: int) -> Past:
    """Return a past. The size limits are arguments only because they must be a part of the cache key: the product's code reads them
    from its modules.
    """
    world = World(random.Random(0), UNEVENTFUL, state=staged(*topics, key=COLUMN if keyed else None))
    writing = _Writing(world, keyed)
    PASTS[name](writing)
    done = tuple(replace(job, at=writing.at[job.name], keyed=keyed) for job in (Q, M) if job.name in writing.at)
    return Past(
        world.state, dict(world.disk.files), tuple(world.history.events), world.history.commits, world.clock.now, world.names, done
    )


class _Writing:
    """A writer that runs alone. The background work of its commits runs only if this class calls it."""

    def __init__(self, world: World, keyed: bool) -> None:
        self.world, self.process, self._keyed = world, Process(world, "past"), keyed
        self.at: dict[str, int] = {}
        self._later: list[Callable[[], None]] = []
        self.client = self.process.client
        self.client.coordinator.background = self._later.append

    def commit(self, job: Job, *, settle: bool = False) -> None:
        """Commit the job's next version. `settle`: also settle the transaction."""
        at = self.at.get(job.name, 0)
        self._later.clear()
        answer, write = self._attempt(job, at)
        assert answer == "committed", write
        self.at[job.name] = at + 1
        if settle:
            self._later[0]()

    def fail(self, job: Job) -> None:
        """Make an attempt at the job's next version that is registered and then aborted: the store refuses its op records."""
        store = self.process.store
        gate = store.gate
        store.gate = lambda kind, what: Fate.UNAVAILABLE if "/txn/op/" in what else Fate.GO
        answer, write = self._attempt(job, self.at.setdefault(job.name, 0))
        store.gate = gate
        assert answer != "committed", write

    def commit_twice(self, job: Job) -> None:
        """Commit the job's next version with two registrations. The reply to the first append is lost, and the append takes effect
        only after a second registration was committed.
        """
        store, left = self.process.store, [Fate.LATE]
        gate = store.gate
        store.gate = lambda kind, what: left.pop() if left and what.startswith("Append /log/") else Fate.GO
        self.commit(job)
        store.gate = gate
        self.world.arrive(everything=True)

    def _attempt(self, job: Job, at: int) -> tuple[str, Write]:
        world, history = self.world, self.world.history
        world.clock.now += 1
        write = Write(self.client, replace(job, keyed=self._keyed), job.versions[at], world.unique(), 1_000)
        write.stage()
        history.asked(write.asked("past", history.now()))
        txn = None
        try:
            txn = write.commit().txn_id
            said = "committed"
        except TxnSegmentError as error:
            said = type(error).__name__
        history.told(write.claim.attempt, said, txn)
        return said, write

    def sweep(self) -> None:
        self.process.sweeper.sweep()


def _two(writing: _Writing) -> None:
    writing.commit(Q)
    writing.commit(M)


def _settled(writing: _Writing) -> None:
    writing.commit(M, settle=True)
    writing.commit(Q)


def _aborted(writing: _Writing) -> None:
    writing.fail(Q)
    writing.commit(Q)


def _folded(writing: _Writing) -> None:
    writing.commit(Q, settle=True)
    writing.sweep()
    writing.commit(M)
    writing.commit(Q)


def _failed(writing: _Writing) -> None:
    writing.commit(Q)
    writing.fail(M)


def _twice(writing: _Writing) -> None:
    writing.commit_twice(Q)
    writing.commit(M)


PASTS: dict[str, Callable[[_Writing], None]] = {
    "two commits that nobody has settled": _two,
    "one settled, one not": _settled,
    "an attempt that was aborted, then one that was not": _aborted,
    "one folded, two not settled": _folded,
    "a commit, then an attempt that was aborted": _failed,
    "one that was registered twice": _twice,
}
