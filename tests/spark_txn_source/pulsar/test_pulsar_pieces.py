"""The pieces of a segment: every entry is in one piece, and the rows do not depend on the pieces. The tests need no broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.chunks import whole
from pulsar_protocol.cut import Segment
from pulsar_protocol.layout import EARLIEST, Position
from spark_txn_source.pulsar.dividing import runs_of
from spark_txn_source.pulsar.pieces import Run, divided, numbers
from tests.support.chunk_logs import Log, logs, reading, texts


class Ledgers:
    """A stand-in for `pulsar_protocol.cut.Segment`. `sizes`: how many entries each ledger has, by ledger id."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes

    def positions(self) -> list[Position]:
        return [Position(ledger, entry) for ledger, size in sorted(self.sizes.items()) for entry in range(size)]

    def before(self, position: Position) -> Position:
        """Return the last position before `position`, as a real broker does. Before the first entry it is the entry -1 of the first
        ledger.
        """
        earlier = [one for one in self.positions() if one < position]
        return earlier[-1] if earlier else Position(min(self.sizes), -1)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Ledgers, Position, Position]:
    """Draw ledgers, of which some may be empty, and a range of positions. The range may start before all ledgers, or at a position
    that has no entry.
    """
    sizes = draw(st.dictionaries(st.integers(3, 12), st.integers(0, 6), min_size=1, max_size=5))
    ledgers = Ledgers(sizes)
    to = draw(st.sampled_from([*ledgers.positions(), *(Position(one, -1) for one in sizes)]))
    starts = [EARLIEST, *(Position(ledger, entry) for ledger in range(1, 13) for entry in range(-1, 8))]
    return ledgers, draw(st.sampled_from([one for one in starts if one <= to])), to


def runs_in(ledgers: Ledgers, after: Position, to: Position) -> list[Run]:
    return runs_of(cast("Segment", ledgers), after, to)


@given(ranges())
def test_the_entries_of_a_range_are_counted_ledger_by_ledger(drawn: tuple[Ledgers, Position, Position]) -> None:
    ledgers, after, to = drawn
    found = [Position(run.ledger, entry) for run in runs_in(*drawn) for entry in range(run.first, run.last + 1)]
    assert found == [one for one in ledgers.positions() if after < one <= to]


@given(ranges(), st.integers(1, 3), st.integers(1, 12))
def test_entries_before_the_counted_ledgers_are_in_the_first_piece(
    drawn: tuple[Ledgers, Position, Position], most: int, number: int
) -> None:
    _, after, to = drawn
    all_runs = runs_in(*drawn)
    counted = runs_of(cast("Segment", drawn[0]), after, to, most)
    assert counted == all_runs[len(all_runs) - len(counted) :]
    assert len(counted) == min(most, len(all_runs))
    pieces = divided(after, to, counted, number)
    assert (pieces[0][0], pieces[-1][1]) == (after, to)
    assert all(begin < end for begin, end in pieces) or after == to
    assert not counted or all(Position(counted[0].ledger, counted[0].first) <= end for _, end in pieces)


@given(ranges(), st.integers(1, 12))
def test_each_entry_is_in_one_piece_and_pieces_are_even(drawn: tuple[Ledgers, Position, Position], number: int) -> None:
    ledgers, after, to = drawn
    pieces = divided(after, to, runs_in(*drawn), number)
    inside = [one for one in ledgers.positions() if after < one <= to]
    assert [place for place, _ in pieces] == [after, *(end for _, end in pieces[:-1])]
    assert pieces[-1][1] == to
    counts = [sum(begin < one <= end for one in inside) for begin, end in pieces]
    assert sum(counts) == len(inside)
    assert len(pieces) == max(1, min(number, len(inside)))
    assert max(counts) - min(counts) <= 1


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50), min_size=1),
    st.one_of(st.none(), st.integers(1, 300)),
    st.one_of(st.none(), st.integers(1, 5000)),
    st.integers(1, 300),
)
def test_the_number_of_pieces_keeps_both_limits(
    entries: dict[str, int], least: int | None, most_bytes: int | None, size: int
) -> None:
    found = numbers(entries, dict.fromkeys(entries, size), least, most_bytes)
    assert found.keys() == entries.keys()
    for segment, count in entries.items():
        assert 1 <= found[segment] <= max(1, count)
        if most_bytes is not None:
            assert -(-count // found[segment]) * size <= max(size, most_bytes)
    assert sum(found.values()) >= min(least or 1, sum(entries.values()))
    if least is None and most_bytes is None:
        assert set(found.values()) == {1}


def test_a_segment_whose_entries_have_no_known_size_is_not_divided_by_size() -> None:
    assert numbers({"a": 100, "b": 100}, {"b": 10}, None, 100) == {"a": 1, "b": 10}


@given(logs(), st.integers(1, 12), st.integers(0, 6))
def test_pieces_have_the_rows_of_the_range(log: Log, number: int, deleted: int) -> None:
    """Retention may have deleted the first entries of the log, so that chunks are missing."""
    kept = log[min(deleted, len(log) - 1) :]
    sizes: dict[int, int] = {}
    for position, _ in log:
        sizes[position.ledger] = position.entry + 1
    to = log[-1][0]
    pieces = divided(EARLIEST, to, runs_in(Ledgers(sizes), EARLIEST, to), number)
    read = reading(kept)

    def rows(after: Position, end: Position) -> Iterator[tuple[Position, str]]:
        yield from texts(whole(read, after, end, fail_on_loss=False))

    assert [row for piece in pieces for row in rows(*piece)] == list(rows(EARLIEST, to))
