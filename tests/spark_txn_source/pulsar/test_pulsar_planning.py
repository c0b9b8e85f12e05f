"""Tests of the plan of a micro-batch from Pulsar. They need no broker."""

from __future__ import annotations

import json

import pytest

from metadata.common.errors import DataLoss, OffsetOutOfRange, OptionError
from pulsar_protocol.layout import EARLIEST, Layout, Position, Segment
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.planning import FirstEntry, limited, moved, without_gone

TOPIC = "topic://public/default/t"


def segment(number: int, *, active: bool = True, parents: tuple[int, ...] = (), children: tuple[int, ...] = ()) -> Segment:
    return Segment(number, f"segment://public/default/t/{number}", 0, 0xFFFF, active, parents, children)


def layout(*segments: Segment, epoch: int = 3) -> Layout:
    return Layout(TOPIC, epoch, {one.id: one for one in segments})


def test_a_deleted_segment_with_unread_entries_is_data_loss() -> None:
    gone, kept = "segment://public/default/t/0", "segment://public/default/t/1"
    offset = PulsarOffset(TOPIC, 2, {gone: Position(1, 5), kept: Position(2, 0)})
    now = layout(segment(1))
    with pytest.raises(DataLoss, match=r"t/0 was deleted. It was read up to 1:5"):
        without_gone(offset, now, fail_on_data_loss=True)
    assert without_gone(offset, now, fail_on_data_loss=False).segments == {kept: Position(2, 0)}
    read = PulsarOffset(TOPIC, 2, offset.segments, ended=frozenset({gone}))
    assert without_gone(read, now, fail_on_data_loss=True) == PulsarOffset(TOPIC, 3, {kept: Position(2, 0)})


def test_a_topic_that_was_created_again_is_data_loss() -> None:
    with pytest.raises(DataLoss, match="deleted and created again"):
        without_gone(PulsarOffset(TOPIC, 4, {}), layout(segment(0)), fail_on_data_loss=False)


def test_a_topic_that_was_created_again_is_data_loss_if_a_segment_that_was_read_to_its_end_takes_rows() -> None:
    """A consumer and txn.read do not remember the epoch."""
    read = PulsarOffset(TOPIC, 0, {}, ended=frozenset({"segment://public/default/t/0"}))
    sealed = layout(segment(0, active=False, children=(1,)), segment(1, parents=(0,)), epoch=1)
    assert without_gone(read, sealed, fail_on_data_loss=True).ended == read.ended
    with pytest.raises(DataLoss, match=r"t/0 takes rows.*deleted and created again"):
        without_gone(read, layout(segment(0), epoch=0), fail_on_data_loss=False)


def test_limits_give_each_segment_its_share_and_at_least_one_entry() -> None:
    ends = {"a": Position(1, 99), "b": Position(7, 3)}
    firsts = {"a": FirstEntry(Position(1, 10), 100, 1000), "b": FirstEntry(Position(5, 0), 1, 10)}
    assert limited(ends, firsts, 1000, None) == {"a": Position(1, 14), "b": Position(5, 499)}
    assert limited(ends, firsts, 1, None) == {"a": Position(1, 10), "b": Position(5, 0)}
    assert limited(ends, firsts, 1_000_000, 4000) == {"a": Position(1, 11), "b": Position(5, 199)}
    assert limited(ends, firsts, 10**9, None) == {"a": Position(1, 99), "b": Position(5, 5 * 10**8 - 1)}


def test_the_first_batch_records_where_it_began() -> None:
    first = PulsarOffset(TOPIC, 1, {"a": Position(1, 5)}, is_initial=True)
    end = moved(first, {"a": Position(1, 8), "b": Position(2, 0)}, frozenset())
    assert end.began == {"a": Position(1, 5), "b": EARLIEST}
    assert moved(end, {"a": Position(1, 9)}, frozenset()).began is None


def test_the_first_batch_begins_at_its_start_in_segments_without_new_rows() -> None:
    """Segment `a` has no new rows, and the end of the first batch still records where the batch starts in `a`. Without this record
    the first batch of a stream from `latest` would have all earlier rows of `a`.
    """
    first = PulsarOffset(TOPIC, 1, {"a": Position(1, 5), "b": Position(2, 7)}, is_initial=True)
    end = moved(first, {"b": Position(2, 8)}, frozenset())
    assert end.began == {"a": Position(1, 5), "b": Position(2, 7)}


def test_an_offset_is_the_same_after_json() -> None:
    for offset in (
        PulsarOffset(TOPIC, 1, {"a": Position(1, 5), "b": EARLIEST}, is_initial=True),
        PulsarOffset(TOPIC, 1, {"a": Position(1, 5)}, frozenset({"a"}), began={"a": EARLIEST}),
        PulsarOffset(TOPIC, 1, {"a": Position(1, 5)}, sent={"log": Position(9, -1)}),
    ):
        assert PulsarOffset.of_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize("found", [{"log": 41}, {"topic": TOPIC, "epoch": 0, "segments": {"a": "x"}}])
def test_an_offset_of_another_source_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(OffsetOutOfRange, match="not of a Pulsar topic"):
        PulsarOffset.of_json(found)


def test_an_offset_of_another_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="belongs to topic://public/default/t"):
        PulsarOffset(TOPIC, 0, {}).check_topic("topic://public/default/u")
