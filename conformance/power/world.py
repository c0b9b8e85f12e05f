"""A cluster with its files on a simulated disk, and every moment at which the power can fail."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from conformance.power.disk import FrozenFolder, Pick, SimulatedDisk
from conformance.simulator.store.clock import SimulatedClock
from ledgers.disk import in_place_of_the_disk
from metadata.client.client import client
from metadata.cluster.cluster import open_cluster
from metadata.records.cluster_records import Settings
from metadata.store.contract import MetadataStore
from metadata.store.memory import MemoryState, MemoryStore, Shared
from metadata.store.sqlite import SqliteStore
from metadata.store.sqlite_database import FILE
from metadata.write.aftermath import inline
from txnsegment import Cluster, Transaction

SETTINGS = Settings(fold_after_registrations=1, fold_after_ms=1, header_retention_ms=60_000)
ROOT = Path("/power/ledgers")
BACKUPS = Path("/power/backups")
STORE = "memory://power"
RESTORED = "memory://power-restored"


State = MemoryState | bytes
"""Of a store in memory, of SQLite."""


@dataclass(frozen=True)
class Txn:
    """The rows of one transaction by topic: numbers that no other transaction writes. `promised`: its commit has returned.
    `leaving`: topics whose retention may have trimmed it.
    """

    rows: Mapping[str, tuple[int, ...]]
    promised: bool = False
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Moment:
    """A crash point: the durable state, the possible states, and the promises at this moment. `after`: the call before it.

    `stores`: by URL or path, the states that a power cut may leave, oldest first. A power cut may undo writes that are not durable
    (`Put.durable`), back to the last durable one.
    """

    after: str
    disk: FrozenFolder
    stores: Mapping[str, tuple[State, ...]]
    txns: Mapping[int, Txn]
    facts: frozenset[str]
    leaving: frozenset[str]
    now: int


@dataclass
class World:
    """Runs a scenario, or the work after a power cut. `folder`: a real folder for SQLite; without it stores are in memory."""

    folder: Path | None = None
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    name: str = "w"
    txns: dict[int, Txn] = field(default_factory=dict)
    facts: set[str] = field(default_factory=set)
    leaving: frozenset[str] = frozenset()
    moments: list[Moment] | None = None
    """The crash points, of a world that records them."""
    left: tuple[object, ...] = ()
    """The states chosen for the stores after a power cut."""

    @classmethod
    def new(cls, folder: Path | None = None) -> World:
        """An empty world."""
        world = cls(folder)
        for made in (world.ledgers.parent.parent, BACKUPS):
            world.disk.settle(made)
        for url in (STORE, RESTORED):
            _shared(url).state = MemoryState()
        return world

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk(self.clock.now_ms, mirrored=self.folder)
        self._numbers = itertools.count()
        self._noting = threading.RLock()
        self._undone: dict[str, list[MemoryState]] = {}

    # --- what happens in it ----------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[World]:
        """Within the block all local files lie on the simulated disk; every call to disk and store is a crash point."""
        self.disk.told = self.note
        with in_place_of_the_disk(self.disk), _told_of_writes(self):
            yield self

    def unique(self) -> str:
        return f"{self.name}{next(self._numbers):06d}"

    @property
    def ledgers(self) -> Path:
        return ROOT if self.folder is None else self.folder / "cluster" / "ledgers"

    @property
    def url(self) -> str:
        return STORE if self.folder is None else f"file://{self.folder}/cluster"

    @contextmanager
    def connected(self, url: str | None = None) -> Iterator[Cluster]:
        """A separate process on the cluster, which is created if missing."""
        ledgers = f"file://{self.ledgers}" if self.folder is None else None
        opened = open_cluster(url or self.url, ledgers=ledgers, settings=SETTINGS, clock=self.clock)
        opened.unique = self.unique
        try:
            yield Cluster(client(opened, inline))
        finally:
            opened.close()

    def begin(self, rows: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Record that a transaction is tried now; returns its rows by topic, for the given counts."""
        number = len(self.txns) + 1
        written = {topic: tuple(number * 1000 + i for i in range(count)) for topic, count in rows.items()}
        self.txns = {**self.txns, number: Txn(written, leaving=self.leaving & rows.keys())}
        self.note("begin")
        return written

    def promise(self, written: Mapping[str, tuple[int, ...]]) -> None:
        """Record that the commit of the transaction has returned."""
        number, txn = next((number, txn) for number, txn in self.txns.items() if txn.rows == written)
        self.txns = {**self.txns, number: replace(txn, promised=True)}
        self.note("commit has returned")

    def leave(self, topic: str) -> None:
        """Record that retention may trim every transaction of a topic from now on."""
        self.leaving |= {topic}
        self.txns = {n: replace(txn, leaving=txn.leaving | ({topic} & txn.rows.keys())) for n, txn in self.txns.items()}

    def commit(self, cluster: Cluster, rows: Mapping[str, int], *, calls: int = 1) -> None:
        """One transaction; its rows are appended in the given number of calls for each topic."""
        written = self.begin(rows)
        txn = cluster.begin()
        self.append(txn, written, calls)
        txn.commit()
        self.promise(written)

    @staticmethod
    def append(txn: Transaction, written: Mapping[str, Sequence[int]], calls: int = 1) -> None:
        for topic, numbers in written.items():
            for i in range(calls):
                if numbers[i::calls]:
                    txn.append(topic, table(numbers[i::calls]))

    def state(self, fact: str) -> None:
        """Record a condition that must hold from now on, also after any power cut."""
        self.facts.add(fact)
        self.note(fact)

    def pass_time(self, ms: int) -> None:
        """Let enough time pass for every write to reach the store's disk."""
        self.clock.now += ms
        self._undone.clear()

    # --- crash points ----------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """A crash point, if anything has changed since the last one."""
        if self.moments is None:
            return
        with self._noting:
            moment = Moment(
                what, self.disk.freeze(), self._stores(), self.txns, frozenset(self.facts), self.leaving, self.clock.now
            )
            self.moments.append(moment)

    def written(self, store: MetadataStore, before: MemoryState | None, *, durable: bool) -> None:
        """A write is done: a power cut may leave the state before it, unless the write is durable."""
        for url in (STORE, RESTORED):
            if before is not None and isinstance(store, MemoryStore) and store.shared is _shared(url):
                if durable:
                    self._undone.pop(url, None)
                else:
                    self._undone.setdefault(url, []).append(before)

    def _stores(self) -> dict[str, tuple[State, ...]]:
        if self.folder is not None:
            return _databases(self.folder)
        return {url: (*self._undone.get(url, ()), _shared(url).state.snapshot()) for url in (STORE, RESTORED)}

    @classmethod
    def after_a_cut(cls, moment: Moment, pick: Pick, *, folder: Path | None, name: str) -> World:
        """The state of disk and stores left by a power cut: all processes are gone, with their sessions."""
        left = {url: one_of(states, pick) for url, states in moment.stores.items()}
        world = cls._from(moment, folder, name)
        world.left = tuple(state if isinstance(state, bytes) else id(state) for state in left.values())
        world.disk = SimulatedDisk.after_a_cut(moment.disk, pick, world.clock.now_ms, mirrored=folder)
        world._put_back(left)
        return world

    @classmethod
    def after_a_kill(cls, moment: Moment, *, folder: Path | None, name: str) -> World:
        """The state after a kill of all processes, before the power fails."""
        left = {url: states[-1] for url, states in moment.stores.items()}
        world = cls._from(moment, folder, name)
        world._undone = {url: [s for s in states[:-1] if isinstance(s, MemoryState)] for url, states in moment.stores.items()}
        world.disk = SimulatedDisk.after_a_kill(moment.disk, world.clock.now_ms, mirrored=folder)
        world._put_back(left)
        return world

    @classmethod
    def _from(cls, moment: Moment, folder: Path | None, name: str) -> World:
        world = cls(folder, name=name, txns=dict(moment.txns), facts=set(moment.facts), leaving=moment.leaving)
        world.clock.now = moment.now
        return world

    def _put_back(self, left: Mapping[str, State]) -> None:
        """The stores as they were. A real folder that is missing on the simulated disk is emptied."""
        if self.folder is not None:
            for gone in self.folder.iterdir():
                shutil.rmtree(gone)
            for name, _ in [entry for entry in self.disk.entries(self.folder) if entry[1] is None]:
                (self.folder / name).mkdir()
        for place, state in left.items():
            if isinstance(state, MemoryState):
                put = state.copy()
                for session in range(put.sessions + 1):
                    put.end_session(session)
                _shared(place).state = put
            elif self.disk.is_folder(Path(place).parent):
                Path(place).write_bytes(state)


def one_of(states: Sequence[State], pick: Pick) -> State:
    return states[0] if len(states) == 1 else states[pick(len(states))]


def _shared(url: str) -> Shared:
    """The state shared by all memory stores of one name."""
    return MemoryStore(url.removeprefix("memory://")).shared


def _databases(folder: Path) -> dict[str, tuple[State, ...]]:
    """The committed content of each SQLite store under a folder. It survives a power cut (synchronous=FULL)."""
    found: dict[str, tuple[State, ...]] = {}
    for path in sorted(folder.glob(f"*/{FILE}")):
        with closing(sqlite3.connect(path)) as connection:
            found[str(path)] = (connection.serialize(),)
    return found


@contextmanager
def _told_of_writes(world: World) -> Iterator[None]:
    """A store that reports each write to the world, before and after it."""
    kinds: tuple[Any, ...] = (MemoryStore, SqliteStore)
    before = [(kind, kind.write) for kind in kinds]

    def telling(write: Callable[..., Any]) -> Callable[..., Any]:
        def written(store: MetadataStore, *writes: Any) -> Any:
            state = store.shared.state.snapshot() if isinstance(store, MemoryStore) else None
            found = write(store, *writes)
            world.written(store, state, durable=any(w.durable for w in writes))
            world.note("store " + ", ".join(f"{type(w).__name__} {w[0]}" for w in writes))
            return found

        return written

    for kind, write in before:
        kind.write = telling(write)
    try:
        yield
    finally:
        for kind, write in before:
            kind.write = write


COLUMNS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def text(number: int) -> str:
    return f"row {number}"


def table(numbers: Sequence[int]) -> pa.Table:
    return pa.table([pa.array(numbers, pa.int64()), pa.array([text(n) for n in numbers])], COLUMNS)
