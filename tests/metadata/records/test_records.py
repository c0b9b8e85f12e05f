"""Tests of the exact bytes of the records (protocol.md section 4), and of round trips of every codec. Records that Apache Pulsar
5.0 also has are encoded as in Pulsar.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers.avro.modes import Compatibility
from ledgers.model import Part
from metadata.common.errors import CorruptRecord, OptionError
from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord
from metadata.records.json_records import JsonRecord
from metadata.records.names import HashRange, SegmentName, TopicName, even_ranges, key_hash, segment_name, topic_name
from metadata.records.paths import Key
from metadata.records.records import (
    AbortedTxn,
    Application,
    Attempt,
    Cursor,
    Event,
    Header,
    Layout,
    MarkDelete,
    Nanos,
    Op,
    OpKind,
    Position,
    Range,
    Registration,
    SegmentInfo,
    SegmentState,
    SegmentWrite,
    Settled,
    State,
    TcSequence,
    TopicSchema,
    Watermark,
)
from metadata.records.row_ranges import parse_all
from metadata.store.contract import IndexEntry

SEGMENT = "segment://public/default/t/0000-7fff-1"
PART = Part("public/default/t/0000-7fff-1/ab.parquet", 3, 400, 17, (2, 1), 0)
WITH_STATISTICS = replace(PART, stats="AQEBawIGKlQBawcEAQFrZXktNTYC")

GOLDEN: list[tuple[JsonRecord, bytes]] = [
    (Cursor(), b'{"acked":[],"claims":{}}'),
    (
        Cursor(
            mark_delete=MarkDelete(ledger_id=5, entry_id=2),
            acked=parse_all(["5:4..5:6", "7:0:3..7:0:9"]),
            claims={"0_12": parse_all(["9:0", "11..12"])},
        ),
        b'{"markDelete":{"ledgerId":5,"entryId":2},"acked":["5:4..5:6","7:0:3..7:0:9"],"claims":{"0_12":["9:0","11..12"]}}',
    ),
    (
        Cursor(mark_delete=MarkDelete(ledger_id=5, entry_id=2, batch_index=7), deleted_ms=1_717_000_000_000),
        b'{"markDelete":{"ledgerId":5,"entryId":2,"batchIndex":7},"acked":[],"claims":{},"deletedMs":1717000000000}',
    ),
    (Cursor(mark_delete=MarkDelete(ledger_id=5)), b'{"markDelete":{"ledgerId":5},"acked":[],"claims":{}}'),
    (
        Op(
            kind=OpKind.ACK,
            segment=SEGMENT,
            subscription="sub",
            ledger_id=7,
            entry_id=0,
            rows=parse_all(["5:4..5:6", "7:0:3..7:0:9"]),
        ),
        b'{"kind":"ACK","segment":"segment://public/default/t/0000-7fff-1","subscription":"sub","ledgerId":7,"entryId":0,'
        b'"rows":["5:4..5:6","7:0:3..7:0:9"]}',
    ),
    (
        Header(state=State.OPEN, timeout=Nanos(60_000_000_000), created_at=Nanos(1_717_000_000_123_456_789), owner="role"),
        b'{"state":"OPEN","timeout":60.000000000,"createdAt":1717000000.123456789,"owner":"role"}',
    ),
    (
        Header(
            state=State.COMMITTED,
            timeout=Nanos(30_000_000_000),
            created_at=Nanos(1_717_000_000_000_000_000),
            finalized_at=Nanos(1_717_000_001_500_000_000),
            owner="host:1",
            app="q:t",
            version=0,
            attempt="ab",
            commit=977,
        ),
        b'{"state":"COMMITTED","timeout":30.000000000,"createdAt":1717000000.000000000,"finalizedAt":1717000001.500000000,'
        b'"owner":"host:1","app":"q:t","version":0,"attempt":"ab","commit":977}',
    ),
    (Header(state=State.OPEN, timeout=Nanos(0), created_at=Nanos(1)), b'{"state":"OPEN","timeout":0.0,"createdAt":0.000000001}'),
    (
        Op(kind=OpKind.WRITE, segment=SEGMENT, ledger_id=977, entry_id=0),
        b'{"kind":"WRITE","segment":"segment://public/default/t/0000-7fff-1","ledgerId":977,"entryId":0}',
    ),
    (
        Op(kind=OpKind.ACK, segment=SEGMENT, subscription="sub", ledger_id=5, entry_id=2, cumulative=True),
        b'{"kind":"ACK","segment":"segment://public/default/t/0000-7fff-1","subscription":"sub","ledgerId":5,"entryId":2,'
        b'"cumulative":true}',
    ),
    (Event(txn_id="3_17", decision=State.COMMITTED), b'{"txnId":"3_17","decision":"COMMITTED"}'),
    (Watermark(ledger_id=5, entry_id=0), b'{"ledgerId":5,"entryId":0}'),
    (
        Watermark(ledger_id=977, entry_id=2, snapshot="s.avro", trimmed_to=Position(ledger_id=3, entry_id=0)),
        b'{"ledgerId":977,"entryId":2,"snapshot":"s.avro","trimmedTo":{"ledgerId":3,"entryId":0}}',
    ),
    (AbortedTxn(max_ledger_id=3, max_entry_id=5), b'{"maxLedgerId":3,"maxEntryId":5}'),
    (TcSequence(next=42), b'{"next":42}'),
    (
        Layout(
            epoch=2,
            next_segment_id=2,
            segments={
                "1": SegmentInfo(
                    segment_id=1,
                    hash_range=Range(start=0, end=0x7FFF),
                    state=SegmentState.SEALED,
                    parent_ids=(0,),
                    created_at_epoch=1,
                    sealed_at_epoch=2,
                    created_at_ms=5,
                    sealed_at_ms=6,
                    sealed_at_log=9,
                )
            },
        ),
        b'{"epoch":2,"nextSegmentId":2,"segments":{"1":{"segmentId":1,"hashRange":{"start":0,"end":32767},"state":"SEALED",'
        b'"parentIds":[0],"childIds":[],"createdAtEpoch":1,"sealedAtEpoch":2,"createdAtMs":5,"sealedAtMs":6,"sealedAtLog":9}},'
        b'"properties":{}}',
    ),
    (
        Registration(
            txn="0_1",
            state=Settled.COMMITTED,
            publish_ms=7,
            segments={SEGMENT: SegmentWrite(parts=(PART,), rows=3, bytes=400, entries=2)},
        ),
        b'{"txn":"0_1","state":"COMMITTED","publishMs":7,"segments":{"segment://public/default/t/0000-7fff-1":{"parts":[{"path":'
        b'"public/default/t/0000-7fff-1/ab.parquet","rows":3,"bytes":400,"crc":17,"entries":[2,1],"schema":0}],"rows":3,"bytes":400,'
        b'"entries":2}}}',
    ),
    (
        Registration(publish_ms=7, segments={SEGMENT: SegmentWrite(parts=(WITH_STATISTICS,), rows=3, bytes=400, entries=2)}),
        b'{"publishMs":7,"segments":{"segment://public/default/t/0000-7fff-1":{"parts":[{"path":'
        b'"public/default/t/0000-7fff-1/ab.parquet","rows":3,"bytes":400,"crc":17,"entries":[2,1],"schema":0,'
        b'"stats":"AQEBawIGKlQBawcEAQFrZXktNTYC"}],"rows":3,"bytes":400,"entries":2}}}',
    ),
    (
        Registration(publish_ms=7, seal=(SEGMENT,), topic="topic://public/default/t", why="delete", epoch=0, children=()),
        b'{"publishMs":7,"segments":{},"seal":["segment://public/default/t/0000-7fff-1"],"topic":"topic://public/default/t",'
        b'"why":"delete","epoch":0,"children":[]}',
    ),
    (
        Application(last_committed=41, by="q", current=Attempt(version=42, txn_id="0_977", by="q")),
        b'{"lastCommitted":41,"by":"q","current":{"version":42,"txnId":"0_977","by":"q"}}',
    ),
    (TopicSchema(spark="{}", created_at_ms=1), b'{"spark":"{}","createdAtMs":1}'),
    (
        TopicSchema(spark="{}", created_at_ms=1, avro='{"type":"record"}', follows=0),
        b'{"spark":"{}","createdAtMs":1,"avro":"{\\"type\\":\\"record\\"}","follows":0}',
    ),
    (
        Layout(epoch=0, next_segment_id=0, segments={}, compatibility=Compatibility.FULL_TRANSITIVE),
        b'{"epoch":0,"nextSegmentId":0,"segments":{},"properties":{},"compatibility":"full_transitive"}',
    ),
]


@pytest.mark.parametrize(("record", "data"), GOLDEN, ids=lambda v: type(v).__name__ if isinstance(v, JsonRecord) else "")
def test_bytes(record: JsonRecord, data: bytes) -> None:
    assert record.to_bytes() == data
    assert type(record).from_bytes(data) == record
    assert json.loads(data) is not None


@pytest.mark.parametrize(("record", "data"), GOLDEN, ids=lambda v: type(v).__name__ if isinstance(v, JsonRecord) else "")
def test_unknown_fields_survive_a_rewrite(record: JsonRecord, data: bytes) -> None:
    extended = data[:-1] + ',"sidecar":{"x":[1,"é",1717000000.123456789]},"n":1.50}'.encode()
    read = type(record).from_bytes(extended)
    assert read.to_bytes() == extended
    changed = read.model_copy(update={next(iter(type(record).model_fields)): getattr(read, next(iter(type(record).model_fields)))})
    assert changed.to_bytes() == extended


def test_a_cluster_record_round_trips() -> None:
    record = ClusterRecord(id="c", ledgers="file:///l", created_at_ms=1)
    assert ClusterRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"state":"OPEN"}', b'{"state":"GONE","timeout":1,"createdAt":1}', b"\xff"])
def test_damaged_records_are_named(text: bytes) -> None:
    with pytest.raises(CorruptRecord):
        Header.from_bytes(text)


def test_whole_seconds_and_exponents_are_read() -> None:
    read = Header.from_bytes(b'{"state":"OPEN","timeout":30,"createdAt":1.717E9}')
    assert (read.timeout, read.created_at) == (30_000_000_000, 1_717_000_000_000_000_000)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**62))
def test_nanoseconds_never_pass_through_a_float(created: int, timeout: int) -> None:
    record = Header(state=State.OPEN, timeout=Nanos(timeout), created_at=Nanos(created))
    again = Header.from_bytes(record.to_bytes())
    assert (again.created_at, again.timeout) == (created, timeout)
    assert again.to_bytes() == record.to_bytes()
    fraction = record.to_bytes().split(b'"createdAt":')[1].rstrip(b"}").split(b".")[1]
    assert len(fraction) == 9 or created == 0


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(TEXT.filter(bool), st.lists(st.integers(1, 2**40), min_size=1, max_size=4), TEXT)
def test_registrations_round_trip(path: str, entries: list[int], txn: str) -> None:
    part = Part(path, sum(entries), 2, 3, tuple(entries), 0)
    record = Registration(
        txn=txn, publish_ms=1, segments={path: SegmentWrite(parts=(part,), rows=1, bytes=2, entries=len(entries))}
    )
    data = record.to_bytes()
    assert Registration.from_bytes(data) == record
    assert json.loads(data)["segments"][path]["parts"][0]["path"] == path


# --- keys and indexes -----------------------------------------------------------------------------------------------


def test_keys() -> None:
    encoded = "segment%3A%2F%2Fpublic%2Fdefault%2Ft%2F0000-7fff-1"
    assert paths.encode(SEGMENT) == encoded
    assert paths.header("3_17") == Key("/txn/id/3_17", "3_17")
    assert paths.ops("3_17").key(1) == Key("/txn/op/3_17-00000000000000000001", "3_17")
    assert paths.segment_events(SEGMENT).key(4).path == f"/txn/segment-events/{encoded}-00000000000000000004"
    assert paths.subscription_events(SEGMENT, "s/1").path == f"/txn/subscription-events/{encoded}:s%2F1"
    assert paths.watermark(SEGMENT) == Key(f"/txn/segment-state/watermark/{encoded}", encoded)
    assert paths.aborted(SEGMENT, "3_17") == Key(f"/txn/segment-state/aborted/{encoded}:3_17", encoded)
    assert paths.tc_sequence().path == "/txn/tc-seq/0"
    assert paths.LOG.key(977) == Key("/log/log-00000000000000000977", "log")
    assert paths.application("a b", "").path == "/txn/app/a+b:"
    assert paths.topic(topic_name("t")).path == "/topics/public/default/t"


def test_indexes() -> None:
    encoded = paths.encode(SEGMENT)
    header = Header(state=State.OPEN, timeout=Nanos(30_000_000_000), created_at=Nanos(1_717_000_000_123_456_789))
    assert header.indexes() == (IndexEntry("idx:txn-by-deadline", "00000001717000030123"),)
    final = header.model_copy(update={"state": State.ABORTED, "finalized_at": Nanos(5_000_000)})
    assert final.indexes() == (IndexEntry("idx:txn-by-final-state", "ABORTED:00000000000000000005"),)
    write = Op(kind=OpKind.WRITE, segment=SEGMENT, ledger_id=1, entry_id=0)
    assert write.indexes("0_1") == (IndexEntry("idx:writes-by-segment", encoded), IndexEntry("idx:ops-by-txn", "0_1"))
    ack = Op(kind=OpKind.ACK, segment=SEGMENT, subscription="s", ledger_id=1, entry_id=0)
    assert ack.indexes("0_1")[0] == IndexEntry("idx:acks-by-segment-subscription", f"{encoded}:s")
    assert AbortedTxn(max_ledger_id=3, max_entry_id=5).indexes(SEGMENT) == (
        IndexEntry("idx:txn-aborted-by-position", f"{encoded}:00000000000000000003:00000000000000000005"),
    )


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("a~b", "a%7Eb"),
        ("a b", "a+b"),
        ("a*b.c-d_e", "a*b.c-d_e"),
        ("é", "%C3%A9"),
        ("a+b", "a%2Bb"),
        ("%", "%25"),
        ("(!')", "%28%21%27%29"),
    ],
)
def test_escaping_is_that_of_java(text: str, encoded: str) -> None:
    assert paths.encode(text) == encoded
    assert paths.decode(encoded) == text


@given(TEXT)
def test_escaping_round_trips(text: str) -> None:
    encoded = paths.encode(text)
    assert paths.decode(encoded) == text
    assert not set(encoded) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-*_+%")


@given(st.lists(TEXT.filter(lambda t: t not in ("", ".", "..")), min_size=3, max_size=3))
def test_topic_keys_round_trip(names: list[str]) -> None:
    name = TopicName(*names)
    assert paths.topic_at(paths.topic(name).path) == name


# --- names ----------------------------------------------------------------------------------------------------------


def test_names() -> None:
    assert str(topic_name("t")) == "topic://public/default/t"
    parsed = segment_name(SEGMENT)
    assert parsed == SegmentName(TopicName("public", "default", "t"), HashRange(0, 0x7FFF), 1)
    assert str(parsed) == SEGMENT


@pytest.mark.parametrize(
    "text", ["", "a/b", "topic://a/b", "topic://a/b/c/d", "a b", "segment://a/b/c/0000-ffff-0", "topic://a//c"]
)
def test_bad_topic_names(text: str) -> None:
    with pytest.raises(OptionError):
        topic_name(text)


@pytest.mark.parametrize(
    "text", ["segment://a/b/c/0000-FFFF-0", "segment://a/b/c/0-ffff-0", "segment://a/b/c/0000-ffff-01", SEGMENT + " "]
)
def test_bad_segment_names(text: str) -> None:
    with pytest.raises(OptionError):
        segment_name(text)


@given(st.integers(1, 300))
def test_segments_tile_the_ring(count: int) -> None:
    ranges = even_ranges(count)
    assert ranges[0].start == 0
    assert ranges[-1].end == 0xFFFF
    assert all(a.end + 1 == b.start for a, b in pairwise(ranges))


def test_the_high_bits_of_murmur3_pick_the_segment() -> None:
    """The expected values are reference values of MurmurHash3_x86_32 with seed 0."""
    assert key_hash(b"") == 0
    assert key_hash(b"hello") == 0x248BFA47 >> 16
    assert key_hash(b"hello, world") == 0x149BBB7F >> 16
