"""Small rules of the source. Each has its own test, because larger tests of reading miss faults in these rules."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from ledgers.extents import Marks
from ledgers.model import CompactedPart, Part
from ledgers.part_reader import EntryBatch
from metadata.client.passes import delete_orphans
from metadata.common.errors import OffsetOutOfRange
from metadata.read.backlog import Left
from metadata.read.reading import LogSelection
from metadata.read.selection import Pattern, Position, Topics, selection_of
from metadata.records.names import topic_name
from metadata.rules.transitions import Weight
from spark_txn_source.limits import LogWindow, Published, ends_by_publish_time, waits
from spark_txn_source.native_scan import _blocks
from spark_txn_source.offsets import StreamOffset
from spark_txn_source.options import ReadOptions
from spark_txn_source.pieces import runs
from spark_txn_source.planned import Piece
from spark_txn_source.tasks import _wanted
from tests.support.bench import Bench, T

X, Y = "persistent://public/default/x", "persistent://public/default/y"


def test_acknowledged_rows_stay_in_an_offset_while_one_segment_needs_them() -> None:
    offset = StreamOffset(5, ["t"], acked=(("segment://a", ("3:0",)), ("segment://b", ("9:0",))))
    assert offset.after(5, {}).acked == offset.acked
    assert offset.after(9, {}).acked == ()


@pytest.mark.parametrize(("max_rows", "max_bytes", "end"), [(3, None, 4), (None, 30, 4), (5, None, 9), (None, None, 9)])
def test_limits_count_the_last_ledger_of_a_log(max_rows: int | None, max_bytes: int | None, end: int) -> None:
    ledgers = [Published(1, Weight(4, 2, 20)), Published(2, Weight(9, 2, 20))]
    assert ends_by_publish_time({"a": LogWindow(0, 9, iter(ledgers))}, max_rows=max_rows, max_bytes=max_bytes) == {"a": end}


@pytest.mark.parametrize(
    ("rows", "waited", "waiting"),
    [([2, 2], 0.0, True), ([2, 3], 0.0, False), ([9], 0.0, False), ([], 59.9, True), ([2], 60.0, False), ([2], None, False)],
)
def test_a_micro_batch_waits_for_enough_rows_or_for_its_patience(rows: list[int], waited: float | None, waiting: bool) -> None:
    unread = [Weight(number, count, 1) for number, count in enumerate(rows)]
    assert waits(unread, min_rows=5, waited=waited, patience=60.0) is waiting


def test_whole_entries_of_two_parts_are_two_splits() -> None:
    """Entries 0 and 1 are in one part, entries 2 and 3 in another. Although the entry ids are consecutive, no run of entries
    extends over both parts.
    """
    left = [Left(0, 0, 0, 5, 5), Left(0, 1, 0, 5, 5), Left(1, 2, 0, 5, 5), Left(1, 3, 2, 5, 5)]
    assert list(runs(left)) == [(0, 0, 1, 0, None), (1, 2, 2, 0, None), (1, 3, 3, 2, 5)]


@pytest.mark.parametrize(
    ("first_row", "count", "expected"),
    [(0, 10, (4, 6)), (0, 4, None), (3, 4, (4, 3)), (6, 4, (6, 4)), (9, 4, (9, 1)), (10, 4, None)],
)
def test_an_entry_in_several_batches_gives_the_wanted_rows_of_each(
    first_row: int, count: int, expected: tuple[int, int] | None
) -> None:
    """The read wants rows 4 to 9 of the entry. `expected`: the first wanted row of a batch, and the number of its wanted rows."""
    piece = Piece("segment://a", 7, 0, 1, None, Part("p", 20, 1, 0, (20,), 0), 0, 0, row=4, stop=10)
    batch = pa.record_batch({"n": pa.array(range(first_row, first_row + count), pa.int64())})
    found = _wanted(EntryBatch(0, first_row, batch), piece)
    assert (None if found is None else (found.first_row, found.batch.num_rows)) == expected
    if found is not None:
        assert found.batch.column(0).to_pylist()[0] == found.first_row


def test_each_block_of_a_compacted_file_lists_all_of_its_entries() -> None:
    starts = [0, 3, 4, 11]
    numbers = np.array([1, 2, 3, 4], dtype=np.int64)
    marks = Marks(np.array(starts, dtype=np.int64), numbers, numbers, numbers, pa.nulls(4, pa.string()))
    part = CompactedPart("f/c.parquet", 14, 100, 0, (14,), 0, 0, 100, (14,))
    piece = Piece("segment://public/default/t/0000-ffff-0", 1, 0, 1, None, part, 0, 0, marks=marks)
    found = {block: {entry[0] for entry in entries} for _, block, entries in _blocks(piece, 4)}  # type: ignore[attr-defined]
    ends = dict(zip(starts, [*starts[1:], 14], strict=True))
    for row in range(14):
        (start,) = [s for s, e in ends.items() if s <= row < e]
        assert start in found[row // 4], row


def test_a_batch_may_start_at_its_end() -> None:
    """The start and the end are equal for X, so the batch has no rows of X. This happens when a read continues an earlier read and
    no row was added.
    """
    given = {"serviceUrl": "memory://x", "topics": f"{X},{Y}"}
    start, end = json.dumps({X: "3:0", Y: "1:0"}), json.dumps({X: "3:0", Y: "2:0"})
    read = ReadOptions.parse({**given, "startingOffsets": start, "endingOffsets": end}, streaming=False)
    assert Position(3, 0) in [place for _, place in read.end.positions]
    with pytest.raises(OffsetOutOfRange, match="after endingOffsets"):
        ReadOptions.parse({**given, "startingOffsets": end, "endingOffsets": start}, streaming=False)


def test_an_invalid_key_of_a_selection_is_refused() -> None:
    assert selection_of([T]) == Topics((topic_name(T),))
    assert selection_of({"pattern": "a.*"}) == Pattern("a.*")
    for wrong in ([], [T, 3], [None], {"pattern": 3}, {}, T, None):
        assert selection_of(wrong) is None, wrong


def test_a_topic_recreated_after_the_grace_period_keeps_its_deletion_guard() -> None:
    bench = Bench()
    party = bench.party()
    party.coordinator.commit(bench.work(topics=(T,)))
    party.topics.delete(topic_name(T))
    bench.clock.now += bench.settings.grace_period_ms + 1
    delete_orphans(party.cluster)
    party.topics.create(topic_name(T))
    guard = party.topics.get(topic_name(T)).layout.deleted_to_log
    assert guard == 2
    (known,) = party.buffer.read(LogSelection((T,))).forgotten
    assert known == (T, guard)
