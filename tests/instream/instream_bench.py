"""A small cluster in memory with persistent topics, whose every store call can be made to fail or to be interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.simulator.faults import Fate, Gate, GatedStore, always
from conformance.simulator.scheduler import SETTINGS, SimulatedClock
from conformance.simulator.storage import Disk, GatedStorage
from ledgers.model import Part
from metadata.cluster import Cluster
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.coordinator import InStreamCoordinator
from metadata.instream.topics import PersistentTopics
from metadata.names import PersistentName
from metadata.records import Settings
from metadata.store.memory import MemoryState
from metadata.transitions import Claim
from metadata.write_set import WriteSet

T, U = PersistentName("public", "default", "t"), PersistentName("public", "default", "u")


@dataclass
class Party:
    """One process on one session."""

    cluster: Cluster
    buffer: InStreamBuffer
    coordinator: InStreamCoordinator
    topics: PersistentTopics


class Bench:
    """A store and a disk that several parties share."""

    def __init__(self, settings: Settings = SETTINGS, topics: Sequence[PersistentName] = (T, U)) -> None:
        self.settings = settings
        self.state, self.clock = MemoryState(), SimulatedClock()
        self.disk = Disk(self.clock)
        self._names = 0
        for name in topics:
            self.party().topics.create(name)

    def unique(self) -> str:
        self._names += 1
        return f"u{self._names:04d}"

    def party(self, gate: Gate = always) -> Party:
        store = GatedStore(self.state, self.clock, gate)
        cluster = Cluster("memory://t", store, GatedStorage(self.disk, gate), self.settings, self.clock, self.unique, owner="o")
        buffer = InStreamBuffer(cluster)
        return Party(cluster, buffer, InStreamCoordinator(cluster, buffer), PersistentTopics(cluster))

    def part(self, label: str) -> Part:
        """A part of one row, which lies on the disk under its label."""
        path = f"public/default/x/persistent/{label}-{self.unique()}.parquet"
        self.disk.files[path] = (b"part", self.clock.now_ms())
        return Part(path, 1, 4, 0, (1,), 0)

    def work(
        self, version: int = 1, *, app: str = "app", topics: Sequence[PersistentName] = (T, U), by: str | None = "query"
    ) -> WriteSet:
        parts = {str(t): [self.part(f"{app}.{version}")] for t in topics}
        claim = Claim(version, by, self.unique(), replays=by is not None)
        return WriteSet(app, "", claim, parts, self.clock.now_ms(), 1_000)

    def read(self, name: PersistentName = T, party: Party | None = None) -> list[str]:
        """The labels of the visible parts in order."""
        reading = (party or self.party()).buffer.read(name)
        return [label(part) for ledger in reading.ledgers() for part in ledger.parts]

    def late(self) -> None:
        """Time passes beyond every deadline."""
        self.clock.now += self.settings.max_txn_timeout_ms + self.settings.deadline_allowance_ms + 1


def label(part: Part) -> str:
    return part.path.rpartition("/")[2].rpartition("-")[0]


@dataclass
class At:
    """A gate that does something at the k-th step (from 0) and otherwise lets pass. `hit`: whether it came to that."""

    k: int
    fate: Fate = Fate.GO
    meanwhile: object = None
    steps: int = 0
    hit: str = ""
    kinds: tuple[str, ...] = field(default=("write", "get", "keys", "index"))

    def __call__(self, kind: str, what: str) -> Fate:
        if kind not in self.kinds:
            return Fate.GO
        step, self.steps = self.steps, self.steps + 1
        if step != self.k:
            return Fate.GO
        self.hit = f"{kind} {what}"
        if callable(self.meanwhile):
            self.meanwhile()
        return self.fate
