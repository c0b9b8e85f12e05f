"""Tests of the search for the cut of a segment, on a model of a segment. The model has entries, and delivers those that a reader
may get.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.probing import Bounds, following


@dataclass(frozen=True)
class Model:
    """A model of a segment. `entries`: the positions of all entries, ascending. `shown`: the positions of the entries that the
    broker delivers, because they are decided and not of an aborted transaction.
    """

    entries: tuple[Position, ...]
    shown: tuple[Position, ...]

    @property
    def last(self) -> Position:
        return self.entries[-1]

    def deliver(self, at: Position) -> Position | None:
        return next((one for one in self.shown if one >= at), None)

    @property
    def cut(self) -> Position:
        return self.shown[-1] if self.shown else EARLIEST


@st.composite
def models(draw: st.DrawFn) -> Model:
    ledgers = sorted(draw(st.sets(st.integers(0, 100_000), min_size=1, max_size=5)))
    sizes = [draw(st.integers(1, 40)) for _ in ledgers]
    entries = tuple(Position(ledger, entry) for ledger, size in zip(ledgers, sizes, strict=True) for entry in range(size))
    decided = draw(st.integers(0, len(entries)))
    aborted = draw(st.sets(st.integers(0, len(entries) - 1)))
    return Model(entries, tuple(one for number, one in enumerate(entries[:decided]) if number not in aborted))


def search(model: Model, floor: Position, number: int, silent: set[int] = frozenset()) -> tuple[Position, int]:  # type: ignore[assignment]
    """Return the position that the search finds, and how many rounds it takes. `number`: how many positions a round probes.
    `silent`: which probes get no answer, counted from 0.
    """
    bounds, rounds, asked = Bounds(floor, following(model.last)), 0, 0
    while not bounds.done:
        places = bounds.places(number)
        assert places[0] == following(bounds.low)
        assert len(places) <= number
        assert list(places) == sorted(set(places))
        answers = {}
        for at in places:
            answers[at] = None if asked in silent else model.deliver(at)
            asked += 1
        bounds = bounds.learned(answers)
        rounds += 1
        assert rounds < 200, "the search does not end"
    return bounds.low, rounds


@given(models(), st.integers(2, 12))
def test_a_search_finds_the_last_entry_that_is_shown(model: Model, number: int) -> None:
    assert search(model, EARLIEST, number)[0] == model.cut


@given(models(), st.integers(2, 12), st.data())
def test_a_search_from_an_earlier_cut_finds_the_same(model: Model, number: int, data: st.DataObject) -> None:
    floor = data.draw(st.sampled_from(model.shown)) if model.shown else EARLIEST
    assert search(model, floor, number)[0] == model.cut


@given(models(), st.integers(2, 12), st.sets(st.integers(0, 30)))
def test_lost_answers_make_the_result_lower_but_never_too_high(model: Model, number: int, silent: set[int]) -> None:
    found, _ = search(model, EARLIEST, number, silent)
    assert found <= model.cut
    assert found == EARLIEST or found in model.shown


@given(models(), st.integers(2, 12), st.integers(0, 60))
def test_entries_that_are_decided_during_the_search_do_no_harm(model: Model, number: int, before: int) -> None:
    """The cut moves up between two rounds. The search then finds an entry between the old and the new cut."""
    old = Model(model.entries, model.shown[:before])
    bounds = Bounds(EARLIEST, following(model.last)).learned({at: old.deliver(at) for at in [EARLIEST, model.last]})
    while not bounds.done:
        bounds = bounds.learned({at: model.deliver(at) for at in bounds.places(number)})
    assert old.cut <= bounds.low <= model.cut
    assert bounds.low == EARLIEST or bounds.low in model.shown


def test_the_rounds_grow_with_the_logarithm_of_the_size() -> None:
    """The segments have a million entries in one ledger, or two ledgers with ids far apart. The cut is before the last entry."""
    for first, last, cut in [
        (Position(5, 0), Position(5, 1_000_000), Position(5, 345_678)),
        (Position(5, 0), Position(900_000, 50_000), Position(5, 49_999)),
        (Position(5, 0), Position(900_000, 50_000), Position(900_000, 20_000)),
    ]:
        bounds, rounds = Bounds(EARLIEST, following(last)), 0
        while not bounds.done:
            bounds = bounds.learned({at: _one_or_two_ledgers(at, first, last, cut) for at in bounds.places(8)})
            rounds += 1
        assert bounds.low == cut
        assert rounds <= 20


def _one_or_two_ledgers(at: Position, first: Position, last: Position, cut: Position) -> Position | None:
    """Return the entry that a broker delivers to a probe at `at`. In a segment of two ledgers, the first one has 50,000 entries."""
    if at <= first:
        return first
    if at.ledger == first.ledger and (first.ledger == last.ledger or at.entry < 50_000):
        return at if at <= cut else None
    found = max(at, Position(last.ledger, 0))
    return found if found <= cut else None


def test_without_new_entries_nothing_is_probed() -> None:
    assert Bounds(Position(3, 4), Position(3, 5)).done
    assert Bounds(Position(3, 4), Position(3, 5)).places(8) == ()
    assert not Bounds(Position(3, 4), Position(4, 0)).done, "the ledger may have had more entries"
