"""A backup as one file of JSON lines, compressed with gzip and readable with `zcat`. The first line is the heading, and the last
line is the checksum:

    {"txnsegmentBackup":1,"cluster":"..","ledgers":"file:///..","number":977,"takenMs":..,"createdAtMs":..,"records":42, ..}
    {"key":"/log/log-00000000000000000977","partition":"log","record":{..}}
    ..
    {"sha256":".."}

The checksum covers the bytes of all lines before it. A record line has the bytes of the record exactly as the store has them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import Field, ValidationError, model_validator

from ledgers.disk import disk
from ledgers.io_errors import reason
from ledgers.json_text import MAX_BYTES, read_json
from ledgers.local_files import publish_file, temporary_of, unlink
from ledgers.plain_text import shown
from metadata.backup.record_kinds import kind_of
from metadata.common.errors import BackupDamaged, ConfigurationError, CorruptRecord
from metadata.instream.ack_records import SubscriptionRecord
from metadata.instream.txn_records import TxnLogRecord
from metadata.records.cluster_records import Lost, Settings
from metadata.records.json_records import JsonRecord, Whole, why
from metadata.records.paths import Key, sequence_number
from metadata.records.persistent_records import LogEntry, NamespaceModel, PersistentLayout
from metadata.records.records import AbortedTxn, Application, Cursor, Layout, Policies, Registration, TopicSchema, Watermark
from metadata.rules import strides
from metadata.rules.strides import MAX_NUMBER
from metadata.store.contract import MAX_VALUE

FORMAT = 1
FORMAT_ERAS = 2
"""The format of a backup with records of the marker-based model, as older versions of txnsegment wrote it. These records say that
all logs continue in the next era of 10^10 numbers (`strides.ERA`).
"""
FORMAT_IN_STREAM = 3
"""The format of a backup with records of the marker-based model. These records say at which number their logs continue
(`Heading.in_stream_following`). A version of txnsegment that knows only older formats would continue the logs at another number,
and new transactions would not count there. So such a version must refuse the file.
"""
FORMATS = (FORMAT, FORMAT_ERAS, FORMAT_IN_STREAM)
LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""
SMALL, RATIO = 16 * 2**20, 64
"""A backup file may unpack to at most SMALL bytes, or to RATIO times its size if that is more."""
CHUNK = 2**20
MAX_HEAD = 2**20
"""Maximum length of a line in bytes, without the record in it."""
MAX_LINE = MAX_BYTES + MAX_HEAD
HELD = frozenset(
    (
        *(AbortedTxn, Application, Cursor, Layout, Policies, Registration, TopicSchema, Watermark),
        *(LogEntry, NamespaceModel, PersistentLayout, SubscriptionRecord, TxnLogRecord),
    )
)
"""The record types of a backup."""
_RECORD = b',"record":'
_CHECKSUM = b'{"sha256":'
Number = Annotated[Whole, Field(ge=0, le=MAX_NUMBER)]


class Heading(JsonRecord):
    """The first line of a backup.

    `number`: the backup has everything up to this log number, and nothing above it. `next_txn`: a number above all transaction ids
    that were allocated when the backup read their sequences. `topics`: how many topics of both models exist. `restored`: as in the
    cluster's record. `in_stream`: the highest number in the logs of the marker-based model; None if the backup has none.
    """

    txnsegment_backup: Whole = FORMAT
    cluster: str
    ledgers: str
    number: Number
    taken_ms: Annotated[Whole, Field(ge=0, le=LAST_MS)]
    created_at_ms: Whole
    next_txn: Number
    topics: Number
    records: Number
    settings: Settings
    restored: tuple[Lost, ...] | None = None
    in_stream: Number | None = None

    @model_validator(mode="after")
    def _restored_in_order(self) -> Self:
        end = -1
        for lost in self.restored or ():
            if not end < lost.before <= MAX_NUMBER or not -1 <= lost.after < lost.before:
                raise ValueError("the lost ranges of its restores are not in ascending order")
            end = lost.before
        return self

    @property
    def following(self) -> int:
        """Return the first number of the restored cluster's log: the start of the next stride. It is above every number in the
        backup. It is also above every `lost.before`: if the lost cluster was itself restored, its numbers began at the highest
        `lost.before`, although the backup may have no number as high as that.
        """
        return strides.following(max(self.number, strides.lost_to(self.restored or ())), strides.STRIDE)

    @property
    def in_stream_following(self) -> int:
        """Return the first number of all logs of the marker-based model after a restore. The records of a backup of format 2 have
        this number as the start of the next era, so it must stay that.
        """
        restored = self.restored or ()
        if self.txnsegment_backup == FORMAT_ERAS:
            return strides.following(max(self.number, self.in_stream or 0, strides.lost_to(restored)), strides.ERA)
        last = max([self.in_stream or 0, *map(strides.marked_from, restored)])
        return strides.following(last, strides.MARKED_STRIDE)


@dataclass(frozen=True, slots=True)
class Kept:
    """One record of a backup: its key and its bytes. A backup has no index entries: the restore derives them from the key and the
    bytes.
    """

    key: Key
    value: bytes


@dataclass(frozen=True)
class Backup:
    """The metadata of a cluster at the moment when its log was decided up to `heading.number`. `sha256`: the checksum of all lines
    before the last one.
    """

    heading: Heading
    records: tuple[Kept, ...]
    sha256: str


def made(heading: Heading, records: tuple[Kept, ...]) -> Backup:
    return Backup(heading, records, hashlib.sha256(_lines(heading, records)).hexdigest())


def write(path: Path, backup: Backup) -> int:
    """Write the backup file atomically and durably. Return its length in bytes. Raises ConfigurationError if the file exists or
    cannot be written.
    """
    lines = _lines(backup.heading, backup.records) + json.dumps({"sha256": backup.sha256}).encode() + b"\n"
    data = gzip.compress(lines, mtime=0)
    if len(lines) > _most(len(data)):
        # stored uncompressed, because `read` refuses this compression ratio as a decompression bomb
        data = gzip.compress(lines, compresslevel=0, mtime=0)
    on, path = disk(), path.absolute()
    unfinished = temporary_of(path)
    try:
        try:
            # Mode 0600, whatever the umask: the file holds the names, subscriptions and properties of all topics.
            with on.create(unfinished, mode=0o600) as out:
                out.write(data)
            publish_file(on, unfinished, path)
        except BaseException:
            unlink(on, unfinished)
            raise
    except FileExistsError as error:
        raise ConfigurationError(f"{path} exists already.", advice="A backup replaces nothing: give another name.") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {reason(error)}.", advice="Choose another folder.") from error
    return len(data)


def check_new(path: Path) -> None:
    """Raise ConfigurationError if the file exists."""
    try:
        disk().info(path.absolute())
    except OSError:
        return
    raise ConfigurationError(f"{path} exists already.", advice="A backup replaces nothing: give another name.")


def read(path: Path) -> Backup:
    """Read and check a whole file. Memory and time are bounded by the file's size. Raises BackupDamaged, which names the line and
    the key, for a damaged file or another format. Raises ConfigurationError if the file cannot be read.
    """
    try:
        with disk().open(path.absolute()) as opened:
            return _read(path, _unpacked(path, opened))
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {reason(error)}.", advice="Name a file that `txnsegment backup` wrote."
        ) from error


def _read(path: Path, lines: Iterator[bytes]) -> Backup:
    first = next(lines, b"")
    heading = _heading(path, first)
    checksum = hashlib.sha256(first + b"\n")
    found: list[Kept] = []
    for number in range(2, heading.records + 2):
        line = next(lines, None)
        if line is None or line.startswith(_CHECKSUM):
            raise _damaged(path, f"it has {len(found)} records, not {heading.records}")
        kept = _kept(path, number, line)
        _check(path, number, heading, kept, found[-1].key if found else None)
        found.append(kept)
        checksum.update(line + b"\n")
    last, sha256 = _object(path, heading.records + 2, next(lines, b"")).get("sha256"), checksum.hexdigest()
    if last != sha256:
        raise _damaged(path, f"its lines have the SHA-256 {sha256[:12]}.., its last line says {str(last)[:12]}..")
    if next(lines, None) is not None:
        raise _damaged(path, "there is data after its last line")
    return Backup(heading, tuple(found), sha256)


def _most(packed: int) -> int:
    """Return how many bytes a file of `packed` bytes may unpack to. A decompression bomb unpacks to a thousand times its size, a
    backup to about ten times.
    """
    return max(SMALL, RATIO * packed)


def _unpacked(path: Path, opened: pa.NativeFile) -> Iterator[bytes]:
    """Yield the lines, without line ends, of a gzip file. Memory holds at most one line and one chunk."""
    most, total = _most(opened.size()), 0
    begun: list[bytes] = []  # the beginning of an incomplete line
    held = 0
    inflate = zlib.decompressobj(wbits=31)
    while not inflate.eof:
        packed = opened.read(CHUNK)
        if not packed:
            raise _damaged(path, "it is not a complete gzip file (it is truncated)")
        data = b"-"
        while data and not inflate.eof:
            try:
                data = inflate.decompress(packed, CHUNK)
            except zlib.error as error:
                raise _damaged(path, f"it is not a complete gzip file ({error})") from error
            packed, total = inflate.unconsumed_tail, total + len(data)
            if total > most:
                raise _damaged(path, f"its {opened.size()} bytes unpack to more than {most}, which no backup does")
            *whole, rest = data.split(b"\n")
            if whole:
                yield b"".join((*begun, whole[0]))
                yield from whole[1:]
                begun, held = [], 0
            begun.append(rest)
            held += len(rest)
            if held > MAX_LINE:
                raise _damaged(path, f"it has a line of more than {MAX_LINE} bytes")
    if inflate.unused_data or opened.read(1):
        raise _damaged(path, "there is data after its end")
    if held:
        yield b"".join(begun)


def _lines(heading: Heading, records: tuple[Kept, ...]) -> bytes:
    return b"".join(line + b"\n" for line in (heading.to_bytes(), *map(_line, records)))


def _line(kept: Kept) -> bytes:
    assert b"\n" not in kept.value  # no record's JSON has a line break
    head = json.dumps({"key": kept.key.path, "partition": kept.key.partition}, ensure_ascii=False, separators=(",", ":"))
    return head[:-1].encode() + _RECORD + kept.value + b"}"


def _kept(path: Path, number: int, line: bytes) -> Kept:
    head, found, value = line.partition(_RECORD)  # quotes in JSON strings are escaped, so the record begins at the first match
    if not found or not value.endswith(b"}"):
        raise _damaged(path, f"line {number} is not a record: {line[:100]!r}")
    fields = _object(path, number, head + b"}")
    if set(fields) != {"key", "partition"} or not all(isinstance(one, str) for one in fields.values()):
        raise _damaged(path, f"line {number} is not a record: {line[:100]!r}")
    return Kept(Key(fields["key"], fields["partition"]), value[:-1])


def _check(path: Path, number: int, heading: Heading, kept: Kept, before: Key | None) -> None:
    """Raise BackupDamaged if a backup with this heading cannot have this record at this line."""
    key, line = kept.key, f"line {number} ({shown(kept.key.path[:200])})"
    if before is not None and key <= before:
        raise _damaged(path, f"{line} is not in order after {shown(before.path[:200])}")
    found = kind_of(key.path)
    if found is None or found[0] not in HELD:
        raise _damaged(path, f"{line}: a backup has no record of that key")
    kind, wanted = found
    if key != wanted:
        raise _damaged(path, f"{line} has the partition key {key.partition[:200]!r}, not {wanted.partition[:200]!r}")
    if len(kept.value) > MAX_VALUE and kind is not TxnLogRecord:
        raise _damaged(path, f"{line} has {len(kept.value)} bytes; a record has {MAX_VALUE} at most")
    end = {Registration: heading.number, LogEntry: heading.in_stream or 0}.get(kind)
    if end is not None and sequence_number(key.path) > end:
        raise _damaged(path, f"{line} lies above the end of its log, {end}")
    try:
        kind.from_bytes(kept.value)
    except CorruptRecord as error:
        raise _damaged(path, f"{line}: {error.message.rstrip('.')}") from error


def _heading(path: Path, line: bytes) -> Heading:
    fields = _object(path, 1, line)
    version = fields.get("txnsegmentBackup")
    if version not in FORMATS:
        raise BackupDamaged(
            f"{path} is not a backup that this version of txnsegment can read: "
            f"its format is {version!r:.99}, not one of {', '.join(map(str, FORMATS))}.",
            advice="Restore it with the version that wrote it, or a later one. Nothing was restored.",
        )
    try:
        return Heading.model_validate(fields)
    except ValidationError as error:
        raise _damaged(path, f"line 1 is not the first of a backup ({why(error)})") from error


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = read_json(line, most=MAX_HEAD)
    except ValueError as error:
        raise _damaged(path, f"line {number} is not JSON ({error}): {line[:100]!r}") from error
    if not isinstance(found, dict):
        raise _damaged(path, f"line {number} is not a JSON object: {line[:100]!r}")
    return found


def _damaged(path: Path, problem: str) -> BackupDamaged:
    return BackupDamaged(f"The backup {path} is damaged: {problem}.", advice="Use another copy. Nothing was restored.")
