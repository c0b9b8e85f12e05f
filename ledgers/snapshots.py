"""Index snapshots: the ledgers of a segment up to its watermark (protocol.md sections 1 and 7).

A snapshot is a chain. The watermark record names its head. The head names ledger files and holds the newest few ledgers itself. All
files are immutable and have unique names. Extending a chain writes a new head, and sometimes one ledger file in place of the last
ones. The costs are bounded:

- a ledger is copied about once for each power of FANOUT in the size of the chain (blocks are copied unchanged)
- a read of the numbers a..b opens only the files that overlap a..b, and reads only the blocks that overlap a..b
- a chain of n parts has at most FANOUT files for each power of FANOUT in n

Files that a new head no longer names stay until the orphan sweep deletes them, for readers that planned from an older head.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

import fastavro

from ledgers.avro_containers import OneRecord
from ledgers.errors import MissingFile
from ledgers.model import Ledger
from ledgers.snapshot_checks import check_head
from ledgers.snapshot_files import (
    BLOCK,
    Block,
    LedgerFile,
    block_ledgers,
    block_record,
    corrupt,
    encode_block,
    make_header,
    write_ledgers,
)
from ledgers.storage import LedgerStorage, segment_folder

SUFFIX = ".avro"
"""Suffix of the names of all index snapshot files; no other file has it."""

TAIL_PARTS = 256
"""A head has fewer parts than this. When it would have this number or more, its parts move into a ledger file. A block of a ledger
file also has about this number of parts.
"""

FANOUT = 8

MOST_RUNS = 256
"""Maximum number of runs in a head. A head must stay small, because each fold writes a new head."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A ledger file of a chain, as its head names it.

    first, last          lowest and highest ledgerId in it
    ledgers, parts       how many ledgers and parts it lists
    rows, bytes          totals of these parts
    publish_max          the highest publish time (ms) of the chain's ledgers up to `last`, also of those in earlier files
    header_bytes, crc    length and CRC-32 of its header
    """

    path: str
    first: int
    last: int
    ledgers: int
    parts: int
    rows: int
    bytes: int
    publish_max: int
    header_bytes: int
    crc: int

    @property
    def level(self) -> int:
        """Return the level of the file: the highest L for which the file has at least TAIL_PARTS * FANOUT**L parts, or 0."""
        return _level(self.parts)


@dataclass(frozen=True, slots=True)
class Run:
    """The ledgers `ledger` to `last` of a chain. Their rows are exactly one range of rows of one compacted file. A read of the
    whole run uses this record and does not read the ledgers. `publish_ms` and `txn` (empty: none) are those of the first ledger.
    The other fields have the meaning of those in CompactedPart. (`stats`: empty for None.)
    """

    ledger: int
    last: int
    publish_ms: int
    txn: str
    path: str
    rows: int
    bytes: int
    crc: int
    schema: int
    first_row: int
    file_bytes: int
    groups: tuple[int, ...]
    stats: str = ""


@dataclass(frozen=True)
class SnapshotHead:
    """A snapshot: `files` in ascending order, then the ledgers of `tail`.

    runs                 ranges of ledgers that compaction merged, ascending; at most MOST_RUNS, so some can be missing
    watermark            the position (ledgerId, entryId) up to which the snapshot lists the segment
    ledgers, rows, bytes totals of the chain
    last_ledger          the highest ledgerId in the chain
    publish_max          the highest publish time (ms) in the chain
    file_bytes           length of the head's own file
    """

    path: str
    segment: str
    watermark: tuple[int, int]
    files: tuple[SnapshotFile, ...]
    tail: tuple[Ledger, ...]
    ledgers: int
    rows: int
    bytes: int
    last_ledger: int
    publish_max: int
    file_bytes: int
    runs: tuple[Run, ...] = ()


_TYPES: dict[str, Any] = {"str": "string", "int": "long", "tuple[int, ...]": {"type": "array", "items": "long"}}


def _record(kind: type[SnapshotFile | Run]) -> dict[str, Any]:
    fields = [{"name": n, "type": _TYPES[str(f.type)]} for n, f in kind.__dataclass_fields__.items() if n != "stats"]
    return {"type": "record", "name": kind.__name__, "namespace": "org.txnsegment", "fields": fields}


def _fields(value: SnapshotFile | Run) -> dict[str, Any]:
    """Return the fields by name. (`dataclasses.asdict` copies the values deeply, and takes many times as long.)"""
    return {name: getattr(value, name) for name in value.__dataclass_fields__ if name != "stats"}


_HEAD = OneRecord(
    fastavro.parse_schema(
        {
            "type": "record",
            "name": "SnapshotHead",
            "namespace": "org.txnsegment",
            "fields": [
                {"name": "segment", "type": "string"},
                {"name": "ledgerId", "type": "long"},
                {"name": "entryId", "type": "long"},
                {"name": "files", "type": {"type": "array", "items": _record(SnapshotFile)}},
                {"name": "tail", "type": BLOCK},
                {"name": "runs", "type": {"type": "array", "items": _record(Run)}, "default": []},
                # The statistics of the runs. They are no field of a run, because versions before format 3 refuse a run with it.
                {"name": "runStats", "type": {"type": "array", "items": "string"}, "default": []},
            ],
        }
    )
)


def extend(
    storage: LedgerStorage,
    head: str | None,
    segment: str,
    ledgers: Sequence[Ledger],
    *,
    watermark: tuple[int, int],
    name: str,
) -> str:
    """Write the snapshot that lists the ledgers of `head` (None: none) and then `ledgers`. Return the path of its head.

    `ledgers` are in ascending order, all above the chain's last ledger, and none above `watermark`. `name` is unique and begins
    with a letter or digit. No record names the written files before the caller's CAS of the watermark record. Raises
    CorruptSnapshot, StorageError; ValueError for numbers out of order.
    """
    before = None if head is None else read_head(storage, head)
    _check_order(before, ledgers, watermark)
    files = [] if before is None else list(before.files)
    tail = [*(before.tail if before is not None else ()), *ledgers]
    if _parts(tail) >= TAIL_PARTS:
        files = _append(storage, f"{_folder(segment)}/{name}-ledgers{SUFFIX}", files, tail)
        tail = []
    return write_head(storage, segment, watermark, files, tail, () if before is None else before.runs, name=name)


def write_head(
    storage: LedgerStorage,
    segment: str,
    watermark: tuple[int, int],
    files: Sequence[SnapshotFile],
    tail: Sequence[Ledger],
    runs: Sequence[Run],
    *,
    name: str,
) -> str:
    """Publish a head and return its path. If there are more than MOST_RUNS runs, the head has only those with the most rows. Raises
    StorageError.
    """
    kept = sorted(nlargest(MOST_RUNS, runs, key=lambda run: run.rows), key=lambda run: run.ledger)
    record = {
        "segment": segment,
        "ledgerId": watermark[0],
        "entryId": watermark[1],
        "files": [_fields(file) for file in files],
        "tail": block_record(tail),
        "runs": [_fields(run) for run in kept],
        "runStats": [run.stats for run in kept] if any(run.stats for run in kept) else [],
    }
    data = _HEAD.write(record, zlib.crc32(name.encode()).to_bytes(16, "big"))
    path = f"{_folder(segment)}/{name}-{zlib.crc32(data):08x}{SUFFIX}"
    storage.publish(path, data)
    return path


def read_head(storage: LedgerStorage, path: str) -> SnapshotHead:
    """Read the snapshot with the head `path`. Heads never change, so results can be cached. Raises CorruptSnapshot,
    StorageError.
    """
    place = storage.place(path)
    try:
        data = storage.read(path)
    except MissingFile as error:
        raise corrupt(place, "it is missing") from error
    if not _has_its_crc(path, data):
        raise corrupt(place, "its CRC differs from the one in its name")
    try:
        record = _HEAD.read(data)
        check_head(record)
        files = tuple(SnapshotFile(**file) for file in record["files"])
        found = record.get("runs", ())
        stats = record.get("runStats") or [""] * len(found)
        runs = tuple(Run(**{**run, "groups": tuple(run["groups"]), "stats": s}) for run, s in zip(found, stats, strict=True))
    except (ValueError, TypeError) as error:  # a missing or unknown field is a TypeError
        raise corrupt(place, f"it has a correct CRC but is not a head: {error}") from error
    tail = tuple(block_ledgers(record["tail"]))
    last = tail[-1].id if tail else files[-1].last if files else -1
    return SnapshotHead(
        path=path,
        segment=record["segment"],
        watermark=(record["ledgerId"], record["entryId"]),
        files=files,
        tail=tail,
        ledgers=sum(f.ledgers for f in files) + len(tail),
        rows=sum(f.rows for f in files) + sum(t.rows for t in tail),
        bytes=sum(f.bytes for f in files) + sum(t.bytes for t in tail),
        last_ledger=last,
        publish_max=max([0, *(f.publish_max for f in files), *(t.publish_ms for t in tail)]),
        file_bytes=len(data),
        runs=runs,
    )


def _has_its_crc(path: str, data: bytes) -> bool:
    """Return whether the content of a head's file has the CRC-32 in the file's name."""
    return path[-len(SUFFIX) - 8 :] == f"{zlib.crc32(data):08x}{SUFFIX}"


def read_ledgers(storage: LedgerStorage, head: SnapshotHead, after: int, through: int) -> Iterator[Ledger]:
    """Yield the ledgers with after < id <= through, ascending. Raises CorruptSnapshot, StorageError."""
    for file in head.files:
        if file.last > after and file.first <= through:
            with open_file(storage, file) as opened:
                yield from opened.ledgers(after, through)
    for ledger in head.tail:
        if after < ledger.id <= through:
            yield ledger


def read_records(storage: LedgerStorage, head: SnapshotHead, after: int, through: int) -> Iterator[dict[str, Any]]:
    """Yield the ledgers of `read_ledgers` as LedgerBlock records, in order. A block that overlaps the range of numbers is yielded
    whole. Raises CorruptSnapshot, StorageError.
    """
    for file in head.files:
        if file.last > after and file.first <= through:
            with open_file(storage, file) as opened:
                yield from opened.records(after, through)
    tail = [ledger for ledger in head.tail if after < ledger.id <= through]
    if tail:
        yield block_record(tail)


def files(head: SnapshotHead) -> list[str]:
    """Return the paths of all files of the snapshot, its head included. The orphan sweep does not delete these files."""
    return [head.path, *(file.path for file in head.files)]


def _check_order(before: SnapshotHead | None, ledgers: Sequence[Ledger], watermark: tuple[int, int]) -> None:
    last = -1 if before is None else before.last_ledger
    for ledger in ledgers:
        if ledger.id <= last:
            raise ValueError(f"ledger {ledger.id} does not come after {last}")
        last = ledger.id
    if watermark[0] < last or (before is not None and watermark < before.watermark):
        raise ValueError(f"the watermark {watermark} lies below ledger {last} or moves back")


def _folder(segment: str) -> str:
    return f"{segment_folder(*segment.removeprefix('segment://').split('/'))}/index"


def _parts(ledgers: Sequence[Ledger]) -> int:
    return sum(max(len(ledger.parts), 1) for ledger in ledgers)


def _level(parts: int) -> int:
    level = 0
    while parts >= TAIL_PARTS * FANOUT ** (level + 1):
        level += 1
    return level


def _append(storage: LedgerStorage, path: str, files: list[SnapshotFile], tail: Sequence[Ledger]) -> list[SnapshotFile]:
    """Write a new ledger file with `tail` at the end of a chain. The file replaces the last `_to_join` files of the chain and
    begins with their ledgers. Return the files of the extended chain.
    """
    joined = _to_join([file.parts for file in files], _parts(tail))
    kept, old = files[: len(files) - joined], files[len(files) - joined :]
    new = [encode_block(some) for some in _blocks(tail)]
    blocks = [block for file in old for block in _blocks_of(storage, file)] + [block for block, _ in new]
    header = make_header(path, blocks)
    write_ledgers(storage, path, header, _copied(storage, old, [raw for _, raw in new]))
    earlier = files[-1].publish_max if files else 0
    whole = SnapshotFile(
        path=path,
        first=old[0].first if old else tail[0].id,
        last=tail[-1].id,
        ledgers=sum(f.ledgers for f in old) + len(tail),
        parts=sum(f.parts for f in old) + _parts(tail),
        rows=sum(f.rows for f in old) + sum(t.rows for t in tail),
        bytes=sum(f.bytes for f in old) + sum(t.bytes for t in tail),
        publish_max=max(earlier, *(t.publish_ms for t in tail)),
        header_bytes=len(header.raw),
        crc=zlib.crc32(header.raw),
    )
    return [*kept, whole]


def _to_join(parts: Sequence[int], new: int) -> int:
    """Return how many files at the end of a chain are joined with a new file of `new` parts. `parts`: how many parts each file of
    the chain has. After the join the levels of the files (`_level`) never rise along the chain, and fewer than FANOUT files have
    the same level.
    """
    joined = 0
    while True:
        level = _level(new)
        rest = parts[: len(parts) - joined]
        smaller = same = 0
        while smaller < len(rest) and _level(rest[-1 - smaller]) < level:
            smaller += 1
        while smaller + same < len(rest) and _level(rest[-1 - smaller - same]) == level:
            same += 1
        take = smaller + same if same + 1 >= FANOUT else smaller
        if not take:
            return joined
        new += sum(rest[len(rest) - take :])
        joined += take


def _blocks(ledgers: Sequence[Ledger]) -> Iterator[Sequence[Ledger]]:
    """Yield runs of ledgers of about TAIL_PARTS parts each."""
    start = count = 0
    for at, ledger in enumerate(ledgers):
        count += max(len(ledger.parts), 1)
        if count >= TAIL_PARTS:
            yield ledgers[start : at + 1]
            start, count = at + 1, 0
    if start < len(ledgers):
        yield ledgers[start:]


def open_file(storage: LedgerStorage, file: SnapshotFile) -> LedgerFile:
    """Open a ledger file of a chain, as a context manager. Raises CorruptSnapshot, StorageError."""
    return LedgerFile(storage, file.path, file.header_bytes, file.crc)


def _blocks_of(storage: LedgerStorage, file: SnapshotFile) -> tuple[Block, ...]:
    with open_file(storage, file) as opened:
        return opened.blocks if opened.is_current else tuple(block for block, _ in opened.current_blocks())


def _copied(storage: LedgerStorage, old: Sequence[SnapshotFile], new: Sequence[bytes]) -> Iterator[bytes]:
    for file in old:
        with open_file(storage, file) as opened:
            yield from (raw for _, raw in opened.current_blocks())
    yield from new
