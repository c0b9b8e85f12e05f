"""The checker accepts random correct histories. If a test then changes one read, as a bug could, the checker finds the change."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.history.checker import check
from conformance.history.format import Commit, Event, Header, Plan, Poll, Read, Registration, Row, Told, Written

T = "topic://p/d/t"
SEGMENTS = ("segment://p/d/t/0000-7fff-0", "segment://p/d/t/8000-ffff-1")


class World:
    """A random correct history. Its transactions run one after the other, and some abort. It has batch reads and a stream."""

    def __init__(self, seed: int, *, store: bool) -> None:
        self.rng, self.store = random.Random(seed), store
        self.events: list[Event] = []
        self.log: list[tuple[int, tuple[Row, ...]]] = []
        self.number = self.offset = self.batch = self.calls = 0
        version = 0
        for _ in range(self.rng.randrange(3, 9)):
            version += self.write(version)
            for step in self.rng.sample((self.read, self.poll), self.rng.randrange(3)):
                step()
        if not self.log:
            self.write(version, fails=False)
        self.poll()
        self.read()
        self.read(final=True)

    def now(self) -> int:
        return len(self.events)

    def write(self, version: int, *, fails: bool | None = None) -> bool:
        self.number += self.rng.randrange(1, 3)
        self.calls += 1
        number, txn, call = self.number, f"0_{self.number}", f"c{self.calls}"
        fails = self.rng.random() < 0.25 if fails is None else fails
        count = self.rng.randrange(2, 6)
        name = f"{version}-{self.calls}" if self.store else f"{version}"
        rows = tuple(Row(f"{name}-{i}", SEGMENTS[i % 2], (number, 0, i // 2), f"k{i % 2}", txn) for i in range(count))
        written = tuple(Written(r.id, r.key, r.segment) for r in rows)
        self.events.append(Commit(self.now(), call, "w", "a", T, version, written, "q", call, True))
        if self.store:
            self.events.append(Header(self.now(), txn, "OPEN", "a", T, version, call, None, 1_000))
            self.events.append(Registration(self.now(), number, txn, None, written))
            state = "ABORTED" if fails else "COMMITTED"
            self.events.append(Header(self.now(), txn, state, "a", T, version, call, None if fails else number))
        if fails:
            self.events.append(Told(self.now(), call, "failed" if self.store else "unknown", error="Fenced"))
            return False
        self.events.append(Told(self.now(), call, "committed", txn, number))
        self.log.append((number, rows))
        return True

    def rows(self, start: int, end: int) -> tuple[Row, ...]:
        found = [row for number, rows in self.log if start < number <= end for row in rows]
        return tuple(sorted(found, key=lambda r: (r.segment, r.position)))

    def read(self, *, final: bool = False) -> None:
        known = self.store
        start, end, cut = (0, self.number, self.number) if known else (None, None, None)
        rows = self.rows(0, self.number)
        self.events.append(Read(self.now(), self.now(), "r", (T,), rows, start, end, cut, final=final))

    def poll(self) -> None:
        start, end = self.offset, max((n for n, _ in self.log), default=self.offset)
        self.events.append(Plan(self.now(), self.now(), "s", (T,), start, end, self.number))
        if end > start:
            for _ in range(self.rng.randrange(1, 3)):  # the second poll is a replay of the same batch
                self.events.append(Poll(self.now(), self.now(), "s", self.batch, (T,), self.rows(start, end), start, end))
            self.batch, self.offset = self.batch + 1, end


Change = Callable[[tuple[Row, ...], random.Random], tuple[Row, ...]]


def drops(rows: tuple[Row, ...], rng: random.Random) -> tuple[Row, ...]:
    at = rng.randrange(len(rows))
    return rows[:at] + rows[at + 1 :]


def doubles(rows: tuple[Row, ...], rng: random.Random) -> tuple[Row, ...]:
    at = rng.randrange(len(rows))
    return rows[: at + 1] + rows[at:]


def swaps(rows: tuple[Row, ...], rng: random.Random) -> tuple[Row, ...]:
    """Swap two rows of one segment. If no segment has two rows, change the position of the first row."""
    pairs = [(i, j) for i in range(len(rows)) for j in range(i) if rows[i].segment == rows[j].segment]
    if not pairs:
        return (rows[0]._replace(position=(rows[0].position[0], 9, 9)), *rows[1:])
    i, j = rng.choice(pairs)
    changed = list(rows)
    changed[i], changed[j] = rows[j], rows[i]
    return tuple(changed)


def adds_foreign(rows: tuple[Row, ...], rng: random.Random) -> tuple[Row, ...]:
    """Add a row of a transaction that never committed."""
    return (*rows, Row("foreign", rows[0].segment, (rows[-1].position[0], 7, 7), None, "0_666"))


def drops_transaction(rows: tuple[Row, ...], rng: random.Random) -> tuple[Row, ...]:
    number = rng.choice(rows).position[0]
    return tuple(r for r in rows if r.position[0] != number)


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.booleans())
def test_right_histories_pass(seed: int, store: bool) -> None:
    assert list(map(str, check(World(seed, store=store).events))) == []


@pytest.mark.parametrize("change", [drops, doubles, swaps, adds_foreign, drops_transaction], ids=lambda c: c.__name__)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), store=st.booleans(), which=st.integers(0, 10_000))
def test_one_change_is_found(change: Change, seed: int, store: bool, which: int) -> None:
    events = World(seed, store=store).events
    reads = [i for i, e in enumerate(events) if isinstance(e, (Read, Poll)) and e.rows]
    at = reads[which % len(reads)]
    event = events[at]
    assert isinstance(event, (Read, Poll))
    events[at] = event._replace(rows=change(event.rows, random.Random(which)))
    assert check(events)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 10_000))
def test_a_row_of_an_aborted_transaction_is_found(seed: int, which: int) -> None:
    events = World(seed, store=True).events
    aborted = {e.txn for e in events if isinstance(e, Header) and e.state == "ABORTED"}
    late = [e for e in events if isinstance(e, Registration) and e.txn in aborted]
    final = events[-1]
    assert isinstance(final, Read)
    for registration in late:
        assert registration.rows[0].segment is not None
        added = Row(registration.rows[0].id, registration.rows[0].segment, (registration.number, 0, 0))
        found = check([*events[:-1], final._replace(rows=(*final.rows, added), ordered=False)])
        assert "aborted read" in {f.anomaly for f in found}
