"""A small cluster in memory. Tests make any store call fail, or interrupt it with the complete work of another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from conformance.history.format import Application, Commit, Read, Row
from conformance.history.format import Header as Changed
from conformance.simulator.seen.checks import violations
from conformance.simulator.seen.observer import History
from conformance.simulator.store.clock import SimulatedClock
from conformance.simulator.store.faults import Fate, Gate, GatedStore, Wakes, always
from conformance.simulator.store.origins import origin
from conformance.simulator.store.storage import Disk, GatedStorage
from conformance.simulator.world.scheduler import SETTINGS
from ledgers.model import Part
from metadata.client.client import Client, client
from metadata.cluster.cluster import Cluster
from metadata.instream.client import InStream
from metadata.read.reading import LogSelection
from metadata.records.cluster_records import Lost, Settings
from metadata.records.names import PersistentName, topic_name
from metadata.records.records import Header, State
from metadata.rules.transitions import Claim
from metadata.store.memory import MemoryState
from metadata.write.background import inline
from metadata.write.write_set import WriteSet

T, U = "topic://public/default/t", "topic://public/default/u"
PERSISTENT = (PersistentName("public", "default", "t"), PersistentName("public", "default", "u"))


class Bench:
    """A store and a disk that several processes share. `history` records all writes. `topics`: the topics of either model that
    exist at the start; T has two segments. `restored`: the log numbers that restores of the store have lost.
    """

    def __init__(self, settings: Settings = SETTINGS, topics: Sequence[str | PersistentName] = (T, U)) -> None:
        self.settings, self.topics = settings, tuple(topics)
        self.state, self.clock = MemoryState(), SimulatedClock()
        self.disk = Disk(self.clock)
        self.history = History(self.state, self.disk, settings.deadline_allowance_ms)
        self.restored: tuple[Lost, ...] = ()
        self._names = 0
        setup = self.party()
        for topic in topics:
            if isinstance(topic, PersistentName):
                setup.instream.topics.create(topic)
            else:
                setup.topics.create(topic_name(topic), segments=2 if topic == T else 1)

    def unique(self) -> str:
        self._names += 1
        return f"u{self._names:04d}"

    def party(
        self, gate: Gate = always, wakes: Wakes | None = None, late: Callable[[Callable[[], None]], None] | None = None
    ) -> Client:
        """Return the client of a new process. `wakes`: a function that wakes the process's watches; with None no watch wakes.
        `late`: a function that gets each request of this process that the gate delays.
        """
        store = GatedStore(self.state, self.clock, gate, observer=self.history, wakes=wakes, late=late)
        storage = GatedStorage(self.disk, gate)
        cluster = Cluster("memory://t", store, storage, self.settings, self.clock, self.unique, owner="o", restored=self.restored)
        return client(cluster, inline)

    def instream(self, gate: Gate = always, late: Callable[[Callable[[], None]], None] | None = None) -> InStream:
        """Return the marker-based part of a new process's client."""
        return self.party(gate, late=late).instream

    def part(self, label: str) -> Part:
        """Make a part of one row, and its file on the disk. The name of the file is the label and a unique suffix."""
        return self._part(f"public/default/x/persistent/{label}-{self.unique()}.parquet")

    def _part(self, path: str) -> Part:
        self.disk.files[path] = (b"part", self.clock.now_ms())
        return Part(path, 1, 4, 0, (1,), 0)

    def work(
        self,
        version: int = 1,
        *,
        app: str = "app",
        attempt: str | None = None,
        topics: Sequence[str | PersistentName] | None = None,
        by: str | None = "query",
        timeout_ms: int = 1_000,
        random: bool = False,
    ) -> WriteSet:
        """Return a write set with one part for each segment of the topics. The file of each part is on the disk. `topics`: None
        means all topics of the bench; an empty sequence gives an empty batch. In persistent topics the label of each part
        is `app.version`.
        """
        attempt = attempt or self.unique()
        parts: dict[str, list[Part]] = {}
        for topic in self.topics if topics is None else topics:
            if isinstance(topic, PersistentName):
                parts[str(topic)] = [self.part(f"{app}.{version}")]
                continue
            for segment in self.party().topics.get(topic_name(topic)).segments():
                path = f"parts/{app}/{version}/{attempt}/{segment.rpartition('/')[2]}-{topic[-1]}.parquet"
                parts[segment] = [self._part(path)]
        replays = by is not None
        self.history.asked(Commit(self.history.now(), attempt, "bench", app, "", version, (), by, attempt, replays, random))
        claim = Claim(version, by, attempt, replays=replays)
        return WriteSet(app, "", claim, parts, self.clock.now_ms(), timeout_ms, random=random)

    def read(self, party: Client | None = None, topics: tuple[str, ...] = (T, U), kind: str = "batch") -> list[Row]:
        """Return all visible rows of the `topic://` topics. The history records the read."""
        history, began = self.history, self.history.now()
        reading = (party or self.party()).buffer.read(LogSelection(topics))
        rows = [
            Row(origin(self.disk, part), segment.name, (ledger.id, i, 0))
            for segment in reading.segments
            for ledger in segment.ledgers(0, reading.cut)
            for i, part in enumerate(ledger.parts)
        ]
        known = tuple(s.name for s in reading.segments)
        history.saw(Read(history.now(), began, kind, topics, tuple(rows), 0, reading.cut, reading.cut, known))
        return rows

    def labels(self, name: PersistentName = PERSISTENT[0], party: InStream | None = None) -> list[str]:
        """Return the labels of the visible parts of a persistent topic, in order."""
        reading = (party or self.instream()).buffer.read(name)
        return [label(part) for ledger in reading.ledgers() for part in ledger.parts]

    def headers(self) -> dict[str, State]:
        found = {}
        for key, record in self.state.records.items():
            if key.path.startswith("/txn/id/"):
                found[key.partition] = Header.of(record).state
        return found

    def kept(self, folder: str) -> list[str]:
        return sorted(key.path for key in self.state.records if key.path.startswith(folder))

    def late(self) -> None:
        """Advance the clock past every deadline."""
        self.clock.now += self.settings.max_txn_timeout_ms + self.settings.deadline_allowance_ms + 1

    def old(self) -> None:
        """Advance the clock past the retention of headers."""
        self.clock.now += self.settings.header_retention_ms + 1

    def older(self) -> None:
        """Advance the clock past the retention of all final records, and past the grace period of trimmed rows."""
        self.clock.now += max(self.settings.header_retention_ms, self.settings.grace_period_ms) + 1

    def finish(self) -> None:
        """Sweep everything, and check all rules."""
        self.sweep_everything()
        self.check()

    def sweep_everything(self) -> None:
        """Sweep both models. Check that no transaction is undecided and that no record of an ended transaction is left."""
        self.late()
        self.party().sweep()
        assert State.OPEN not in self.headers().values(), "OPEN after a sweep past the deadline"
        persistent = self.instream()
        names = [topic.name for topic in persistent.topics.list()]
        for name in names:
            reading = persistent.buffer.read(name)
            assert not reading.ongoing
            assert reading.cut == reading.end
        assert not persistent.coordinator.log.live()
        before = {name: self.labels(name) for name in names}
        topics = tuple(str(topic.name) for topic in self.party().topics.list())
        self.read(topics=topics, kind="settled")
        self.older()
        sweeping = self.party()
        sweeping.sweep()
        sweeping.sweep()
        assert {name: self.labels(name) for name in names} == before
        assert not self.headers()
        assert not self.kept("/txn/op/")
        assert not self.kept("/txn/segment-state/aborted/")
        assert not self.kept("/persistent/logs/persistent%3A%2F%2Fpulsar")
        assert len(self.kept("/log/")) <= 1
        self.read(topics=topics, kind="forgotten")

    def check(self) -> None:
        found = violations(self.history)
        assert not found, found

    def decided(self, version: int, app: str = "app") -> str | None:
        """Return the transaction that committed the version: `empty` if it has no rows, None if the version is not committed."""
        for event in self.history.events:
            if isinstance(event, Changed) and (event.state, event.app, event.version) == ("COMMITTED", app, version):
                return event.txn
            if isinstance(event, Application) and (event.app, event.last_committed) == (app, version):
                return "empty"
        return None

    def committed(self, version: int, app: str = "app") -> bool:
        return self.decided(version, app) is not None

    def opened(self, attempt: str) -> str | None:
        """Return the last transaction that the attempt opened."""
        opened = [e.txn for e in self.history.events if isinstance(e, Changed) and (e.state, e.attempt) == ("OPEN", attempt)]
        return opened[-1] if opened else None


def label(part: Part) -> str:
    return part.path.rpartition("/")[2].rpartition("-")[0]


@dataclass
class At:
    """A gate that calls `meanwhile` and returns `fate` at the k-th step (from 0). All other steps succeed. `hit`: the name of the
    k-th step; empty if it was not reached. `kinds`: only calls of these kinds count as steps.
    """

    k: int
    fate: Fate = Fate.GO
    meanwhile: Callable[[], object] | None = None
    steps: int = 0
    hit: str = ""
    kinds: tuple[str, ...] = field(default=("write", "get", "keys", "index", "publish", "read", "list", "delete"))

    def __call__(self, kind: str, what: str) -> Fate:
        if kind not in self.kinds:
            return Fate.GO
        step, self.steps = self.steps, self.steps + 1
        if step != self.k:
            return Fate.GO
        self.hit = f"{kind} {what}"
        if self.meanwhile is not None:
            self.meanwhile()
        return self.fate


def each(run: Callable[[int], At]) -> int:
    """Call `run` with k = 0, 1, 2, .. until the gate that it returns has not reached step k. Return how many steps there are."""
    for k in range(10_000):
        if not run(k).hit:
            return k
    raise AssertionError("it never ends")


def each_step(run: Callable[[At], None], make: Callable[[int], At]) -> Iterator[At]:
    """Call `run` with a gate for step k = 0, 1, 2, .. until a gate does not reach its step. Yield each gate that reached it."""
    for k in range(10_000):
        gate = make(k)
        run(gate)
        if not gate.hit:
            return
        yield gate
