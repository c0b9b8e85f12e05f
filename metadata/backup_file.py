"""A backup as one file: gzip of JSON lines, which `zcat` shows. The first line says what it is, the last one is the checksum:

    {"txnsegmentBackup":1,"cluster":"..","ledgers":"file:///..","number":977,"takenMs":..,"createdAtMs":..,"records":42, ..}
    {"key":"/log/log-00000000000000000977","partition":"log","record":{..}}
    ..
    {"sha256":".."}

The checksum is over the bytes of all lines before it. A record stands there with the very bytes that the store had.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from metadata.cluster_records import Lost, Settings
from metadata.errors import BackupDamaged, ConfigurationError
from metadata.json_records import JsonRecord
from metadata.paths import Key

FORMAT = 1
FORMAT_IN_STREAM = 2
"""With records of the older model: whoever knows only the other format would restore them without moving their logs on."""
ERA = 10**10
"""How many numbers of a log a restore passes over at the most: no log has given out so many since the backup."""
_RECORD = b',"record":'


class Heading(JsonRecord):
    """What a backup is of. `number`: the log number up to which it holds everything, and beyond which nothing. `next_txn`: above
    all transaction ids by then. `restored`: as in the cluster's record. `topics`: how many there are, of both kinds. `in_stream`:
    the highest number in the logs of the older model, if there are any.
    """

    txnsegment_backup: int = FORMAT
    cluster: str
    ledgers: str
    number: int
    taken_ms: int
    created_at_ms: int
    next_txn: int
    topics: int
    records: int
    settings: Settings
    restored: tuple[Lost, ...] | None = None
    in_stream: int | None = None

    @property
    def following(self) -> int:
        """Where the logs of a cluster that is restored from it go on: above all that the lost one can have given out. (One that was
        restored itself went on from there, whether or not the backup has anything of that.)
        """
        last = max(self.number, self.in_stream or 0, *(lost.before for lost in self.restored or ()), 0)
        return (last // ERA + 1) * ERA


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of a backup: its key and its bytes. (Index entries follow from them.)"""

    key: Key
    value: bytes


@dataclass(frozen=True)
class Backup:
    """A cluster's metadata as it was when its log was decided up to `heading.number`. `sha256`: of its file's lines."""

    heading: Heading
    records: tuple[Kept, ...]
    sha256: str


def made(heading: Heading, records: tuple[Kept, ...]) -> Backup:
    return Backup(heading, records, hashlib.sha256(_lines(heading, records)).hexdigest())


def write(path: Path, backup: Backup) -> int:
    """Write the file, all or nothing and durably; its length in bytes. Raises ConfigurationError: it is there already, or cannot be
    written."""
    lines = _lines(backup.heading, backup.records)
    data = gzip.compress(lines + json.dumps({"sha256": backup.sha256}).encode() + b"\n", mtime=0)
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        with unfinished.open("xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(unfinished, path)  # unlike a rename it does not replace what is there
        finally:
            unfinished.unlink()
        _sync_folder(path.parent)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{error.filename2 or error.filename} exists already.", advice="A backup replaces nothing: give another name."
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.", advice="Choose another folder.") from error
    return len(data)


def read(path: Path) -> Backup:
    """Read and check a whole file. Raises BackupDamaged (also for another format), ConfigurationError: it cannot be read."""
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.", advice="Give the file that backup wrote.") from error
    try:
        data = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, f"it is no whole gzip file ({error})") from error
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    body += b"\n"
    first, *lines = body.splitlines()
    heading = _heading(path, first)
    found = _object(path, last).get("sha256")
    sha256 = hashlib.sha256(body).hexdigest()
    if found != sha256:
        raise _damaged(path, f"its lines have the SHA-256 {sha256[:12]}.., its last line says {str(found)[:12]}..")
    if len(lines) != heading.records:
        raise _damaged(path, f"it has {len(lines)} records, not {heading.records}")
    return Backup(heading, tuple(_kept(path, line) for line in lines), sha256)


def _lines(heading: Heading, records: tuple[Kept, ...]) -> bytes:
    return b"".join(line + b"\n" for line in (heading.to_bytes(), *map(_line, records)))


def _line(kept: Kept) -> bytes:
    assert b"\n" not in kept.value  # no record's JSON has a line break
    head = json.dumps({"key": kept.key.path, "partition": kept.key.partition}, ensure_ascii=False, separators=(",", ":"))
    return head[:-1].encode() + _RECORD + kept.value + b"}"


def _kept(path: Path, line: bytes) -> Kept:
    head, found, value = line.partition(_RECORD)  # a quote within a string is escaped, so this is where the record begins
    fields = _object(path, head + b"}")
    if not found or not value.endswith(b"}") or set(fields) != {"key", "partition"}:
        raise _damaged(path, f"this line is no record: {line[:100]!r}")
    return Kept(Key(str(fields["key"]), str(fields["partition"])), value[:-1])


def _heading(path: Path, line: bytes) -> Heading:
    fields = _object(path, line)
    version = fields.get("txnsegmentBackup")
    if version not in (FORMAT, FORMAT_IN_STREAM):
        raise BackupDamaged(
            f"{path} is no backup that this txnsegment can read: its format is {version!r}, not {FORMAT} or {FORMAT_IN_STREAM}.",
            advice="Restore it with the version that wrote it, or a later one. Nothing was restored.",
        )
    try:
        return Heading.model_validate(fields)
    except ValidationError as error:
        raise _damaged(path, f"its first line is not one of a backup ({error})") from error


def _object(path: Path, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise _damaged(path, f"this line is no JSON: {line[:100]!r}") from error
    if not isinstance(found, dict):
        raise _damaged(path, f"this line is no object: {line[:100]!r}")
    return found


def _damaged(path: Path, problem: str) -> BackupDamaged:
    return BackupDamaged(f"The backup {path} is damaged: {problem}.", advice="Use another copy. Nothing was restored.")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
