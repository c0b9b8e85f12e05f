"""A model of a broker with one control topic, and drivers that run the real committing code on it. One seed gives one schedule.

The model keeps what a broker promises and nothing more: entries of one log are in their order, records of an open transaction hold
back all that follows them, one of two opposite ends of a transaction wins, and a fenced producer cannot write. A schedule kills
drivers, suspends them while a successor runs, loses requests and replies, lets an end arrive long after its caller gave up,
and lets transactions time out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from greenlet import getcurrent, greenlet

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import ConnectionLost, LogDamaged, broker_error
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.committing import Committer
from spark_txn_sink.pulsar.control import Record, Take, TakenOver, decode, encode
from spark_txn_sink.pulsar.work import Control, Work

T = TypeVar("T")
End = Literal["open", "committed", "aborted"]
LEDGER = 1
PATIENCE = 60.0
MOST_RUNS = 200
MOST_STEPS = 10_000
"""A job that was started more than MOST_RUNS times, or took more than MOST_STEPS steps, counts as a job that never ends."""


class Killed(BaseException):
    """The process of a driver is gone. No code of the driver may catch it."""


@dataclass
class World:
    """The broker, the checkpoint of the job and the drivers. `faults`: the probability that one call meets a fault."""

    rng: random.Random
    faults: float
    log: list[tuple[bytes, TxnId | None]] = field(default_factory=list)
    kept_from: int = -1
    epoch: int = 0
    txns: dict[TxnId, End] = field(default_factory=dict)
    rows: dict[TxnId, int] = field(default_factory=dict)
    """For each transaction, the version whose rows it has."""
    late: list[tuple[TxnId, End]] = field(default_factory=list)
    """Ends that are on their way to the coordinator, and whose senders do not wait for them any more."""
    strays_from: int = 0
    """The first opening that `strays` reads. Opening number n is that of the transaction 0_(n + 1)."""
    time: int = 0
    checkpoint: int = 0
    """The next version of the job, as Spark's checkpoint has it."""
    taken_over: int = 0
    skipped: int = 0
    reads: int = 0

    def begin(self, version: int) -> TxnId:
        """Open a transaction and send the rows of a version in it."""
        txn = TxnId(0, len(self.txns) + 1)
        self.txns[txn], self.rows[txn] = "open", version
        return txn

    def write(self, data: bytes, txn: TxnId | None) -> Position:
        self.log.append((data, txn))
        return Position(LEDGER, len(self.log) - 1)

    def end(self, txn: TxnId, outcome: End) -> None:
        """End a transaction, if it is open. Raises TransactionEnded if it has ended in the opposite way."""
        if self.txns[txn] == "open":
            self.txns[txn] = outcome
        elif self.txns[txn] != outcome:
            raise broker_error(21, f"the transaction is {self.txns[txn]}", "end txn")

    def arrive(self) -> None:
        """Let one late end arrive. Its answer reaches nobody."""
        txn, outcome = self.late.pop(self.rng.randrange(len(self.late)))
        if self.txns[txn] == "open":
            self.txns[txn] = outcome

    def time_out(self) -> None:
        """Let the broker abort one open transaction."""
        opened = [txn for txn, state in self.txns.items() if state == "open"]
        if opened:
            self.txns[self.rng.choice(opened)] = "aborted"

    def left_open(self) -> list[TxnId]:
        return [txn for txn, state in self.txns.items() if state == "open"]

    def committed(self) -> Counter[int]:
        """Return how often the rows of each version are committed."""
        return Counter(version for txn, version in self.rows.items() if self.txns[txn] == "committed")


class ModelControl:
    """The `Control` of one driver. Each call is a step of the schedule, and may meet a fault."""

    name = "topic://public/default/__txnsegment_control_model"

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = -1

    def take(self, run: str) -> Position:
        def work() -> Position:
            self.world.epoch += 1
            self.epoch = self.world.epoch
            return self.world.write(encode(Take(run)), None)

        return self._step(work)

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        def work() -> Position:
            self.check_fence()
            if txn is not None:
                switch()  # the broker writes a record of the transaction first, and does not look at the producer again
                if self.world.txns[txn] != "open":
                    raise broker_error(22, "the transaction has ended", "send")
            return self.world.write(encode(record), txn)

        return self._step(work)

    def check_fence(self) -> None:
        if self.epoch != self.world.epoch:
            raise ConnectionLost("The broker closed the connection.")

    def read(self, to: Position | None = None) -> Iterator[tuple[Position, Record]]:
        self._step(lambda: None)
        at = self.world.kept_from + 1
        while at <= (len(self.world.log) - 1 if to is None else to.entry):
            data, txn = self.world.log[at]
            if txn is not None and self.world.txns[txn] == "open":
                return
            if txn is None or self.world.txns[txn] == "committed":
                self.world.reads += 1
                yield Position(LEDGER, at), decode(data)
            at += 1

    def end(self, txn: TxnId, *, commit: bool) -> None:
        outcome: End = "committed" if commit else "aborted"
        if self.world.rng.random() < self.world.faults:
            self.world.late.append((txn, outcome))
            switch()
            raise ConnectionLost("The connection broke.")
        self._step(lambda: self.world.end(txn, outcome))

    def keep_from(self, position: Position) -> None:
        def work() -> None:
            self.world.kept_from = max(self.world.kept_from, position.entry)

        self._step(work)

    def strays(self, opened: Opened) -> list[TxnId]:
        return self._step(lambda: [TxnId(0, one + 1) for one in range(self.world.strays_from, opened.place.entry)])

    def passed(self, opened: Opened) -> None:
        def work() -> None:
            self.world.strays_from = max(self.world.strays_from, opened.place.entry)

        self._step(work)

    def drop(self) -> None:
        self.epoch = -1

    def close(self) -> None:
        self.drop()

    def _step(self, work: Callable[[], T]) -> T:
        switch()
        rng, faults = self.world.rng, self.world.faults
        fault = rng.choice(("kill before", "kill after", "lose request", "lose reply")) if rng.random() < faults else ""
        if fault == "kill before":
            raise Killed
        if fault == "lose request":
            raise ConnectionLost("The connection broke.")
        result = work()
        if fault == "kill after":
            raise Killed
        if fault == "lose reply":
            raise ConnectionLost("The connection broke.")
        return result


def switch() -> None:
    """Give the turn to the scheduler, if there is one."""
    parent = getcurrent().parent
    if parent is not None:
        parent.switch()


MakeControl = Callable[[World], Control]
MakeCommitter = Callable[[Control, Callable[[float], None], Callable[[], float]], Committer]


def committer(control: Control, pause: Callable[[float], None], now: Callable[[], float]) -> Committer:
    return Committer(control, pause=pause, now=now, patience=PATIENCE, at_once=0)


@dataclass
class Driver:
    """A streaming query with the job's checkpoint. When it fails or is killed, it is started again as a new run. It stops for good
    when another driver has taken over.
    """

    world: World
    name: str
    versions: int
    control: MakeControl
    committer: MakeCommitter
    early_offset: bool = False
    """Plant a fault: note a version as committed before its commit."""
    runs: int = 0

    def run(self) -> None:
        while self.world.checkpoint < self.versions:
            self.runs += 1
            if self.runs > MOST_RUNS:
                raise AssertionError(f"the job makes no progress at version {self.world.checkpoint}")
            try:
                self._query(f"{self.name}-{self.runs}")
            except Killed:
                continue
            except TakenOver:
                self.world.taken_over += 1
                return
            except LogDamaged:
                raise
            except TxnSegmentError:
                continue

    def _query(self, run: str) -> None:
        world = self.world

        def pause(seconds: float) -> None:
            switch()

        made = self.committer(self.control(world), pause, lambda: float(world.time))
        version = world.checkpoint
        while version < self.versions:
            txn = world.begin(version)
            switch()
            if self.early_offset:
                world.checkpoint = max(world.checkpoint, version + 1)
            opened = Opened(txn, "log", Position(LEDGER, txn.least - 1))
            work = Work(txn, run, version, "t", {}, 1, "app to t", streaming=True, opened=opened)
            if not made.commit(work):
                world.skipped += 1
            switch()
            world.checkpoint = max(world.checkpoint, version + 1)
            version += 1


def simulate(
    seed: int,
    *,
    control: MakeControl = ModelControl,
    make: MakeCommitter = committer,
    early_offset: bool = False,
    versions: int = 6,
) -> World:
    """Run one schedule to its end, then one driver without faults. Return the world."""
    rng = random.Random(seed)
    world = World(rng, rng.choice((0.0, 0.03, 0.1)))
    names = ["a", "b"] if rng.random() < 0.7 else ["a"]
    waiting = {name: 0 if name == "a" else rng.randrange(60) for name in names}
    running = {name: greenlet(Driver(world, name, versions, control, make, early_offset).run) for name in names}
    while running:
        world.time += 1
        if world.time > MOST_STEPS:
            raise AssertionError("the job does not end")
        if world.time > MOST_STEPS // 4:
            world.faults = 0.0
        if world.late and rng.random() < 0.05:
            world.arrive()
        if rng.random() < 0.01 * bool(world.faults):
            world.time_out()
        ready = [name for name in running if waiting[name] <= world.time]
        if not ready:
            continue
        name = rng.choice(ready)
        if rng.random() < 0.02 and world.faults:
            waiting[name] = world.time + rng.randrange(80)  # suspended, as by SIGSTOP
            continue
        running[name].switch()
        if running[name].dead:
            del running[name]
    world.faults = 0.0
    world.checkpoint = min(world.checkpoint, versions)
    last = greenlet(Driver(world, "last", versions + 1, control, make).run)
    while not last.dead:
        world.time += 1
        if world.time > 2 * MOST_STEPS:
            raise AssertionError("the last driver does not end")
        last.switch()
    while world.late:
        world.arrive()
    return world
