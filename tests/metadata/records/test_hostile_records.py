"""Records from outside the project. Any bytes are decoded or raise CorruptRecord, in bounded time. Commands name a damaged
record.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from metadata.backup.record_kinds import KINDS, kind_of
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import CorruptRecord
from metadata.records import paths
from metadata.records.json_records import JsonRecord
from metadata.records.records import Header, Layout, Registration, TcSequence
from metadata.store import open_store
from metadata.store.contract import ABSENT, decide, look
from txnsegment.cli.app import build

BOMBS = {
    "exponent": b'{"next":1e9999999}',
    "exponent-of-many-digits": b'{"next":1e99999999999999999999}',
    "exponent-in-a-field-that-nobody-knows": b'{"next":1,"other":1e9999}',
    "digits-in-a-field-that-nobody-knows": b'{"next":1,"other":99999999999999999999}',
    "small-exponent": b'{"next":1e-9999999}',
    "zero-exponent": b'{"next":0e9999999}',
    "digits": b'{"next":' + b"9" * 5000 + b"}",
    "digits-of-65-bits": b'{"next":9223372036854775808}',
    "number-in-a-text": b'{"next":"' + b"9" * 4000 + b'"}',
    "lists": b'{"next":' + b"[" * 100_000,
    "objects": b'{"next":' + b'{"a":' * 100_000,
    "lists-that-end": b'{"next":1,"other":' + b"[" * 900 + b"]" * 900 + b"}",
    "not-a-number": b'{"next":NaN}',
    "infinity": b'{"next":-Infinity}',
    "half-a-pair": b'{"next":1,"other":"\\ud800"}',
    "half-a-pair-as-key": b'{"next":1,"\\udfff":1}',
    "not-utf-8": b'{"next":1,"other":"\xff"}',
    "a-list": b"[]",
    "nothing": b"",
    "true": b'{"next":true}',
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_hostile_record_is_a_corrupt_record_at_once(data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(CorruptRecord) as raised:
        TcSequence.from_bytes(data)
    assert time.process_time() - begun < 2
    assert len(raised.value.message) < 2000
    assert raised.value.advice


@pytest.mark.parametrize("seconds", [b"1e30", b"-1e30", b"-1", b"253402300800", b"9223372036854775807"])
def test_an_instant_beyond_every_calendar_is_a_corrupt_record(seconds: bytes) -> None:
    with pytest.raises(CorruptRecord, match="9999"):
        Header.from_bytes(b'{"state":"OPEN","timeout":1,"createdAt":' + seconds + b"}")


@pytest.mark.parametrize(
    "part",
    [
        {"rows": 0, "entries": []},
        {"rows": 2, "entries": [1]},
        {"rows": 0, "entries": [1, -1]},
        {"rows": 1, "entries": [1], "path": ""},
        {"rows": 1, "entries": [1], "crc": -5},
    ],
)
def test_a_part_that_no_file_can_be_is_a_corrupt_record(part: dict[str, object]) -> None:
    whole = {"path": "a/b.parquet", "bytes": 5, "crc": 7, "schema": 0, **part}
    body = {"publishMs": 1, "segments": {"s": {"parts": [whole], "rows": 1, "bytes": 5, "entries": 1}}}
    with pytest.raises(CorruptRecord):
        Registration.from_bytes(json.dumps(body).encode())


@given(st.binary(max_size=200), st.sampled_from([kind.record for kind in KINDS]))
def test_random_bytes_are_a_record_or_a_corrupt_record(data: bytes, kind: type[JsonRecord]) -> None:
    with contextlib.suppress(CorruptRecord):
        kind.from_bytes(data)


NAMES = st.sampled_from(["a", "segments", "parts", "acked", "claims", "hashRange", "commit", "createdAt", "state", "next"])
WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["OPEN", "5:2..5:4", "1:"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([kind.record for kind in KINDS]))
def test_random_fields_are_a_record_or_a_corrupt_record(data: st.DataObject, kind: type[JsonRecord]) -> None:
    fields = {field.alias or name: data.draw(WILD) for name, field in kind.model_fields.items() if data.draw(st.booleans())}
    try:
        record = kind.from_bytes(json.dumps(fields).encode())
    except CorruptRecord:
        return
    assert kind.from_bytes(record.to_bytes()) == record


# --- text shown to users --------------------------------------------------------------------------------------------


def _put(url: str, key: paths.Key, value: bytes) -> None:
    store = open_store(url)
    record = look(store, key)
    decide(store, lambda view: store.put(key, value, expect=ABSENT if record is None else record))
    store.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"file://{tmp_path}/c"
    open_cluster(found).close()
    return found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (paths.tc_sequence(), b'{"next":1e9999999}'),
        (paths.Key("/topics/public/default/bad", ""), b'{"epoch":1e9999999,"nextSegmentId":0,"segments":{}}'),
        (paths.Key("/topics/public/default/bad", ""), b'{"epoch":' + b"[" * 2000),
        (paths.LOG.key(1), b'{"publishMs":1e999999999999999}'),
    ],
)
def test_commands_name_a_damaged_record_and_doctor_reports_it(url: str, key: paths.Key, value: bytes) -> None:
    _put(url, key, value)
    begun = time.process_time()
    found = CliRunner().invoke(build(), ["doctor", "--service-url", url])
    assert found.exit_code == 1
    assert "1 records cannot be read" in found.stdout
    assert key.path in found.stdout
    for command in (["topics", "list"], ["sweep", "--once"]):
        done = CliRunner().invoke(build(), [*command, "--service-url", url])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert time.process_time() - begun < 20


def test_doctor_reports_foreign_records(url: str) -> None:
    _put(url, paths.Key("/someone/else", ""), b"x")
    assert "/someone/else" in CliRunner().invoke(build(), ["doctor", "--service-url", url]).stdout


def test_every_product_key_has_a_record_kind() -> None:
    from metadata.instream import paths as older
    from metadata.records.names import persistent_name, topic_name

    segment, topic, old = "segment://a/b/c/0000-ffff-0", topic_name("topic://a/b/c"), persistent_name("persistent://a/b/c")
    keys = [
        *(paths.CLUSTER, paths.FOUNDING, paths.RESTORING, paths.SWEEP_TURN, paths.LOG.key(7), paths.header("0_1")),
        *(paths.ops("0_1").key(0), paths.segment_events(segment).key(0), paths.subscription_events(segment, "s").key(1)),
        *(paths.watermark(segment), paths.aborted(segment, "0_1"), paths.tc_sequence(), paths.leader(), paths.topic(topic)),
        paths.driver("host:7", "abc"),
        *(paths.namespace("a", "b"), paths.application("app", str(topic)), paths.cursor(segment, "s"), paths.schema("t", 1)),
        *(paths.topic(old), older.log(old).key(1), older.subscription(str(old), "s"), older.ack_log(str(old), "s", 1).key(1)),
    ]
    for key in keys:
        found = kind_of(key.path)
        assert found is not None, key
        assert found[1] == key
    assert kind_of(paths.topic(topic).path) == (Layout, paths.topic(topic))
