"""A small cluster in memory with persistent topics, whose every store call can be made to fail or to be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.simulator.clock import SimulatedClock
from conformance.simulator.faults import Fate, Gate, GatedStore, always
from conformance.simulator.scheduler import SETTINGS
from conformance.simulator.storage import Disk, GatedStorage
from ledgers.model import Part
from metadata.cluster.cluster import Cluster
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.coordinator import InStreamCoordinator
from metadata.instream.sealing import Sealing
from metadata.instream.sweeping import InStreamSweeper
from metadata.instream.topics import PersistentTopics
from metadata.records.cluster_records import Lost, Settings
from metadata.records.names import PersistentName
from metadata.rules.transitions import Claim
from metadata.store.memory import MemoryState
from metadata.write.write_set import WriteSet

T, U = PersistentName("public", "default", "t"), PersistentName("public", "default", "u")


@dataclass
class Party:
    """One process on one session."""

    cluster: Cluster
    buffer: InStreamBuffer
    coordinator: InStreamCoordinator
    topics: PersistentTopics
    sweeper: InStreamSweeper
    sealing: Sealing


class Bench:
    """A store and a disk that several parties share."""

    def __init__(self, settings: Settings = SETTINGS, topics: Sequence[PersistentName] = (T, U)) -> None:
        self.settings = settings
        self.state, self.clock = MemoryState(), SimulatedClock()
        self.disk = Disk(self.clock)
        self._names = 0
        self.restored: tuple[Lost, ...] = ()
        for name in topics:
            self.party().topics.create(name)

    def unique(self) -> str:
        self._names += 1
        return f"u{self._names:04d}"

    def party(self, gate: Gate = always, late: Callable[[Callable[[], None]], None] | None = None) -> Party:
        """A process. `late`: who keeps requests that arrive late."""
        store = GatedStore(self.state, self.clock, gate, late=late)
        storage = GatedStorage(self.disk, gate)
        cluster = Cluster("memory://t", store, storage, self.settings, self.clock, self.unique, owner="o", restored=self.restored)
        buffer = InStreamBuffer(cluster)
        coordinator = InStreamCoordinator(cluster, buffer)
        topics = PersistentTopics(cluster)
        sweeper = InStreamSweeper(cluster, buffer, coordinator)
        return Party(cluster, buffer, coordinator, topics, sweeper, Sealing(cluster, buffer, topics))

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

    def kept(self, folder: str) -> list[str]:
        return sorted(key.path for key in self.state.records if key.path.startswith(folder))

    def old(self) -> None:
        """Time passes beyond the retention of what is final, and the grace period of what was trimmed."""
        self.clock.now += max(self.settings.header_retention_ms, self.settings.grace_period_ms) + 1

    def finish(self) -> None:
        """Sweep everything; then nothing is undecided, and little is left of what has ended."""
        self.late()
        report = self.party().sweeper.sweep()
        assert not report.stalled
        assert not report.failed
        for name in (t.name for t in self.party().topics.list()):
            reading = self.party().buffer.read(name)
            assert not reading.ongoing
            assert reading.cut == reading.end
        assert not self.party().coordinator.log.live()
        before = {name: self.read(name) for name in (T, U)}
        self.old()
        for _ in range(2):
            self.party().sweeper.sweep()
        assert {name: self.read(name) for name in (T, U)} == before
        assert not self.kept("/persistent/logs/persistent%3A%2F%2Fpulsar")

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


def each(run: Callable[[int], At]) -> int:
    """Run for k = 0, 1, 2, .. until the gate is never reached; how many steps there are."""
    for k in range(2_000):
        if not run(k).hit:
            return k
    raise AssertionError("it never ends")
