"""A cluster whose files lie on a simulated disk, and the crash points: all moments at which the power can fail."""

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
from metadata.write.background import inline
from txnsegment import Cluster, Transaction

SETTINGS = Settings(fold_after_registrations=1, fold_after_ms=1, header_retention_ms=60_000)
ROOT = Path("/power/ledgers")
BACKUPS = Path("/power/backups")
STORE = "memory://power"
RESTORED = "memory://power-restored"


State = MemoryState | bytes
"""The state of a store: a `MemoryState` for a store in memory, the bytes of the database file for SQLite."""


@dataclass(frozen=True)
class Txn:
    """One transaction. `rows`: topic -> the numbers `n` of its rows, which no other transaction has. `promised`: whether its commit
    has returned. `leaving`: the topics whose retention may have trimmed its rows.
    """

    rows: Mapping[str, tuple[int, ...]]
    promised: bool = False
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Moment:
    """A crash point, with the state of the world at this moment.

    after    the call that has just returned
    disk     the disk, with the changes that a power cut can undo
    stores   URL or path of a store -> the states that a power cut can leave, oldest first. A power cut can undo writes that are not
             durable (`Put.durable`), back to the last durable write
    now      the time in ms

    `txns`, `facts` and `leaving` are the fields of the world with these names.
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
    """The state in which a scenario runs, or in which the cluster is used after a power cut. `folder`: a real folder for SQLite;
    None: the stores are in memory. `txns`: number of a transaction -> the transaction. `facts`: what `state` has recorded.
    `leaving`: the topics that retention may trim. `name`: the beginning of all names that `unique` makes.
    """

    folder: Path | None = None
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    name: str = "w"
    txns: dict[int, Txn] = field(default_factory=dict)
    facts: set[str] = field(default_factory=set)
    leaving: frozenset[str] = frozenset()
    moments: list[Moment] | None = None
    """The crash points; None if this world does not record them."""
    left: tuple[object, ...] = ()
    """The states of the stores that the last power cut left: the content of a SQLite file, or the id of a `MemoryState`."""

    @classmethod
    def new(cls, folder: Path | None = None) -> World:
        """Return an empty world."""
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

    # --- what happens in the world ---------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[World]:
        """During the block, keep all local files on the simulated disk, and note a crash point after each change of the disk or a
        store.
        """
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
        """Open the cluster during the block, as a new process does. Create it if it does not exist."""
        ledgers = f"file://{self.ledgers}" if self.folder is None else None
        opened = open_cluster(url or self.url, ledgers=ledgers, settings=SETTINGS, clock=self.clock)
        opened.unique = self.unique
        try:
            yield Cluster(client(opened, inline))
        finally:
            opened.close()

    def begin(self, rows: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Record that a transaction begins. Return topic -> the numbers `n` of its rows. `rows`: topic -> how many rows it gets."""
        number = len(self.txns) + 1
        written = {topic: tuple(number * 1000 + i for i in range(count)) for topic, count in rows.items()}
        self.txns = {**self.txns, number: Txn(written, leaving=self.leaving & rows.keys())}
        self.note("begin")
        return written

    def promise(self, written: Mapping[str, tuple[int, ...]]) -> None:
        """Record that the commit of a transaction has returned. `written`: what `begin` returned for the transaction."""
        number, txn = next((number, txn) for number, txn in self.txns.items() if txn.rows == written)
        self.txns = {**self.txns, number: replace(txn, promised=True)}
        self.note("commit has returned")

    def leave(self, topic: str) -> None:
        """Record that from now on retention may trim all rows of a topic."""
        self.leaving |= {topic}
        self.txns = {n: replace(txn, leaving=txn.leaving | ({topic} & txn.rows.keys())) for n, txn in self.txns.items()}

    def commit(self, cluster: Cluster, rows: Mapping[str, int], *, calls: int = 1) -> None:
        """Commit one transaction. `rows`: topic -> how many rows it gets. `calls`: how many append calls write them."""
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
        """Record a fact, such as that a backup was written. The fact must still be true after any later power cut."""
        self.facts.add(fact)
        self.note(fact)

    def pass_time(self, ms: int) -> None:
        """Advance the clock. All earlier writes of the stores count as durable after that."""
        self.clock.now += ms
        self._undone.clear()

    # --- crash points ----------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Record a crash point, if this world records them. `what`: the call that has just returned."""
        if self.moments is None:
            return
        with self._noting:
            moment = Moment(
                what, self.disk.freeze(), self._stores(), self.txns, frozenset(self.facts), self.leaving, self.clock.now
            )
            self.moments.append(moment)

    def written(self, store: MetadataStore, before: MemoryState | None, *, durable: bool) -> None:
        """Note that a store has done a write. Unless the write is durable, a power cut can leave `before`, the state before the
        write.
        """
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
        """Return a world in a state that a power cut at this moment can leave. `pick` chooses the states of the disk and of the
        stores. All processes and their sessions have ended.
        """
        left = {url: one_of(states, pick) for url, states in moment.stores.items()}
        world = cls._from(moment, folder, name)
        world.left = tuple(state if isinstance(state, bytes) else id(state) for state in left.values())
        world.disk = SimulatedDisk.after_a_cut(moment.disk, pick, world.clock.now_ms, mirrored=folder)
        world._put_back(left)
        return world

    @classmethod
    def after_a_kill(cls, moment: Moment, *, folder: Path | None, name: str) -> World:
        """Return a world at this moment after all processes were killed. The power has not failed: nothing is lost."""
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
        """Set the stores to these states. For SQLite, first empty the real folder, and create the subfolders in it that the
        simulated disk has there.
        """
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
    """Return the object that all memory stores of one URL share. Its `state` is the content of the store."""
    return MemoryStore(url.removeprefix("memory://")).shared


def _databases(folder: Path) -> dict[str, tuple[State, ...]]:
    """Return the committed content of each SQLite store under a folder, by the path of its file. SQLite has made this content
    durable (synchronous=FULL), so it is the only state that a power cut can leave.
    """
    found: dict[str, tuple[State, ...]] = {}
    for path in sorted(folder.glob(f"*/{FILE}")):
        with closing(sqlite3.connect(path)) as connection:
            found[str(path)] = (connection.serialize(),)
    return found


@contextmanager
def _told_of_writes(world: World) -> Iterator[None]:
    """During the block, let all stores report each write to the world. Stores in memory also report their state before it."""
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
