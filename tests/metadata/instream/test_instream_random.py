"""Random work on two persistent topics. Writers, aborting writers, readers and sweepers interrupt each other at any store call. A
call may fail in any way or take effect late. Afterwards all invariants hold.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.common.errors import TransactionUnfinished, TxnSegmentError
from metadata.instream.client import InStream
from metadata.records.names import PersistentName
from metadata.records.row_ranges import minus, parse_all
from metadata.rules.acks import Ack, done
from tests.support.bench import PERSISTENT, Bench, label

T, U = PERSISTENT

S = (str(T), "s")
FATES = [fate for fate in Fate if fate is not Fate.GO]
SEEDS = 120


@dataclass
class Life:
    """A random run. `shown`: for each topic, the longest result of a read so far, as rows with their positions."""

    random: random.Random
    faults: float
    nesting: int = 0
    version: int = 0
    committed: dict[str, bool] = field(default_factory=dict)
    """The label of each write, and whether its commit returned success."""
    refused: set[str] = field(default_factory=set)
    shown: dict[PersistentName, list[tuple[int, str]]] = field(default_factory=lambda: {T: [], U: []})
    acked: dict[str, bool] = field(default_factory=dict)
    plain: dict[str, bool] = field(default_factory=dict)
    delayed: list[Callable[[], None]] = field(default_factory=list)
    bench: Bench = field(init=False)

    def __post_init__(self) -> None:
        self.bench = Bench(topics=PERSISTENT)
        self.bench.instream().coordinator.acks.create(*S)
        self.kept = [self.process() for _ in range(3)]

    def process(self) -> InStream:
        return self.bench.instream(self.gate, self.delayed.append)

    def gate(self, kind: str, what: str) -> Fate:
        if self.faults < 0:
            return Fate.GO
        self.bench.clock.now += self.random.choice((0, 0, 1, 5))
        if self.nesting < 3 and self.random.random() < 0.04:
            self.step()
        if self.delayed and self.random.random() < 0.2:
            self.delayed.pop(self.random.randrange(len(self.delayed)))()
        return self.random.choice(FATES) if self.random.random() < self.faults else Fate.GO

    def step(self) -> None:
        self.nesting += 1
        try:
            self.random.choice(self.WHAT)(self)
        finally:
            self.nesting -= 1

    def by(self) -> InStream:
        """Return a process that is not in the middle of another call: one that has run before, or a new process."""
        return self.kept[self.nesting - 1] if self.nesting <= len(self.kept) and self.random.random() < 0.6 else self.process()

    def commit(self) -> None:
        self.version += self.random.choice((0, 1, 1))
        app = self.random.choice(("a", "b"))
        work = self.bench.work(self.version, app=app, topics=self.random.choice(((T, U), (T,), (U,), ())))
        name = f"{app}.{self.version}"
        if self.random.random() < 0.3:
            work = dataclasses.replace(work, acks=[Ack(*S, parse_all([str(self.random.randrange(1, 30))]))])
        try:
            told = self.by().coordinator.commit(work)
            if work.parts and not told.skipped:
                assert not self.committed.get(name), f"{name} committed twice"
                self.committed[name] = True
        except TransactionUnfinished as error:
            raise AssertionError(f"nothing is sealed here: {error}") from error
        except (Crashed, TxnSegmentError):
            return

    def abort(self) -> None:
        """Make a transaction of several appends that never commits. In some runs another process aborts the transaction, and its
        owner appends once more. In other runs the transaction stays open until its deadline, and some of these owners also append
        data under the id of another transaction.
        """
        name = f"no.{self.bench.unique()}"
        self.refused.add(name)
        owner = self.by()
        try:
            txn = owner.coordinator.begin(topics=[T, U], timeout_ms=self.random.choice((1, 500)))
            for topic in self.random.sample([T, U], 2):
                owner.coordinator.append(txn, {topic: [self.bench.part(name)]})
            if self.random.random() < 0.5:
                self.process().coordinator.end(txn, commit=False)
                owner.coordinator.append(txn, {T: [self.bench.part(name)]})
            elif self.random.random() < 0.5:
                owner.coordinator.append(f"1000000_{self.random.randrange(1, 60)}", {T: [self.bench.part("stray")]})
        except (Crashed, TxnSegmentError):
            return

    def send(self) -> None:
        name = f"plain.{self.bench.unique()}"
        self.plain[name] = False
        try:
            self.by().coordinator.append(None, {self.random.choice([T, U]): [self.bench.part(name)]})
            self.plain[name] = True
        except (Crashed, TxnSegmentError):
            return

    def ack(self) -> None:
        rows = str(self.random.randrange(1, 30))
        try:
            self.by().coordinator.acks.acknowledge([Ack(*S, parse_all([rows]))])
            self.acked[rows] = True
        except (Crashed, TxnSegmentError):
            return

    def read(self) -> None:
        name = self.random.choice([T, U])
        try:
            self.look(name, self.by())
        except (Crashed, TxnSegmentError):
            return

    def look(self, name: PersistentName, party: InStream) -> None:
        reading = party.buffer.read(name)
        seen = [(found.id, label(part)) for found in reading.ledgers() for part in found.parts]
        before = self.shown[name]
        short, long = sorted((before, seen), key=len)
        assert long[: len(short)] == short, f"{name}: {before} and then {seen}"
        self.shown[name] = long

    def sweep(self) -> None:
        try:
            self.by().sweeper.sweep()
        except (Crashed, TxnSegmentError):
            return

    def snapshot(self) -> None:
        try:
            self.by().buffer.snapshot(self.random.choice([T, U]))
        except (Crashed, TxnSegmentError):
            return

    def compact(self) -> None:
        party = self.by()
        try:
            party.coordinator.log.compact()
            party.coordinator.acks.compact(S)
        except (Crashed, TxnSegmentError):
            return

    def leap(self) -> None:
        self.bench.clock.now += self.random.choice((300, 2_000, 5_000))

    WHAT = (commit, commit, commit, abort, abort, send, ack, read, read, read, sweep, snapshot, compact, leap)

    def end(self) -> None:
        self.faults = -1.0
        for late in self.delayed:
            late()
        bench = self.bench
        bench.sweep_everything()  # the checker rejects messages of unknown transactions, and a sweep aborts them
        for name in (T, U):
            self.look(name, bench.instream())
            for party in self.kept:
                self.look(name, party)
        rows = {name: [row for _, row in self.shown[name]] for name in (T, U)}
        for found in rows.values():
            assert len(found) == len(set(found)), f"twice: {found}"
            assert not self.refused & set(found)
        for name, told in self.committed.items():  # type: ignore[assignment]
            assert not told or any(name in found for found in rows.values()), name
        assert all(any(name in found for found in rows.values()) for name, told in self.plain.items() if told)
        cursor = bench.instream().coordinator.acks.read([S])[S]
        assert not cursor.claims
        assert all(not minus(parse_all([row]), done(cursor)) for row in self.acked)


@pytest.mark.parametrize("faults", [0.0, 0.02, 0.08])
def test_random_operations_match_the_model(faults: float) -> None:
    for seed in range(SEEDS // 3):
        life = Life(random.Random(f"{seed} {faults}"), faults)
        try:
            for _ in range(25):
                life.step()
            life.end()
        except AssertionError as error:
            error.add_note(f"seed {seed}, faults {faults}")
            raise
