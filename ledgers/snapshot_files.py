"""The two kinds of index snapshot files, both valid Avro containers that any Avro tool can read.

A *ledger file* holds blocks of ledgers, column by column (ids and publish times as differences, what all paths have in common
once). Its Avro header carries a directory of the blocks, so that a range of numbers costs the blocks that overlap it, and
that files can be joined by copying blocks as they are. The CRC-32 of the header stands in the head that refers to the file,
the CRC-32 of each block in the header: nothing is believed unchecked.

A *head* holds one record: what the chain consists of. Its CRC-32 is part of its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from io import BytesIO
from itertools import accumulate
from typing import Any, NamedTuple

import fastavro

from ledgers.errors import CorruptSnapshot, MissingFile
from ledgers.io_errors import explained
from ledgers.model import Ledger, Part
from ledgers.storage import LedgerStorage

_NAMESPACE = "org.txnsegment"
_DIRECTORY = "txnsegment.blocks"
_LONGS = {"type": "array", "items": "long"}
_TEXTS = {"type": "array", "items": "string"}

BLOCK: dict[str, Any] = {
    "type": "record",
    "name": "LedgerBlock",
    "namespace": _NAMESPACE,
    "doc": "Ledgers in ascending order, column by column.",
    "fields": [
        {"name": "ids", "type": _LONGS, "doc": "the first ledgerId, then differences"},
        {"name": "publishMs", "type": _LONGS, "doc": "the first publish time in ms since 1970, then differences"},
        {"name": "txns", "type": _TEXTS, "doc": "transaction id; empty: none"},
        {"name": "partCounts", "type": _LONGS, "doc": "parts of each ledger"},
        {"name": "prefix", "type": "string", "doc": "what all paths begin with"},
        {"name": "suffix", "type": "string", "doc": "what all paths end with"},
        {"name": "names", "type": _TEXTS, "doc": "of each part: its path without prefix and suffix"},
        {"name": "rows", "type": _LONGS},
        {"name": "bytes", "type": _LONGS},
        {"name": "crcs", "type": _LONGS, "doc": "CRC-32 of the part's footer"},
        {"name": "schemas", "type": _LONGS},
        {"name": "entryCounts", "type": _LONGS, "doc": "entries of each part"},
        {"name": "entries", "type": _LONGS, "doc": "rows of each entry, over all parts"},
    ],
}
_BLOCK = fastavro.parse_schema(BLOCK)
_DIRECTORY_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Directory",
        "namespace": _NAMESPACE,
        "fields": [{"name": n, "type": _LONGS} for n in ("firsts", "lasts", "sizes", "crcs")],
    }
)


class Block(NamedTuple):
    """A block in a directory: first and last ledgerId, length in the file without its sync marker, CRC-32 of these bytes."""

    first: int
    last: int
    size: int
    crc: int


class Header(NamedTuple):
    """The header of a ledger file: its bytes, the marker that follows each block, the blocks in order."""

    raw: bytes
    sync: bytes
    blocks: tuple[Block, ...]


def block_record(ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """Ledgers as a LedgerBlock record."""
    parts = [part for ledger in ledgers for part in ledger.parts]
    paths = [part.path for part in parts]
    prefix = _common(paths)
    ends = [path[len(prefix) :][::-1] for path in paths]
    suffix = _common(ends)[::-1]
    return {
        "ids": _differences([ledger.id for ledger in ledgers]),
        "publishMs": _differences([ledger.publish_ms for ledger in ledgers]),
        "txns": [ledger.txn or "" for ledger in ledgers],
        "partCounts": [len(ledger.parts) for ledger in ledgers],
        "prefix": prefix,
        "suffix": suffix,
        "names": [path[len(prefix) : len(path) - len(suffix)] for path in paths],
        "rows": [part.rows for part in parts],
        "bytes": [part.bytes for part in parts],
        "crcs": [part.crc for part in parts],
        "schemas": [part.schema for part in parts],
        "entryCounts": [len(part.entries) for part in parts],
        "entries": [rows for part in parts for rows in part.entries],
    }


def _common(texts: Sequence[str]) -> str:
    """What all texts begin with: it is enough to compare the lowest with the highest."""
    low, high = min(texts, default=""), max(texts, default="")
    same = 0
    while same < len(low) and low[same] == high[same]:
        same += 1
    return low[:same]


def _differences(values: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *values], values, strict=False)]


def block_ledgers(record: dict[str, Any]) -> Iterator[Ledger]:
    """The ledgers of a LedgerBlock record, ascending."""
    prefix, suffix = record["prefix"], record["suffix"]
    rows = iter(record["entries"])
    entries = ((next(rows),) if count == 1 else tuple(next(rows) for _ in range(count)) for count in record["entryCounts"])
    parts = (
        Part(f"{prefix}{name}{suffix}", total, size, crc, each, schema)
        for name, total, size, crc, each, schema in zip(
            *(record[key] for key in ("names", "rows", "bytes", "crcs")), entries, record["schemas"], strict=True
        )
    )
    for number, publish_ms, txn, count in zip(
        accumulate(record["ids"]), accumulate(record["publishMs"]), record["txns"], record["partCounts"], strict=True
    ):
        own = (next(parts),) if count == 1 else tuple(next(parts) for _ in range(count))
        yield Ledger(number, publish_ms, txn or None, own)


def encode_block(ledgers: Sequence[Ledger]) -> tuple[Block, bytes]:
    """A block of a ledger file: count, size and deflated record, without the sync marker."""
    plain = BytesIO()
    fastavro.schemaless_writer(plain, _BLOCK, block_record(ledgers))
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    packed = deflate.compress(plain.getvalue()) + deflate.flush()
    raw = _long(1) + _long(len(packed)) + packed
    return Block(ledgers[0].id, ledgers[-1].id, len(raw), zlib.crc32(raw)), raw


def _decode_block(raw: bytes) -> Iterator[Ledger]:
    record = fastavro.schemaless_reader(BytesIO(zlib.decompress(raw[_after_longs(raw, 0) :], -15)), _BLOCK, None)
    assert isinstance(record, dict)
    return block_ledgers(record)


class OneRecord:
    """Avro containers of one plain record, byte for byte as fastavro writes them. Its schema, the greater part of each, is put into
    bytes once, and not parsed again where a file begins as ours do.
    """

    def __init__(self, schema: Any) -> None:
        """`schema`: parsed."""
        self._schema = schema
        out = BytesIO()
        fastavro.writer(out, schema, [], sync_marker=bytes(16))
        self._begin = out.getvalue()[:-16]

    def write(self, record: dict[str, Any], sync: bytes) -> bytes:
        """`sync`: the marker, 16 bytes."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, record)
        plain = out.getvalue()
        return b"".join((self._begin, sync, _long(1), _long(len(plain)), plain, sync))

    def read(self, data: bytes) -> Any:
        """The record of a container, also of one that others wrote."""
        if not data.startswith(self._begin):
            return next(iter(fastavro.reader(BytesIO(data))))
        plain = BytesIO(data)
        plain.seek(_after_longs(data, len(self._begin) + 16))
        return fastavro.schemaless_reader(plain, self._schema, None)


def _after_longs(raw: bytes, at: int) -> int:
    """Where a block's content begins: after its count and its size, two Avro longs."""
    for _ in range(2):
        while raw[at] & 0x80:
            at += 1
        at += 1
    return at


def _long(value: int) -> bytes:
    """A non-negative long as Avro writes it: zigzag, then seven bits at a time."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def make_header(path: str, blocks: Sequence[Block]) -> Header:
    """The header of a ledger file that will consist of these blocks."""
    directory = BytesIO()
    columns = {
        "firsts": [b.first for b in blocks],
        "lasts": [b.last for b in blocks],
        "sizes": [b.size for b in blocks],
        "crcs": [b.crc for b in blocks],
    }
    fastavro.schemaless_writer(directory, _DIRECTORY_SCHEMA, columns)
    sync = blake2b(path.encode(), digest_size=16).digest()
    packed = directory.getvalue().hex().encode()
    return Header(b"".join((_BEFORE, _long(len(packed)), packed, _AFTER, sync)), sync, tuple(blocks))


def _around() -> tuple[bytes, bytes]:
    """What stands before and behind the directory in the header of every ledger file, as fastavro writes it. The schema is by far
    most of it, and is put into bytes once.
    """
    out, mark = BytesIO(), "directory"
    fastavro.writer(out, _BLOCK, [], codec="deflate", sync_marker=bytes(16), metadata={_DIRECTORY: mark})
    before, after = out.getvalue()[:-16].split(_long(len(mark)) + mark.encode())
    return before, after


_BEFORE, _AFTER = _around()


def write_ledgers(storage: LedgerStorage, path: str, header: Header, blocks: Iterable[bytes]) -> int:
    """Publish a ledger file; its length in bytes. Raises StorageError."""
    output = storage.open_output(path)
    try:
        with explained("write", path):
            size = output.stream.write(header.raw)
            for raw in blocks:
                size += output.stream.write(raw) + output.stream.write(header.sync)
        output.publish()
    finally:
        output.discard()
    return int(size)


class LedgerFile:
    """An open ledger file, its header checked against the `crc` and length that a head gives. Raises CorruptSnapshot."""

    def __init__(self, storage: LedgerStorage, path: str, header_bytes: int, crc: int) -> None:
        self._place = f"{storage.uri}/{path}"
        try:
            self._stream = storage.open_input(path)
        except MissingFile as error:
            raise corrupt(self._place, "it is missing") from error
        with explained("read", self._place):
            raw = self._stream.read(header_bytes)
        if len(raw) != header_bytes or zlib.crc32(raw) != crc:
            self._stream.close()
            raise corrupt(self._place, "the CRC of its header differs")
        self.header_bytes = header_bytes
        self.blocks = _directory(raw)

    def __enter__(self) -> LedgerFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def raw_blocks(self, after: int = -1, through: int | None = None) -> Iterator[bytes]:
        """The blocks that hold numbers with after < number <= through, in order, each checked against its CRC."""
        at = self.header_bytes
        for block in self.blocks:
            if block.last > after and (through is None or block.first <= through):
                with explained("read", self._place):
                    self._stream.seek(at)
                    raw = self._stream.read(block.size)
                if len(raw) != block.size or zlib.crc32(raw) != block.crc:
                    raise corrupt(self._place, f"the CRC of its block of ledgers {block.first} to {block.last} differs")
                yield raw
            at += block.size + 16

    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        """The ledgers with after < number <= through, ascending."""
        for raw in self.raw_blocks(after, through):
            for ledger in _decode_block(raw):
                if after < ledger.id <= through:
                    yield ledger


def _directory(raw: bytes) -> tuple[Block, ...]:
    packed = bytes.fromhex(fastavro.reader(BytesIO(raw)).metadata[_DIRECTORY])
    columns = fastavro.schemaless_reader(BytesIO(packed), _DIRECTORY_SCHEMA, None)
    assert isinstance(columns, dict)
    return tuple(map(Block, columns["firsts"], columns["lasts"], columns["sizes"], columns["crcs"]))


def corrupt(place: str, what: str) -> CorruptSnapshot:
    """The error for a snapshot file that is not what its reference says."""
    return CorruptSnapshot(
        f"The index snapshot {place} cannot be used: {what}.",
        advice="Restore the file from a copy: the segment's older ledgers are listed nowhere else. No row was left out silently.",
    )
