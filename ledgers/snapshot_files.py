"""The two kinds of index snapshot files, both valid Avro containers.

A *ledger file* holds blocks of ledgers, column by column. Ids and publish times are stored as differences, and common prefixes and
suffixes of paths only once. The file's Avro header has a directory of the blocks. So a read of a range of numbers reads only the
blocks that overlap it, and two files are joined by copying blocks. The CRC-32 of the header is in the head that names the file, and
the CRC-32 of each block is in the header, so every byte is checked before its use.

A *head* holds one record. The record names the ledger files of the chain, and has the newest ledgers itself. The CRC-32 of the head
is part of its file's name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from io import BytesIO
from itertools import accumulate, starmap
from typing import Any, NamedTuple

import fastavro

from ledgers.avro_containers import container, decoded, put_long, unpacked, writer_schema
from ledgers.errors import CorruptSnapshot, MissingFile
from ledgers.io_errors import explained, retried
from ledgers.model import CompactedPart, Ledger, Part
from ledgers.snapshot_checks import check_block, check_numbers
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
        # The next fields have a `default`, and therefore no `doc`. With both, files of equal content could have different
        # bytes, because fastavro writes the two in the order of a Python set, which differs between processes. `files`: the files
        # into which compaction has moved parts. `fileOf`: for each part the place of its file in `files`, counted from 1, or 0 if
        # the part has a file of its own. An empty list means that all parts have 0. `gaps`: for each moved part, how many rows of
        # the file lie between the previous part and this part. If the previous part is in another file, the rows are counted from
        # the beginning of the file. `stats`: the statistics of each part with a file of its own, or an empty text. An empty list
        # means that no part has statistics. The statistics of a compacted file are in its record.
        {
            "name": "files",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "CompactedFile",
                    "fields": [
                        {"name": "path", "type": "string"},
                        {"name": "bytes", "type": "long"},
                        {"name": "crc", "type": "long", "doc": "CRC-32 of the footer"},
                        {"name": "groups", "type": _LONGS, "doc": "rows of each row group"},
                        {"name": "stats", "type": "string", "default": ""},
                    ],
                },
            },
            "default": [],
        },
        {"name": "fileOf", "type": _LONGS, "default": []},
        {"name": "gaps", "type": _LONGS, "default": []},
        {"name": "stats", "type": _TEXTS, "default": []},
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
    """A block in a directory: first and last ledgerId, its length in the file without the sync marker, and the CRC-32 of these
    bytes.
    """

    first: int
    last: int
    size: int
    crc: int


class Header(NamedTuple):
    """The header of a ledger file: its bytes, the sync marker after each block, and the blocks in order."""

    raw: bytes
    sync: bytes
    blocks: tuple[Block, ...]


def block_record(ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """Return ledgers as a LedgerBlock record."""
    parts = [part for ledger in ledgers for part in ledger.parts]
    paths = ["" if isinstance(part, CompactedPart) else part.path for part in parts]
    own = [path for path in paths if path]
    prefix = _common(own)
    suffix = _common([path[len(prefix) :][::-1] for path in own])[::-1]
    return {
        "ids": _differences([ledger.id for ledger in ledgers]),
        "publishMs": _differences([ledger.publish_ms for ledger in ledgers]),
        "txns": [ledger.txn or "" for ledger in ledgers],
        "partCounts": [len(ledger.parts) for ledger in ledgers],
        "prefix": prefix,
        "suffix": suffix,
        "names": [path[len(prefix) : len(path) - len(suffix)] if path else "" for path in paths],
        "rows": [part.rows for part in parts],
        "bytes": [part.bytes for part in parts],
        "crcs": [part.crc if path else 0 for part, path in zip(parts, paths, strict=True)],
        "schemas": [part.schema for part in parts],
        "entryCounts": [len(part.entries) for part in parts],
        "entries": [rows for part in parts for rows in part.entries],
        **_moved(parts),
        "stats": _statistics(parts),
    }


def _statistics(parts: Sequence[Part]) -> list[str]:
    found = ["" if isinstance(part, CompactedPart) else part.stats or "" for part in parts]
    return found if any(found) else []


def _moved(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the columns that describe compacted files and the places of parts in them."""
    files: dict[str, tuple[int, dict[str, Any]]] = {}
    file_of: list[int] = []
    gaps: list[int] = []
    before, end = 0, 0
    for part in parts:
        if not isinstance(part, CompactedPart):
            file_of.append(0)
            before = 0
            continue
        number, _ = files.setdefault(
            part.path,
            (len(files) + 1, _file(part)),
        )
        file_of.append(number)
        gaps.append(part.first_row - (end if number == before else 0))
        before, end = number, part.first_row + part.rows
    return {"files": [f for _, f in files.values()], "fileOf": file_of if files else [], "gaps": gaps}


def _file(part: CompactedPart) -> dict[str, Any]:
    known = {"path": part.path, "bytes": part.file_bytes, "crc": part.crc, "groups": list(part.groups)}
    return {**known, "stats": part.stats or ""}


def _common(texts: Sequence[str]) -> str:
    """Return the common prefix of all texts, which is the common prefix of the lowest and the highest text."""
    low, high = min(texts, default=""), max(texts, default="")
    same = 0
    while same < len(low) and low[same] == high[same]:
        same += 1
    return low[:same]


def _differences(values: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *values], values, strict=False)]


def block_ledgers(record: dict[str, Any]) -> Iterator[Ledger]:
    """Yield the ledgers of a LedgerBlock record, ascending."""
    parts = _moved_parts(record) if record.get("files") else _own_parts(record)
    for number, publish_ms, txn, count in zip(
        accumulate(record["ids"]), accumulate(record["publishMs"]), record["txns"], record["partCounts"], strict=True
    ):
        own = (next(parts),) if count == 1 else tuple(next(parts) for _ in range(count))
        yield Ledger(number, publish_ms, txn or None, own)


def _own_parts(record: dict[str, Any]) -> Iterator[Part]:
    prefix, suffix = record["prefix"], record["suffix"]
    found = zip(*(record[key] for key in ("names", "rows", "bytes", "crcs")), _entries(record), record["schemas"], strict=True)
    if not record.get("stats"):
        return (Part(f"{prefix}{name}{suffix}", *facts) for name, *facts in found)
    return (
        Part(f"{prefix}{name}{suffix}", *facts, stats=stats or None)
        for (name, *facts), stats in zip(found, record["stats"], strict=True)
    )


def _moved_parts(record: dict[str, Any]) -> Iterator[Part]:
    """Yield the parts of a block of which some parts are in compacted files. (`_own_parts` does this for all other blocks.)"""
    files = [(f["path"], f["crc"], f["bytes"], tuple(f["groups"]), f.get("stats") or None) for f in record["files"]]
    gaps = iter(record["gaps"])
    before = end = 0
    for number, own, total, size, schema in zip(
        record["fileOf"], _own_parts(record), *(record[key] for key in ("rows", "bytes", "schemas")), strict=True
    ):
        if number:
            path, crc, file_bytes, groups, stats = files[number - 1]
            first = next(gaps) + (end if number == before else 0)
            yield CompactedPart(path, total, size, crc, own.entries, schema, first, file_bytes, groups, stats=stats)
            end = first + total
        else:
            yield own
        before = number


def _entries(record: dict[str, Any]) -> Iterator[tuple[int, ...]]:
    rows = iter(record["entries"])
    return ((next(rows),) if count == 1 else tuple(next(rows) for _ in range(count)) for count in record["entryCounts"])


def encode_block(ledgers: Sequence[Ledger]) -> tuple[Block, bytes]:
    """Encode a block of a ledger file: count, size and deflated record, without the sync marker."""
    plain = BytesIO()
    fastavro.schemaless_writer(plain, _BLOCK, block_record(ledgers))
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    packed = deflate.compress(plain.getvalue()) + deflate.flush()
    raw = put_long(1) + put_long(len(packed)) + packed
    return Block(ledgers[0].id, ledgers[-1].id, len(raw), zlib.crc32(raw)), raw


def _decode_block(raw: bytes, schema: Any) -> dict[str, Any]:
    """Decode the LedgerBlock record of a block written with `schema`. Files of older versions of txnsegment lack newer columns.
    Raises ValueError.
    """
    record = decoded(unpacked(raw), schema)
    check_block(record)
    return record


def _schema_text() -> bytes:
    out = BytesIO()
    fastavro.writer(out, _BLOCK, [])
    return container(out.getvalue()).metadata["avro.schema"]


_TODAY = _schema_text()
"""The current schema of blocks, as fastavro writes it into headers."""


def make_header(path: str, blocks: Sequence[Block]) -> Header:
    """Build the header of a ledger file with these blocks."""
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
    return Header(b"".join((_BEFORE, put_long(len(packed)), packed, _AFTER, sync)), sync, tuple(blocks))


def _around() -> tuple[bytes, bytes]:
    """Return the bytes before and after the directory in the header of every ledger file, as fastavro writes them. They are mostly
    the schema, so they are encoded only once.
    """
    out, mark = BytesIO(), "directory"
    fastavro.writer(out, _BLOCK, [], codec="deflate", sync_marker=bytes(16), metadata={_DIRECTORY: mark})
    before, after = out.getvalue()[:-16].split(put_long(len(mark)) + mark.encode())
    return before, after


_BEFORE, _AFTER = _around()


def write_ledgers(storage: LedgerStorage, path: str, header: Header, blocks: Iterable[bytes]) -> int:
    """Publish a ledger file and return its length in bytes. Raises StorageError."""
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
    """An open ledger file, whose header is checked against the length and `crc` in a head. Raises CorruptSnapshot."""

    def __init__(self, storage: LedgerStorage, path: str, header_bytes: int, crc: int) -> None:
        self._place = storage.place(path)
        try:
            self._stream = storage.open_input(path)
        except MissingFile as error:
            raise corrupt(self._place, "it is missing") from error
        try:
            with explained("read", self._place):
                self._size: int = self._stream.size()
                raw = self._read(0, header_bytes) if header_bytes <= self._size else b""
            if len(raw) != header_bytes or zlib.crc32(raw) != crc:
                raise corrupt(self._place, "the CRC of its header differs")
            self.header_bytes = header_bytes
            with self._checked("its header"):
                self.blocks, self._schema, self.is_current = _directory(raw)
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> LedgerFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def _read(self, at: int, count: int) -> bytes:
        def once() -> bytes:
            self._stream.seek(at)
            found: bytes = self._stream.read(count)
            return found

        return retried(once)

    def raw_blocks(self, after: int = -1, through: int | None = None) -> Iterator[bytes]:
        """Yield the blocks that hold numbers with after < number <= through, in order, each checked against its CRC."""
        at = self.header_bytes
        for block in self.blocks:
            if block.last > after and (through is None or block.first <= through):
                with explained("read", self._place):
                    raw = self._read(min(at, self._size), min(block.size, self._size))
                if len(raw) != block.size or zlib.crc32(raw) != block.crc:
                    raise corrupt(self._place, f"the CRC of its block of ledgers {block.first} to {block.last} differs")
                yield raw
            at += block.size + 16

    def records(self, after: int, through: int) -> Iterator[dict[str, Any]]:
        """Yield the LedgerBlock records that hold numbers with after < number <= through, in order."""
        for raw in self.raw_blocks(after, through):
            yield self._decoded(raw)

    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        """Yield the ledgers with after < number <= through, ascending."""
        for record in self.records(after, through):
            for ledger in block_ledgers(record):
                if after < ledger.id <= through:
                    yield ledger

    def current_blocks(self) -> Iterator[tuple[Block, bytes]]:
        """Yield all blocks in the current format. Blocks that are in this format already are copied unchanged."""
        for block, raw in zip(self.blocks, self.raw_blocks(), strict=True):
            yield (block, raw) if self.is_current else encode_block(list(block_ledgers(self._decoded(raw))))

    def _decoded(self, raw: bytes) -> dict[str, Any]:
        with self._checked("a block"):
            return _decode_block(raw, self._schema)

    @contextmanager
    def _checked(self, what: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise corrupt(self._place, f"{what} has a correct CRC but is invalid: {error}") from error


def _directory(raw: bytes) -> tuple[tuple[Block, ...], Any, bool]:
    """Return the blocks, the schema with which they were written, and whether this is the current schema. Raises ValueError."""
    head = container(raw)
    if head.begin != len(raw) or head.metadata.get("avro.codec") != b"deflate" or _DIRECTORY not in head.metadata:
        raise ValueError("it is not a header of a ledger file")
    columns = decoded(bytes.fromhex(head.metadata[_DIRECTORY].decode("ascii")), _DIRECTORY_SCHEMA)
    for name, least in (("firsts", 0), ("lasts", 0), ("sizes", 1), ("crcs", 0)):
        check_numbers(columns[name], least, f"its directory has {name}, which")
    blocks = tuple(starmap(Block, zip(columns["firsts"], columns["lasts"], columns["sizes"], columns["crcs"], strict=True)))
    edges = [number for block in blocks for number in (block.first, block.last)]
    if edges != sorted(edges):
        raise ValueError("its blocks are not in ascending order")
    is_current = head.metadata.get("avro.schema") == _TODAY
    return blocks, _BLOCK if is_current else writer_schema(head.metadata), is_current


def corrupt(place: str, what: str) -> CorruptSnapshot:
    """Build the error for a snapshot file that does not match its reference."""
    return CorruptSnapshot(
        f"The index snapshot {place} cannot be used: {what}.",
        advice="Restore the file from a copy: the segment's older ledgers are listed nowhere else. No row was left out silently.",
    )
