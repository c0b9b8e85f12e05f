"""Classes of Pulsar's brokers read records and write them again. The bytes stay the same. No broker runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.pulsar_jars import VERSION
from conformance.pulsar_java import rewritten
from metadata.records.pulsar_layout import with_pulsar_fields
from metadata.records.records import (
    AbortedTxn,
    Event,
    Header,
    Layout,
    Nanos,
    Op,
    OpKind,
    Range,
    SegmentInfo,
    SegmentState,
    State,
    TcSequence,
    Watermark,
)
from tests.pulsar.dumps import FOLDER, captured, class_of

pytestmark = pytest.mark.pulsar

VERSIONS = [VERSION, "5.0.1"]
"""The versions of the broker. For 5.0.1 Maven Central has only the jar of the broker, which lacks the class of layouts."""
BROKER = "org.apache.pulsar.broker.transaction.metadata."
LAYOUT = "org.apache.pulsar.broker.resources.ScalableTopicMetadata"
SEGMENT = "segment://a/b/c/0000-7fff-0"
OUR_RECORDS = [
    ("TxnHeader", Header(state=State.OPEN, timeout=Nanos(60 * 10**9), created_at=Nanos(1717000000123456789))),
    (
        "TxnHeader",
        Header(
            state=State.COMMITTED,
            timeout=Nanos(0),
            created_at=Nanos(1717000000000000000),
            finalized_at=Nanos(1717000001000000001),
            owner="rôle",
        ),
    ),
    ("TxnHeader", Header(state=State.ABORTED, timeout=Nanos(1_500_000_000), created_at=Nanos(1000), finalized_at=Nanos(10**9))),
    ("TxnOp", Op(kind=OpKind.WRITE, segment=SEGMENT, ledger_id=0, entry_id=0)),
    ("TxnOp", Op(kind=OpKind.ACK, segment=SEGMENT, subscription="s", ledger_id=5, entry_id=2, cumulative=True)),
    ("TxnOp", Op(kind=OpKind.ACK, segment=SEGMENT, subscription="s", ledger_id=5, entry_id=2)),
    ("TxnEvent", Event(txn_id="3_17", decision=State.COMMITTED)),
    ("SegmentWatermark", Watermark(ledger_id=5, entry_id=0)),
    ("AbortedTxnRecord", AbortedTxn(max_ledger_id=3, max_entry_id=5)),
    ("TcSequence", TcSequence(next=42)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled Java program."""
    return tmp_path_factory.mktemp("java")


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_this_project_pass_through_the_classes_of_the_broker_byte_for_byte(folder: Path, version: str) -> None:
    """No header here has a time below a microsecond, because Java writes such a time in another form (1E-9 for 0.000000001)."""
    ours = [(f"{BROKER}{name}", record.to_bytes()) for name, record in OUR_RECORDS]
    assert rewritten(folder, ours, version) == [value for _, value in ours]


CLASSES = {
    Header: "TxnHeader",
    Op: "TxnOp",
    Event: "TxnEvent",
    Watermark: "SegmentWatermark",
    AbortedTxn: "AbortedTxnRecord",
    TcSequence: "TcSequence",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_captured_records_pass_through_our_classes_and_those_of_the_broker_byte_for_byte(folder: Path, version: str) -> None:
    read = [(kind, value) for dump in sorted(FOLDER.glob("*.txt")) for path, value in captured(dump) if (kind := class_of(path))]
    theirs = [(f"{BROKER}{CLASSES[kind]}", kind.from_bytes(value).to_bytes()) for kind, value in read if kind in CLASSES]
    assert {kind for kind, _ in read} == {*CLASSES, Layout}
    assert rewritten(folder, theirs, version) == [value for kind, value in read if kind in CLASSES]


@pytest.mark.parametrize("stem", ["transactions", "acknowledgements", "split"])
def test_captured_layouts_pass_through_the_class_of_the_broker(folder: Path, stem: str) -> None:
    layouts = [value for path, value in captured(FOLDER / f"{stem}.txt") if class_of(path) is Layout]
    found = rewritten(folder, [(LAYOUT, with_pulsar_fields(Layout.from_bytes(one)).to_bytes()) for one in layouts])
    assert [unordered(one) for one in found] == [unordered(one) for one in layouts]


def test_a_layout_of_this_project_passes_through_the_class_of_the_broker(folder: Path) -> None:
    old = SegmentInfo(
        segment_id=0,
        hash_range=Range(start=0, end=65535),
        state=SegmentState.SEALED,
        child_ids=(1,),
        created_at_epoch=0,
        sealed_at_epoch=1,
        created_at_ms=5,
        sealed_at_ms=7,
        legacy_topic_name="persistent://a/b/c",
    )
    new = SegmentInfo(
        segment_id=1,
        hash_range=Range(start=0, end=65535),
        state=SegmentState.ACTIVE,
        parent_ids=(0,),
        created_at_epoch=1,
        created_at_ms=7,
    )
    layout = with_pulsar_fields(Layout(epoch=1, next_segment_id=2, segments={"0": old, "1": new}, properties={"a": "b"}))
    (theirs,) = rewritten(folder, [(LAYOUT, layout.to_bytes())])
    assert unordered(theirs) == unordered(layout.to_bytes())


FIVE = ("sealed", "active", "root", "leaf", "legacy")


def unordered(layout: bytes) -> list[object]:
    """Return a layout in a form that keeps the order of all fields except `FIVE`. The order of these five differs between Java
    processes: it is the order in which the JVM lists the methods of the class.
    """
    parsed = json.loads(layout)
    segments = [[[*one.items()][:-5], {name: one[name] for name in FIVE}] for one in parsed["segments"].values()]
    return [[*parsed], parsed, segments]


def test_the_broker_reads_a_layout_without_the_five_fields(folder: Path) -> None:
    """Our own layouts do not have the five fields (`FIVE`). Pulsar's class reads such a layout and computes them."""
    info = SegmentInfo(
        segment_id=0, hash_range=Range(start=0, end=65535), state=SegmentState.ACTIVE, created_at_epoch=0, created_at_ms=5
    )
    layout = Layout(epoch=1, next_segment_id=1, segments={"0": info})
    (theirs,) = rewritten(folder, [(LAYOUT, layout.to_bytes())])
    assert unordered(theirs) == unordered(with_pulsar_fields(layout).to_bytes())
