"""The targets of the fuzzer. Each target takes any bytes, and parses them with one of the parsers of the project.

A target may raise TxnSegmentError or return, in bounded time and memory. Some parsers raise ValueError, which their callers turn
into a TxnSegmentError. A target of such a parser ignores this ValueError. If a checksum guards the bytes, the target computes the
right checksum. So any bytes pass the check, and the code behind it must be safe for any bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import google_crc32c
import pyarrow as pa
from google.protobuf.message import DecodeError

from ledgers import snapshot_files, snapshots
from ledgers.avro.parsing import parse
from ledgers.avro.rows import Codec
from ledgers.errors import TxnSegmentError
from ledgers.json_text import read_json
from ledgers.model import MOST_STATISTICS
from ledgers.page_headers import BadPage, _struct
from ledgers.part_reader import part_staging_id
from ledgers.part_statistics import decode
from ledgers.part_statistics import encode as encode_statistics
from ledgers.snapshot_files import put_long
from ledgers.spark_json import columns_from_json
from ledgers.storage import LedgerStorage
from metadata.backup import backup_file
from metadata.backup.record_kinds import KINDS, kind_of
from metadata.common.service import parse_service_url
from metadata.read.selection import Pattern
from metadata.records import paths
from metadata.records.folders import folder_of
from metadata.records.names import any_topic_name, check_new, segment_name
from metadata.records.records import AbortedTxn, Header, Op
from metadata.records.row_ranges import parse_all, texts
from metadata.store.zookeeper_paths import from_data
from metadata.topics.subscriptions import checked
from metadata.write.staging_manifests import StagingManifest, _crc
from pulsar_protocol.batches import parse_rows
from pulsar_protocol.chunks import Assembler
from pulsar_protocol.connection import Connection
from pulsar_protocol.entries import parse as parse_entry
from pulsar_protocol.frames import decode_entry, encode, encode_entry
from pulsar_protocol.layout import Position
from pulsar_protocol.messages import Schema, command
from pulsar_protocol.primitive_values import PRIMITIVES
from pulsar_protocol.values import codec
from spark_txn_sink.options import SINK
from spark_txn_source.offsets import StreamOffset, offset_of, planned_selection
from spark_txn_source.option_table import SOURCE
from txnsegment.ddl import parse_schema

Target = Callable[[bytes], None]
SHORT: Final = 60
"""Length of the topic name with which patterns are matched. Most topics have names of this length or less."""


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="txnsegment-fuzz-"))


def _split(data: bytes, among: int) -> tuple[int, bytes]:
    """Return a choice, which is the first byte modulo `among`, and the remaining bytes."""
    return (data[0] % among, data[1:]) if data else (0, b"")


def _text(data: bytes) -> str:
    """Decode bytes as Python decodes the arguments of a command, which need not be UTF-8."""
    return data.decode(errors="surrogateescape")


def records(data: bytes) -> None:
    choice, rest = _split(data, len(KINDS))
    record = KINDS[choice].record.from_bytes(rest)
    assert type(record).from_bytes(record.to_bytes()) == record
    match record:  # such records are stored with index entries, so these are computed, too
        case Header():
            record.indexes()
        case Op():
            record.indexes("0_1")
        case AbortedTxn():
            record.indexes("segment://a/b/c/0000-ffff-0")


def json_texts(data: bytes) -> None:
    with suppress(ValueError):
        read_json(data)
        read_json(data, decimals=True)


def columns(data: bytes) -> None:
    with suppress(ValueError):
        columns_from_json(data.decode())


def ddl(data: bytes) -> None:
    parse_schema(_text(data))


def avro_schemas(data: bytes) -> None:
    Codec(parse(_text(data))).arrow  # noqa: B018


_SCHEMAS: Final[tuple[Any, ...]] = (
    "boolean",
    "long",
    ["null", "int"],
    {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]},
    {"type": "map", "values": ["null", "string"]},
    {"type": "array", "items": {"type": "fixed", "name": "f", "size": 2}},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 6},
    {"type": "record", "name": "n", "fields": [{"name": "d", "type": {"type": "int", "logicalType": "date"}}]},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "array", "items": {"type": "map", "values": "double"}},
)


@cache
def _codec(choice: int) -> Codec:
    return Codec(parse({"type": "record", "name": "r", "fields": [{"name": "x", "type": _SCHEMAS[choice]}]}))


def avro_values(data: bytes) -> None:
    choice, rest = _split(data, len(_SCHEMAS))
    codec = _codec(choice)
    batch = codec.decode(pa.array([rest], pa.binary()), lambda row: f"Row {row}")
    again = codec.decode(codec.encode(batch, str), str)
    assert again.num_rows == 1


def offsets(data: bytes) -> None:
    try:
        found = json.loads(data)  # PySpark parses the JSON before it calls the source
    except (ValueError, RecursionError):
        return
    offset = offset_of(found)
    offset.done()
    offset.after(5, {})
    offset.as_segments(["persistent://a/b/c"])
    assert offset_of(offset.to_json()).to_json() == offset.to_json()
    offset.start_of_batch(StreamOffset(0, offset.read, is_initial=True))
    offset.first_end().to_json()
    planned_selection(found, Pattern("x"))


def options(data: bytes) -> None:
    tables = [*((SOURCE, option) for option in SOURCE.options), *((SINK, option) for option in SINK.options)]
    choice, rest = _split(data, len(tables))
    table, option = tables[choice]
    table.read({option.name: _text(rest)}, streaming=None)


def patterns(data: bytes) -> None:
    text = _text(data)
    compiled = SOURCE.read({"topicsPattern": text}, streaming=None)
    assert compiled.has("topicsPattern")
    Pattern(text.strip()).matches(any_topic_name(("ab-" * SHORT)[:SHORT]))


def urls(data: bytes) -> None:
    with suppress(TxnSegmentError):
        LedgerStorage(_text(data))
    parse_service_url("The option serviceUrl", _text(data))


def names(data: bytes) -> None:
    text = _text(data)
    for read in (any_topic_name, segment_name, checked):
        with suppress(TxnSegmentError):
            read(text)
    kind_of(text)
    name = any_topic_name(text)
    found = kind_of(paths.topic(name).path)
    assert found is not None
    assert found[1] == paths.topic(name)
    with suppress(TxnSegmentError):
        folder_of(f"segment://{name.tenant}/{name.namespace}/{name.name}/0000-ffff-0")
    check_new(name)


def rows(data: bytes) -> None:
    with suppress(ValueError):
        found = parse_all(data.decode().split(","))
        assert parse_all(texts(found)) == found


def znodes(data: bytes) -> None:
    from_data("/x", data)


def backups(data: bytes) -> None:
    choice, rest = _split(data, 2)
    if choice:  # the bytes are the lines of a backup, and the target adds the right checksum
        rest = rest.rstrip(b"\n") + b"\n"
        rest = gzip.compress(rest + json.dumps({"sha256": hashlib.sha256(rest).hexdigest()}).encode() + b"\n", 1)
    path = _folder() / "backup"
    path.write_bytes(rest)
    backup_file.read(path)


def _read_snapshot(data: bytes) -> None:
    path = f"n-{zlib.crc32(data):08x}.avro"
    file = _folder() / path
    file.write_bytes(data)
    try:
        storage = LedgerStorage(str(_folder()))
        head = snapshots.read_head(storage, path)
        list(snapshots.read_ledgers(storage, head, head.files[-1].last if head.files else -1, 2**62))
    finally:
        file.unlink()


def heads(data: bytes) -> None:
    choice, rest = _split(data, 2)
    if choice:  # the bytes are a record of a head, and the target makes the container around it
        rest = b"".join((snapshots._HEAD._begin, bytes(16), put_long(1), put_long(len(rest)), rest, bytes(16)))
    _read_snapshot(rest)


def blocks(data: bytes) -> None:
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    packed = deflate.compress(data) + deflate.flush()
    with suppress(ValueError):
        raw = put_long(1) + put_long(len(packed)) + packed
        list(snapshot_files.block_ledgers(snapshot_files._decode_block(raw, snapshot_files._BLOCK)))


def directories(data: bytes) -> None:
    with suppress(ValueError):
        snapshot_files._directory(data)


def staging(data: bytes) -> None:
    with suppress(ValueError, RecursionError):
        body = json.loads(data)
        if isinstance(body, dict):
            data = json.dumps(body | {"crc": _crc({k: v for k, v in body.items() if k != "crc"})}).encode()
    manifest = StagingManifest.of("staging/x.manifest", data)
    assert StagingManifest.of("staging/x.manifest", manifest.to_bytes()) == manifest


def statistics(data: bytes) -> None:
    with suppress(ValueError):
        found = decode(b64encode(data).decode())
        text = encode_statistics(found)
        assert text is None or len(text) > 2 * MOST_STATISTICS or decode(text).columns.keys() <= found.columns.keys()


def footers(data: bytes) -> None:
    path = _folder() / "part.parquet"
    path.write_bytes(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")
    part_staging_id(LedgerStorage(str(_folder())), "part.parquet")


def pulsar_messages(data: bytes) -> None:
    """Parse the bytes as an entry without a checksum, which a broker may deliver. Both ways of reading its messages must give the
    same result.
    """
    entry = parse_entry(data)
    if entry.is_chunk:
        Assembler().feed(Position(0, 0), entry)
        return
    outcomes: list[object] = []
    for read in (lambda: [*entry.rows().messages()], lambda: [*entry.messages()]):
        try:
            outcomes.append(read())
        except TxnSegmentError as error:
            outcomes.append(error.message)
    assert outcomes[0] == outcomes[1]


def pulsar_batches(data: bytes) -> None:
    choice, rest = _split(data, 5)
    parse_rows(rest, choice)


_PULSAR_RECORD: Final = json.dumps(
    {"type": "record", "name": "r", "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(_SCHEMAS)]}
).encode()
_PULSAR: Final = (
    *(Schema(type=kind) for kind in sorted(PRIMITIVES)),
    *(Schema(type=k, schema_data=_PULSAR_RECORD) for k in (2, 4)),
)


def pulsar_values(data: bytes) -> None:
    choice, rest = _split(data, len(_PULSAR) + 1)
    values = codec(Schema(type=15, schema_data=bytes(8)) if choice == len(_PULSAR) else _PULSAR[choice])
    batch = values.decode([rest])
    assert values.decode(values.encode(batch)).num_rows == 1


def pulsar_schemas(data: bytes) -> None:
    schema = Schema()
    with suppress(DecodeError):
        schema = Schema.FromString(data)
    codec(schema).columns  # noqa: B018


def page_headers(data: bytes) -> None:
    with suppress(BadPage, IndexError):
        _struct(data, 0, 1)


def pulsar_frames(data: bytes) -> None:
    choice, rest = _split(data, 3)
    connection = Connection(lambda challenge: ("token", b"secret"))
    if choice:  # the broker has accepted the connection
        connection.feed(encode(command("connected", server_version="5.0.0")))
    if choice == 2:  # the bytes are a command, and the target makes the frame around it
        rest = (len(rest) + 4).to_bytes(4, "big") + len(rest).to_bytes(4, "big") + rest
    middle = len(rest) // 2
    connection.feed(rest[:middle])
    connection.feed(rest[middle:])


def pulsar_entries(data: bytes) -> None:
    choice, rest = _split(data, 2)
    if choice:  # the bytes are what the checksum guards, and the target adds the right checksum
        rest = b"\x0e\x01" + google_crc32c.value(rest).to_bytes(4, "big") + rest
    metadata, payload = decode_entry(rest)
    assert decode_entry(encode_entry(metadata, bytes(payload))) == (metadata, payload)


TARGETS: Final[Mapping[str, Target]] = {
    target.__name__: target
    for target in (
        *(records, json_texts, columns, ddl, avro_schemas, avro_values, offsets, options, patterns, urls, names, rows, znodes),
        *(backups, heads, blocks, directories, staging, statistics, footers, page_headers, pulsar_frames, pulsar_entries),
        *(pulsar_messages, pulsar_batches, pulsar_values, pulsar_schemas),
    )
}


def run(name: str, data: bytes) -> None:
    """Run a target. It may raise a TxnSegmentError; this function raises every other error."""
    with suppress(TxnSegmentError):
        TARGETS[name](data)
