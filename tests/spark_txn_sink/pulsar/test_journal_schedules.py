"""The journal of transactions over several topics, on a model of its log: a program commits all rows of its writes or nothing,
however its steps and those of its writes are mixed. No broker runs. One seed gives one schedule.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest
from greenlet import greenlet

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar import journal
from spark_txn_sink.pulsar.attempts import Attempt, Opened
from spark_txn_sink.pulsar.journal import Note, Unfinished, WriteRefused, begin_write, close, end_write
from tests.support.pulsar_control_model import switch

SEEDS = 300
TXN = TxnId(0, 1)
OPENED = Opened(TXN, "segment://public/default/__txnsegment_attempts_x/0000-ffff-0", Position(1, 0))
NO_CLIENT = cast("PulsarClient", None)


@dataclass
class Entry:
    data: bytes

    def messages(self) -> list[Message]:
        return [Message(self.data)]


@dataclass
class World:
    """The log, and what became of the transaction. `sent`: how many rows each write has sent. `committed`: how many rows of each
    write were committed; None: nothing was.
    """

    rng: random.Random
    log: list[bytes] = field(default_factory=lambda: [Attempt(TXN.text, "opening").encoded()])
    sent: Counter[str] = field(default_factory=Counter)
    told: dict[str, int] | None = None
    """What the program believes to commit."""
    committed: Counter[str] | None = None
    refused: int = 0

    def written(self, client: PulsarClient, segment: str, record: bytes) -> Position:
        """Write a record, sometimes twice, as after a lost receipt."""
        switch()
        self.log += [record] * (2 if self.rng.random() < 0.1 else 1)
        place = Position(1, len(self.log) - 1)
        switch()
        return place

    def entries(
        self, client: PulsarClient, segment: str, after: Position, to: Position, *, inclusive: bool
    ) -> Iterator[tuple[Position, Entry]]:
        switch()
        for number in range(after.entry, to.entry + 1):
            yield Position(1, number), Entry(self.log[number])

    def write(self, name: str) -> None:
        """Run one write of Spark, which begins at some time, and may fail after some of its rows."""
        for _ in range(self.rng.randrange(30)):
            switch()
        try:
            begin_write(NO_CLIENT, OPENED, name, f"topic {name}")
        except WriteRefused:
            self.refused += 1
            return
        for _ in range(3):
            switch()
            self.sent[name] += 1
            if self.rng.random() < 0.05:
                return
        switch()
        end_write(NO_CLIENT, OPENED, Note("ended", TXN.text, name, f"topic {name}", rows=self.sent[name]))

    def end(self) -> None:
        """Commit the transaction at some time. The writes may still run, or may not have begun."""
        for _ in range(self.rng.randrange(120)):
            switch()
        try:
            notes = close(NO_CLIENT, OPENED)
        except Unfinished:
            return
        switch()
        self.told = {one.write: one.rows for one in notes}
        self.committed = Counter(self.sent)


def simulate(seed: int, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(random.Random(seed))
    monkeypatch.setattr(journal, "written", world.written)
    monkeypatch.setattr(journal, "entries", world.entries)
    running = [greenlet(world.end), *(greenlet(lambda name=name: world.write(name)) for name in "abc")]
    while running:
        one = world.rng.choice(running)
        one.switch()
        running = [other for other in running if not other.dead]
    return world


def wrong(world: World) -> str:
    if world.committed is None:
        return ""
    if world.committed != world.told:
        return f"the program commits {world.told}, and the transaction has {world.committed}"
    if world.sent != world.committed:
        return f"rows were sent after the commit of {world.committed}: {world.sent}"
    return ""


def test_a_program_commits_all_rows_of_its_writes_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {seed: text for seed in range(SEEDS) if (text := wrong(simulate(seed, monkeypatch)))} == {}


def test_many_schedules_have_commits_refused_writes_and_unfinished_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the other test would say nothing."""
    worlds = [simulate(seed, monkeypatch) for seed in range(SEEDS)]
    assert sum(world.committed is not None and sum(world.committed.values()) > 3 for world in worlds) > 20
    assert sum(world.refused > 0 for world in worlds) > 20
    assert sum(world.committed is None for world in worlds) > 20
