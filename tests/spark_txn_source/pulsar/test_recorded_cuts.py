"""Tests of the cut of a segment by the brokers' metadata records. No broker runs: stand-ins give the records and the entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from pulsar_protocol.cut import Cut, Segment
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.layout import Segment as LayoutSegment
from spark_txn_source.pulsar.watermarks import BrokerRecords, RecordedCuts, Watermark, proven

NAME = "segment://public/default/t/0000-ffff-0"
FLOOR, MARK, SHOWN, LAST = (Position(3, entry) for entry in (1, 5, 7, 9))


@dataclass
class Records(BrokerRecords):
    """The records of one segment. `mark`: its watermark. `ops`: for each of its op records, the number that ZooKeeper gave to the
    creation of the record. `later`: these numbers from the second listing on; None if the op records do not change.
    """

    mark: Watermark | None = None
    ops: list[int] = field(default_factory=list)
    later: list[int] | None = None

    def check(self, segments: Iterable[LayoutSegment]) -> None:
        assert [one.name for one in segments] == [NAME]

    def watermarks(self, segments: Sequence[str]) -> dict[str, Watermark]:
        return {} if self.mark is None else {NAME: self.mark}

    def first_ops(self) -> dict[str, int]:
        found, self.ops = self.ops, self.ops if self.later is None else self.later
        return {NAME: min(found)} if found else {}


class Entries(Segment):
    """A segment in which probes find the cut SHOWN. `end`: the last entry. No entry is one of an aborted transaction."""

    def __init__(self, end: Position) -> None:
        self.end = end

    def last(self) -> Position:
        return self.end

    def last_read(self, decided: Position, floor: Position = EARLIEST) -> Position:
        return max(decided, floor)

    def cut(self, floor: Position = EARLIEST, *, sealed: bool = False) -> Cut:
        return Cut(max(floor, SHOWN), self.end, False, sealed)


def cut(records: Records, end: Position = LAST, floor: Position = FLOOR, times: int = 1) -> Cut:
    recorded, segment = RecordedCuts(records), LayoutSegment(0, NAME, 0, 0xFFFF, True, (), ())
    for _ in range(times):
        found = recorded.cuts([segment], {NAME: floor}, lambda _: Entries(end))
    return found[NAME]


@pytest.mark.parametrize(("first_op", "expected"), [(None, True), (41, True), (39, False)])
def test_a_watermark_is_proven_by_the_age_of_op_records(first_op: int | None, expected: bool) -> None:
    assert proven(Watermark(MARK, 40), first_op) is expected


def test_a_proven_watermark_is_the_cut_while_a_transaction_is_open() -> None:
    assert cut(Records(Watermark(MARK, 40), [41])) == Cut(MARK, MARK, False, False)


def test_a_watermark_at_the_end_is_the_cut() -> None:
    assert cut(Records(Watermark(LAST, 40))) == Cut(LAST, LAST, True, False)


def test_a_watermark_below_an_earlier_cut_does_not_lower_it() -> None:
    assert cut(Records(Watermark(MARK, 40), [41]), floor=SHOWN) == Cut(SHOWN, SHOWN, False, False)


def test_an_older_op_record_leaves_the_cut_at_the_floor() -> None:
    assert cut(Records(Watermark(LAST, 40), [39, 41])).position == FLOOR


def test_a_watermark_stays_proven_and_a_new_one_must_be_proven_again() -> None:
    records = Records(Watermark(MARK, 40), [], later=[39])
    assert cut(records, times=2).position == MARK
    recorded, segment = RecordedCuts(records), LayoutSegment(0, NAME, 0, 0xFFFF, True, (), ())
    records.ops, records.later = [], [39]
    assert recorded.cuts([segment], {}, lambda _: Entries(MARK))[NAME].position == MARK
    records.mark = Watermark(LAST, 50)
    assert recorded.cuts([segment], {}, lambda _: Entries(LAST))[NAME].position == EARLIEST


def test_probes_find_the_cut_if_the_watermark_lags_and_no_transaction_is_open() -> None:
    assert cut(Records(Watermark(MARK, 40))).position == SHOWN


def test_probes_find_the_cut_without_a_watermark_and_without_op_records() -> None:
    assert cut(Records()).position == SHOWN


@pytest.mark.parametrize(("ops", "later"), [([39], None), ([], [39])])
def test_op_records_without_a_watermark_leave_the_cut_at_the_floor(ops: list[int], later: list[int] | None) -> None:
    """The op record exists before the probes, or appears during the probes."""
    assert cut(Records(None, ops, later)) == Cut(FLOOR, FLOOR, False, False)
