"""Hostile files with right checksums raise the error of their kind: CorruptSnapshot for an index snapshot, CorruptPart for a
Parquet part (issue 13, item 22).
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers import snapshot_files, snapshots
from ledgers.errors import CorruptPart, CorruptSnapshot
from ledgers.model import Ledger, Part
from ledgers.page_headers import BadPage, _struct
from ledgers.parts import PartWriter, read_part, verify_part
from ledgers.storage import LedgerStorage

SEGMENT = "segment://public/default/t/0000-ffff-0"


def ledgers(count: int) -> list[Ledger]:
    return [
        Ledger(n, 1_700_000_000_000 + n, f"0_{n}", (Part(f"a/{n:032x}.parquet", 3, 99, 7, (1, 2), 0),)) for n in range(1, count + 1)
    ]


def head_record(count: int = 3) -> dict[str, Any]:
    """Return the record of a correct snapshot head. Tests damage it."""
    file = {"path": "f.avro", "first": 1, "last": 9, "ledgers": 9, "parts": 9, "rows": 9, "bytes": 9}
    run = {"ledger": 1, "last": 2, "publish_ms": 1, "txn": "", "path": "c.parquet", "rows": 2, "bytes": 2, "crc": 3, "schema": 0}
    tail = snapshot_files.block_record([Ledger(one.id + 9, one.publish_ms, one.txn, one.parts) for one in ledgers(count)])
    return {
        "segment": SEGMENT,
        "ledgerId": 12,
        "entryId": 0,
        "files": [file | {"publish_max": 9, "header_bytes": 9, "crc": 9}],
        "tail": tail,
        "runs": [run | {"first_row": 0, "file_bytes": 9, "groups": [2]}],
    }


def published(storage: LedgerStorage, data: bytes, name: str = "n") -> str:
    """Publish these bytes as a snapshot head. Return its path, whose name has the right checksum."""
    path = f"public/{name}-{zlib.crc32(data):08x}.avro"
    storage.publish(path, data)
    return path


def read(tmp_path: Path, data: bytes) -> None:
    """Read a snapshot as every reader does: the head, then all ledgers."""
    storage = LedgerStorage(str(tmp_path))
    head = snapshots.read_head(storage, published(storage, data))
    list(snapshots.read_ledgers(storage, head, -1, 2**62))


def refused(tmp_path: Path, data: bytes) -> CorruptSnapshot:
    begun = time.process_time()
    with pytest.raises(CorruptSnapshot, match=r"public/n-[0-9a-f]{8}\.avro") as raised:
        read(tmp_path, data)
    assert time.process_time() - begun < 3
    assert len(str(raised.value)) < 2000
    return raised.value


def in_container(schema: Any, content: bytes, *, count: int = 1, codec: str = "null") -> bytes:
    """Return an Avro container with the given schema and content."""
    out = io.BytesIO()
    header = fastavro.parse_schema(
        {"type": "record", "name": "h", "fields": [{"name": "m", "type": {"type": "map", "values": "bytes"}}]}
    )
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    fastavro.schemaless_writer(out, header, {"m": {"avro.schema": text, "avro.codec": codec.encode()}})
    longs = b"".join(snapshot_files.put_long(n) for n in (count, len(content)))
    return b"Obj\x01" + out.getvalue() + bytes(16) + longs + content + bytes(16)


def spoilt(change: Callable[[dict[str, Any]], None]) -> bytes:
    record = head_record()
    change(record)
    return snapshots._HEAD.write(record, bytes(16))


def test_the_undamaged_snapshot_head_is_read(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    assert snapshots.read_head(storage, published(storage, spoilt(lambda record: None))).rows == 18


HEADS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "ids descend": lambda r: r["tail"].update(ids=[12, -1, -1]),
    "ids negative": lambda r: r["tail"].update(ids=[-5, 1, 1]),
    "ids of more than 64 bits": lambda r: r["tail"].update(ids=[10, 2**62, 2**62]),
    "fewer ids than parts": lambda r: r["tail"].update(ids=[10]),
    "no part counts": lambda r: r["tail"].update(partCounts=[]),
    "a huge part count": lambda r: r["tail"].update(partCounts=[2**62, 1, 1]),
    "a negative part count": lambda r: r["tail"].update(partCounts=[-1, 2, 2]),
    "a huge entry count": lambda r: r["tail"].update(entryCounts=[2**62, 2, 2]),
    "a negative entry count": lambda r: r["tail"].update(entryCounts=[-2, 4, 4]),
    "entries of other rows": lambda r: r["tail"].update(entries=[1, 2, 1, 2, 1, 5]),
    "rows of nothing": lambda r: r["tail"].update(rows=[0, 3, 3]),
    "sums of more than 64 bits": lambda r: r["tail"].update(bytes=[2**62, 2**62, 2**62]),
    "names missing": lambda r: r["tail"].update(names=[]),
    "paths without an end": lambda r: r["tail"].update(prefix="x" * 5000),
    "parts in a file that is not there": lambda r: r["tail"].update(fileOf=[1, 1, 1], gaps=[0, 0, 0]),
    "gaps missing": lambda r: r["tail"].update(files=[{"path": "p", "bytes": 1, "crc": 1, "groups": [9]}], fileOf=[1, 1, 1]),
    "a file number too high": lambda r: r["tail"].update(
        files=[{"path": "p", "bytes": 1, "crc": 1, "groups": [9]}], fileOf=[2, 1, 1], gaps=[0, 0, 0]
    ),
    "parts behind the end of their file": lambda r: r["tail"].update(
        files=[{"path": "p", "bytes": 1, "crc": 1, "groups": [3]}], fileOf=[1, 1, 1], gaps=[0, 0, 0]
    ),
    "a negative file": lambda r: r["files"][0].update(header_bytes=-1),
    "files in another order": lambda r: r["files"].append(r["files"][0]),
    "a ledger twice": lambda r: r["files"][0].update(last=10),
    "a run without groups": lambda r: r["runs"][0].update(groups=[]),
    "a run that ends before it begins": lambda r: r["runs"][0].update(last=0),
}


@pytest.mark.parametrize("change", HEADS.values(), ids=HEADS)
def test_a_head_of_hostile_content_is_a_corrupt_snapshot(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    refused(tmp_path, spoilt(change))


HUGE = b"\xfe" + b"\xff" * 7 + b"\x7f"
"""The Avro long 2**62 - 1."""


def of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "SnapshotHead", "fields": [{"name": "segment", "type": kind}]}


CONTAINERS = {
    "nothing": b"",
    "a magic alone": b"Obj\x01",
    "a header that does not end": b"Obj\x01" + b"\xff" * 50,
    "a header of 2**62 pairs": b"Obj\x01" + HUGE + b"\x02a\x02b",
    "an array of nulls": in_container(of({"type": "array", "items": "null"}), HUGE + b"\x00"),
    "an array of fixed(0)": in_container(of({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}), HUGE + b"\x00"),
    "a schema within itself": in_container(of("SnapshotHead"), b"\x00" * 4000),
    "a schema that is none": in_container(b"\xff\xfe", b""),
    "a schema that is too deep": in_container(b"[" * 4000, b""),
    "a schema of a number": in_container(b"1e9999999", b""),
    "another record": in_container(of("string"), b"\x02a"),
    "text where numbers are": in_container(
        {"type": "record", "name": "h", "fields": [{"name": n, "type": "string"} for n in ("segment", "ledgerId", "entryId")]},
        b"\x02a" * 3,
    ),
    "two records": in_container(of("string"), b"\x02a\x02a", count=2),
    "an unknown codec": in_container(of("string"), b"\x02a", codec="bzip2"),
    "a block that is cut": snapshots._HEAD.write(head_record(), bytes(16))[:-20],
    "bytes behind": snapshots._HEAD.write(head_record(), bytes(16)) + b"x",
    "no header": b"\x00" * 4000,
}


@pytest.mark.parametrize("data", CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_of_hostile_content_is_a_corrupt_snapshot(tmp_path: Path, data: bytes) -> None:
    refused(tmp_path, data)


@given(st.data())
@settings(max_examples=150)
def test_a_head_with_other_bytes_and_a_right_checksum_is_read_or_corrupt(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(snapshots._HEAD.write(head_record(), bytes(16)))
    # the changed bytes are anywhere in the head, or only in its record
    begin = data.draw(st.sampled_from([0, len(snapshots._HEAD._begin)]))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(begin, len(whole) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    storage = LedgerStorage(str(tmp_path_factory.mktemp("ledgers")))
    with contextlib.suppress(CorruptSnapshot):
        snapshots.read_head(storage, published(storage, bytes(whole)))


# --- ledger files -----------------------------------------------------------------------------------------------------


def ledger_file(tmp_path: Path, raw: bytes, block: snapshot_files.Block | None = None) -> Callable[[], list[Ledger]]:
    """Write a ledger file of one block, with right checksums. Return a function that reads the file."""
    storage = LedgerStorage(str(tmp_path))
    block = block or snapshot_files.Block(1, 3, len(raw), zlib.crc32(raw))
    header = snapshot_files.make_header("file.avro", [block])
    snapshot_files.write_ledgers(storage, "file.avro", header, [raw])
    file = snapshots.SnapshotFile("file.avro", 1, 3, 3, 3, 9, 99, 9, len(header.raw), zlib.crc32(header.raw))

    def go() -> list[Ledger]:
        with snapshots.open_file(storage, file) as opened:
            return list(opened.ledgers(-1, 2**62))

    return go


def packed(content: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    raw = deflate.compress(content) + deflate.flush()
    return snapshot_files.put_long(1) + snapshot_files.put_long(len(raw)) + raw


def test_the_undamaged_part_is_read(tmp_path: Path) -> None:
    assert ledger_file(tmp_path, snapshot_files.encode_block(ledgers(3))[1])() == ledgers(3)


BLOCKS = {
    "zeros": b"\x00" * 50,
    "not packed": snapshot_files.put_long(1) + snapshot_files.put_long(5) + b"hello",
    "a bomb": packed(b"\x00" * (100 * 2**20)),
    "no columns": packed(b"\x00" * 3),
    "random": packed(random.Random(1).randbytes(500)),
    "a length too long": snapshot_files.put_long(1) + HUGE,
}


@pytest.mark.parametrize("raw", BLOCKS.values(), ids=BLOCKS)
def test_a_block_of_hostile_content_is_a_corrupt_snapshot(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(CorruptSnapshot, match=r"file\.avro"):
        ledger_file(tmp_path, raw)()


@pytest.mark.parametrize("size", [0, -1, 2**40, 2**62])
def test_a_directory_of_impossible_lengths_is_a_corrupt_snapshot(tmp_path: Path, size: int) -> None:
    raw = snapshot_files.encode_block(ledgers(3))[1]
    with pytest.raises(CorruptSnapshot, match=r"file\.avro"):
        ledger_file(tmp_path, raw, snapshot_files.Block(1, 3, size, zlib.crc32(raw)))()


@pytest.mark.parametrize("header_bytes", [0, 10, 2**40, 2**62])
def test_a_header_of_an_impossible_length_is_a_corrupt_snapshot(tmp_path: Path, header_bytes: int) -> None:
    storage = LedgerStorage(str(tmp_path))
    storage.publish("file.avro", b"x" * 100)
    file = snapshots.SnapshotFile("file.avro", 1, 3, 3, 3, 9, 99, 9, header_bytes, zlib.crc32(b"x" * 10))
    with pytest.raises(CorruptSnapshot, match=r"file\.avro"):
        snapshots.open_file(storage, file)


# --- parts ------------------------------------------------------------------------------------------------------------


def part_file(tmp_path: Path) -> tuple[LedgerStorage, Part, bytes]:
    storage = LedgerStorage(str(tmp_path))
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    writer = PartWriter(storage, "a", schema, 0, staging_id="s", name_source=lambda: "p")
    writer.write(pa.record_batch([pa.array(range(100)), pa.array([f"t{n % 7}" for n in range(100)])], schema=schema))
    part = writer.close()
    assert part is not None
    return storage, part, (tmp_path / part.path).read_bytes()


@pytest.mark.parametrize("byte", [0x1C, 0x0C, 0x18, 0xFF, 0x80, 0x15, 0x00])
def test_pages_overwritten_with_one_byte_are_a_corrupt_part(tmp_path: Path, byte: int) -> None:
    storage, part, data = part_file(tmp_path)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    (tmp_path / part.path).write_bytes(data[:4] + bytes([byte]) * (len(data) - 4 - footer) + data[-footer:])
    for use in (lambda: list(read_part(storage, part)), lambda: verify_part(storage, part)):
        with pytest.raises(CorruptPart, match=r"p\.parquet"):
            use()


@pytest.mark.parametrize("raw", [b"\x1c" * 65536, b"\x0c" * 65536, b"\x15" + b"\xff" * 100, b"\x18" + b"\xff" * 8 + b"\x01"])
def test_a_page_header_of_structs_in_structs_ends(raw: bytes) -> None:
    with pytest.raises((BadPage, IndexError)):
        _struct(raw, 0, 1)


@given(st.binary(max_size=300))
@settings(max_examples=150)
def test_random_page_headers_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(BadPage, IndexError):
        _struct(raw, 0, 1)


@given(st.data())
@settings(max_examples=60)
def test_a_part_with_other_bytes_is_read_or_corrupt(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("part")
    storage, part, whole = part_file(folder)
    spoiled = bytearray(whole)
    begin = data.draw(st.integers(4, len(whole) - 9))
    for at in range(begin, min(begin + data.draw(st.integers(1, 40)), len(whole))):
        spoiled[at] = data.draw(st.sampled_from([0, 1, 0x0C, 0x1C, 0x80, 0xFF]))
    (folder / part.path).write_bytes(bytes(spoiled))
    with contextlib.suppress(CorruptPart):
        rows = sum(one.batch.num_rows for one in read_part(storage, part))
        assert rows == 100
