"""Our classes read records that a real Pulsar 5.0.0-M1 broker wrote (tests/pulsar/records), and write them byte for byte."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from metadata.records import paths
from metadata.records.names import TopicName
from metadata.records.pulsar_layout import with_pulsar_fields
from metadata.records.records import (
    AbortedTxn,
    Event,
    Header,
    Layout,
    Op,
    OpKind,
    Range,
    SegmentInfo,
    SegmentState,
    TcSequence,
    Watermark,
)
from tests.pulsar.dumps import COUNTER, FOLDER, captured, class_of, is_foreign

DUMPS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_every_record_is_written_again_byte_for_byte(dump: Path) -> None:
    checked: Counter[str] = Counter()
    unknown = []
    for path, value in captured(dump):
        kind = class_of(path)
        if kind is None:
            unknown += [] if is_foreign(path, value) else [path]
            continue
        assert kind.from_bytes(value).to_bytes() == value, path
        checked[kind.__name__] += 1
    assert unknown == []
    assert checked == {
        "transactions": {"Header": 1, "Op": 6, "Event": 6, "AbortedTxn": 2, "Watermark": 2, "TcSequence": 1, "Layout": 1},
        "acknowledgements": {"Op": 11, "Layout": 1},
        "split": {"Layout": 1},
    }.get(dump.stem)


def records(stem: str) -> dict[str, bytes]:
    return dict(captured(FOLDER / f"{stem}.txt"))


def test_the_keys_are_those_that_this_project_would_use() -> None:
    segment = "segment://public/default/t1/0000-7fff-0"
    keys = {
        paths.header("1_2"): Header,
        paths.ops("1_2").key(6): Op,
        paths.segment_events(segment).key(3): Event,
        paths.watermark(segment): Watermark,
        paths.aborted(segment, "1_1"): AbortedTxn,
        paths.tc_sequence(1): TcSequence,
        paths.topic(TopicName("public", "default", "t1")): Layout,
    }
    found = records("transactions")
    assert {key.path for key in keys} <= set(found)
    assert [class_of(key.path) for key in keys] == [*keys.values()]


@pytest.mark.parametrize("stem", ["transactions", "acknowledgements"])
def test_a_counter_has_the_last_number_of_its_sequence(stem: str) -> None:
    found = records(stem)
    counters = {path.removesuffix(COUNTER): int.from_bytes(value, "big") for path, value in found.items() if path.endswith(COUNTER)}
    numbered = [path for path in found if class_of(path) in (Op, Event)]
    assert numbered
    assert [path for path in numbered if paths.sequence_number(path) > counters[path[:-21]]] == []
    last = {path[:-21]: paths.sequence_number(path) for path in sorted(numbered)}
    assert last == {prefix: counters[prefix] for prefix in last}


def test_the_fields_of_acknowledgements() -> None:
    found = [Op.from_bytes(value) for path, value in records("acknowledgements").items() if class_of(path) is Op]
    acks = [(op.subscription, op.ledger_id, op.entry_id, op.cumulative) for op in found if op.kind is OpKind.ACK]
    assert acks == [("qa", 21, 0, None), ("qa", 21, 1, None), ("qa", 20, 0, None), ("st", 20, 3, True), ("st", 21, 1, True)]


LAYOUTS = [("transactions", "t1"), ("acknowledgements", "t4"), ("split", "t4")]


@pytest.mark.parametrize(("stem", "topic"), LAYOUTS)
def test_a_layout_made_from_its_fields_has_pulsars_bytes(stem: str, topic: str) -> None:
    value = records(stem)[f"/topics/public/default/{topic}"]
    read = Layout.from_bytes(value)
    made = Layout(
        epoch=read.epoch,
        next_segment_id=read.next_segment_id,
        segments={
            number: SegmentInfo(
                segment_id=one.segment_id,
                hash_range=Range(start=one.range.start, end=one.range.end),
                state=one.state,
                parent_ids=one.parent_ids,
                child_ids=one.child_ids,
                created_at_epoch=one.created_at_epoch,
                sealed_at_epoch=one.sealed_at_epoch,
                created_at_ms=one.created_at_ms,
                sealed_at_ms=one.sealed_at_ms,
            )
            for number, one in read.segments.items()
        },
    )
    assert b'"sealed"' not in made.to_bytes(), "our own layouts stay as they are"
    assert with_pulsar_fields(made).to_bytes() == value
    assert with_pulsar_fields(read).to_bytes() == value


def test_the_five_fields_follow_the_state_of_a_segment_that_is_changed() -> None:
    """A split changes a layout. The same changes in our class give the bytes that the broker wrote after the split."""
    before = Layout.from_bytes(records("acknowledgements")["/topics/public/default/t4"])
    after = Layout.from_bytes(records("split")["/topics/public/default/t4"])
    parent = before.segments["0"].model_copy(
        update={
            "state": SegmentState.SEALED,
            "child_ids": (2, 3),
            "sealed_at_epoch": 1,
            "sealed_at_ms": after.segments["0"].sealed_at_ms,
        }
    )
    children = {
        str(number): SegmentInfo(
            segment_id=number,
            hash_range=Range(start=start, end=end),
            state=SegmentState.ACTIVE,
            parent_ids=(0,),
            created_at_epoch=1,
            created_at_ms=after.segments["2"].created_at_ms,
        )
        for number, start, end in [(2, 0, 16383), (3, 16384, 32767)]
    }
    changed = before.model_copy(
        update={"epoch": 1, "next_segment_id": 4, "segments": {"0": parent, "1": before.segments["1"], **children}}
    )
    assert with_pulsar_fields(changed).to_bytes() == after.to_bytes()
    assert b'"sealed":true,"active":false,"root":true,"leaf":false' in with_pulsar_fields(changed).to_bytes()


def test_a_migrated_segment_is_legacy() -> None:
    """Pulsar writes the five fields (sealed, active, root, leaf, legacy) after the name of the old topic."""
    info = SegmentInfo(
        segment_id=0,
        hash_range=Range(start=0, end=65535),
        state=SegmentState.SEALED,
        created_at_epoch=0,
        sealed_at_epoch=0,
        created_at_ms=5,
        sealed_at_ms=6,
        legacy_topic_name="persistent://public/default/old",
    )
    (made,) = with_pulsar_fields(Layout(epoch=0, next_segment_id=1, segments={"0": info})).segments.values()
    assert (
        made.to_bytes()
        .decode()
        .endswith(
            '"sealedAtMs":6,"legacyTopicName":"persistent://public/default/old",'
            '"sealed":true,"active":false,"root":true,"leaf":true,"legacy":true}'
        )
    )
