"""A small cluster in memory whose every store call can be made to fail, or to be interrupted by somebody else's whole work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from conformance.history.format import Application, Commit, Read, Row
from conformance.history.format import Header as Changed
from conformance.simulator.checks import violations
from conformance.simulator.clock import SimulatedClock
from conformance.simulator.faults import Fate, Gate, GatedStore, Wakes, always
from conformance.simulator.observer import History
from conformance.simulator.origins import origin
from conformance.simulator.scheduler import SETTINGS
from conformance.simulator.storage import Disk, GatedStorage
from ledgers.model import Part
from metadata.client.client import Client, client
from metadata.cluster.cluster import Cluster
from metadata.read.reading import Selection
from metadata.records.cluster_records import Settings
from metadata.records.names import topic_name
from metadata.records.records import Header, State
from metadata.rules.transitions import Claim
from metadata.store.memory import MemoryState
from metadata.write.aftermath import inline
from metadata.write.write_set import WriteSet

T, U = "topic://public/default/t", "topic://public/default/u"


class Bench:
    """A store and a disk that several parties share; `history` sees all writes from the outside."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.settings = settings
        self.state, self.clock = MemoryState(), SimulatedClock()
        self.disk = Disk(self.clock)
        self.history = History(self.state, self.disk, settings.deadline_allowance_ms)
        self._names = 0
        setup = self.party()
        setup.topics.create(topic_name(T), segments=2)
        setup.topics.create(topic_name(U))

    def unique(self) -> str:
        self._names += 1
        return f"u{self._names:04d}"

    def party(
        self, gate: Gate = always, wakes: Wakes | None = None, late: Callable[[Callable[[], None]], None] | None = None
    ) -> Client:
        """A process of its own. `wakes`: who wakes its watches; without it nobody does. `late`: who keeps delayed requests."""
        store = GatedStore(self.state, self.clock, gate, observer=self.history, wakes=wakes, late=late)
        cluster = Cluster("memory://t", store, GatedStorage(self.disk, gate), self.settings, self.clock, self.unique, owner="o")
        return client(cluster, inline)

    def work(
        self,
        version: int = 1,
        *,
        app: str = "app",
        attempt: str | None = None,
        topics: tuple[str, ...] = (T, U),
        by: str | None = "query",
        timeout_ms: int = 1_000,
        random: bool = False,
    ) -> WriteSet:
        """A write set of one part for each segment of the topics; no topics: an empty batch. Its parts lie on the disk."""
        attempt = attempt or self.unique()
        parts: dict[str, list[Part]] = {}
        for topic in topics:
            for segment in self.party().topics.get(topic_name(topic)).segments():
                path = f"parts/{app}/{version}/{attempt}/{segment.rpartition('/')[2]}-{topic[-1]}.parquet"
                self.disk.files[path] = (b"part", self.clock.now_ms())
                parts[segment] = [Part(path, 1, 4, 0, (1,), 0)]
        replays = by is not None
        self.history.asked(Commit(self.history.now(), attempt, "bench", app, "", version, (), by, attempt, replays, random))
        claim = Claim(version, by, attempt, replays=replays)
        return WriteSet(app, "", claim, parts, self.clock.now_ms(), timeout_ms, random=random)

    def read(self, party: Client | None = None, topics: tuple[str, ...] = (T, U), kind: str = "batch") -> list[Row]:
        """Everything that is visible now, noted in the history."""
        history, began = self.history, self.history.now()
        reading = (party or self.party()).buffer.read(Selection(topics))
        rows = [
            Row(origin(self.disk, part), segment.name, (ledger.id, i, 0))
            for segment in reading.segments
            for ledger in segment.ledgers(0, reading.cut)
            for i, part in enumerate(ledger.parts)
        ]
        known = tuple(s.name for s in reading.segments)
        history.saw(Read(history.now(), began, kind, topics, tuple(rows), 0, reading.cut, reading.cut, known))
        return rows

    def headers(self) -> dict[str, State]:
        found = {}
        for key, record in self.state.records.items():
            if key.path.startswith("/txn/id/"):
                found[key.partition] = Header.of(record).state
        return found

    def kept(self, folder: str) -> list[str]:
        return sorted(key.path for key in self.state.records if key.path.startswith(folder))

    def late(self) -> None:
        """Time passes beyond every deadline."""
        self.clock.now += self.settings.max_txn_timeout_ms + self.settings.deadline_allowance_ms + 1

    def old(self) -> None:
        """Time passes beyond the retention of headers."""
        self.clock.now += self.settings.header_retention_ms + 1

    def finish(self) -> None:
        """Sweep everything, then all rules must hold and nothing be left."""
        self.late()
        self.party().sweeper.sweep()
        assert State.OPEN not in self.headers().values(), "OPEN after a sweep past the deadline"
        self.read(kind="settled")
        self.old()
        sweeper = self.party().sweeper
        sweeper.sweep()
        sweeper.sweep()
        assert not self.headers()
        assert not self.kept("/txn/op/")
        assert not self.kept("/txn/segment-state/aborted/")
        assert len(self.kept("/log/")) <= 1
        self.read(kind="forgotten")
        self.check()

    def check(self) -> None:
        assert not violations(self.history)

    def decided(self, version: int, app: str = "app") -> str | None:
        """The transaction that committed the version, `empty` if it had no rows, None if nobody committed it."""
        for event in self.history.events:
            if isinstance(event, Changed) and (event.state, event.app, event.version) == ("COMMITTED", app, version):
                return event.txn
            if isinstance(event, Application) and (event.app, event.last_committed) == (app, version):
                return "empty"
        return None

    def committed(self, version: int, app: str = "app") -> bool:
        return self.decided(version, app) is not None

    def opened(self, attempt: str) -> str | None:
        """The last transaction that the attempt opened."""
        opened = [e.txn for e in self.history.events if isinstance(e, Changed) and (e.state, e.attempt) == ("OPEN", attempt)]
        return opened[-1] if opened else None


@dataclass
class At:
    """A gate that does something at the k-th step (from 0) and otherwise lets pass. `hit`: whether it came to that."""

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


def each_step(run: Callable[[At], None], make: Callable[[int], At]) -> Iterator[At]:
    """Run once for each step that the run has: k = 0, 1, 2, .. until the gate is never reached."""
    for k in range(10_000):
        gate = make(k)
        run(gate)
        if not gate.hit:
            return
        yield gate
