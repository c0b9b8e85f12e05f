"""The ledger storage: files under one root, published once and never changed.

Files are named by their path relative to the root, `/`-separated. Publication is atomic: a reader sees the whole file or no file
(protocol.md section 2, "Staging"). Only the orphan sweep deletes parts, snapshots and registration manifests
(section 7).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol
from urllib.parse import SplitResult, quote, unquote, urlsplit

import pyarrow as pa

from ledgers.credentials import holds_credentials, shown
from ledgers.errors import StorageError
from ledgers.io_errors import explained, retried
from ledgers.local_files import LocalFiles, LocalOutput, publish_outputs
from ledgers.plain_text import harmful

MOST_AT_ONCE = 32
"""Maximum number of parallel requests of one call to an object store."""

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
_HASHED = re.compile(r".*-[0-9a-f]{12}")


class FileEntry(NamedTuple):
    """A file in a listing: path relative to the root, length in bytes, time of its last change in ms since 1970."""

    path: str
    bytes: int
    mtime_ms: int


class Output(Protocol):
    """A file that is being written and is not visible yet."""

    stream: pa.NativeFile

    def publish(self) -> None:
        """Close the file and make it visible under its name, atomically and durably. Raises StorageError; then the file is
        discarded.
        """

    def discard(self) -> None:
        """Delete the unpublished file. Does nothing after `publish`."""


def publish_all(outputs: Sequence[Output]) -> None:
    """Publish several files of one storage. On a local disk this takes hardly longer than one. Raises StorageError; then some
    may be published, and the caller discards the others.
    """
    publish_outputs([one for one in outputs if isinstance(one, LocalOutput)])
    for one in outputs:
        if not isinstance(one, LocalOutput):
            one.publish()


class Files(Protocol):
    """A kind of storage. Paths are relative to its root; all methods raise StorageError. `region`: that of an S3 bucket."""

    @property
    def region(self) -> str: ...

    def create(self) -> None: ...
    def publish(self, rel: str, data: bytes) -> None: ...
    def replace(self, rel: str, data: bytes) -> None: ...
    def open_output(self, rel: str) -> Output: ...
    def open_input(self, rel: str) -> pa.NativeFile: ...
    def info(self, rel: str) -> tuple[int, int] | None: ...
    def list(self, folder: str) -> Iterator[tuple[str, int, int]]: ...
    def delete(self, rel: str) -> None: ...


class LedgerStorage:
    """The files under `uri`: `file:///..` or an absolute path, `s3://bucket/..`, `gs://bucket/..`, `hdfs://host:port/..`.

    The storage is opened on first use. The object is pickled as its URI, so tasks on other machines open the storage themselves.
    Raises StorageError for a URI of another form.
    """

    is_local = True

    def __init__(self, uri: str) -> None:
        if holds_credentials(uri):
            raise StorageError(
                "The ledger URI (not shown here) holds a credential, or an unnamed text after its path.",
                advice="Give credentials through the environment or the storage's own configuration files. "
                "A '#' or '?' in the name of a folder is written as %23 or %3F.",
            )
        split = _split(uri)
        if uri.startswith("/"):
            self.uri, self._path = f"file://{quote(uri.rstrip('/'))}", uri.rstrip("/")
        elif split.scheme == "file" and split.netloc in ("", "localhost") and split.path.startswith("/"):
            self.uri, self._path = f"file://{split.path.rstrip('/')}", unquote(split.path).rstrip("/")
        elif split.scheme in ("s3", "gs", "hdfs") and (split.netloc or split.scheme == "hdfs"):
            self.uri, self._path = uri.rstrip("/"), ""
        else:
            raise _no_place(uri)
        self.is_local = split.scheme in ("", "file")

    def __reduce__(self) -> tuple[type[LedgerStorage], tuple[str]]:
        return LedgerStorage, (self.uri,)

    def __repr__(self) -> str:
        return f"LedgerStorage({self.uri!r})"

    @property
    def folder(self) -> str | None:
        """Return the folder of a local root; None for a remote one."""
        return (self._path or "/") if self.is_local else None

    @cached_property
    def _files(self) -> Files:
        if self.is_local:
            return LocalFiles(self._path)
        from ledgers.remote_files import RemoteFiles  # imported late, because clients of object stores take long to import

        return RemoteFiles(self.uri)

    def place(self, rel: str) -> str:
        """Return the URI of a file for messages. It has no settings (`?region=..`)."""
        return f"{self.uri.partition('?')[0] if not self.is_local else self.uri}/{rel}"

    def create(self) -> None:
        """Create the root if it is missing. On an object store, check that the bucket can be reached."""
        self._files.create()

    def publish(self, rel: str, data: bytes) -> None:
        """Write a whole small file, atomically and durably. On local disks and HDFS an existing name is an error."""
        self._files.publish(_checked(rel), data)

    def replace(self, rel: str, data: bytes) -> None:
        """Write a whole small file durably, and replace an existing file of this name. Only a few files ever change.

        Readers find the old file or the new one. (HDFS has no atomic replace: for a moment there is no file.) A call can be
        repeated after a crash, because its temporary files have unique names.
        """
        self._files.replace(_checked(rel), data)

    def open_output(self, rel: str) -> Output:
        """Begin to write a file of any length. It becomes visible, as a whole, with `publish()`."""
        return self._files.open_output(_checked(rel))

    def read(self, rel: str) -> bytes:
        """Return the content of a file. Raises MissingFile."""

        def whole() -> bytes:
            with self.open_input(rel) as stream:
                data: bytes = stream.read()
                return data

        if self.is_local:
            return whole()
        with explained("read", self.place(rel)):
            return retried(whole)

    def open_input(self, rel: str) -> pa.NativeFile:
        """Open a file for random-access reading. The file is not memory-mapped, because a process is killed if a file that it has
        mapped is truncated. Raises MissingFile.
        """
        return self._files.open_input(_checked(rel))

    def info(self, rel: str) -> tuple[int, int] | None:
        """Return length in bytes and time of the last change in ms since 1970; None for a missing file."""
        return self._files.info(_checked(rel))

    def infos(self, rels: Sequence[str]) -> list[tuple[int, int] | None]:
        """Return `info` of each file, in order. On an object store the requests run in parallel."""
        if self.is_local or len(rels) < 2:
            return [self.info(rel) for rel in rels]
        from concurrent.futures import ThreadPoolExecutor  # imported late, because only object stores need it

        with ThreadPoolExecutor(min(MOST_AT_ONCE, len(rels))) as pool:
            return list(pool.map(self.info, rels))

    def list(self, folder: str = "") -> Iterator[FileEntry]:
        """Yield all files under a folder and its subfolders, also unpublished files. A missing folder has no files.

        Files that appear or are deleted meanwhile may or may not be listed. A missing root is an error.
        """
        for path, size, mtime_ms in self._files.list(_checked(folder) if folder else ""):
            yield FileEntry(path, size, mtime_ms)

    def delete(self, rel: str) -> None:
        """Delete a file if it exists."""
        self._files.delete(_checked(rel))

    def spark_uri(self, rel: str) -> str:
        """Return a file's path for `spark.read.parquet`: a Hadoop path (not percent-encoded; `s3://` becomes `s3a://`)."""
        return f"{self._spark_root}/{_checked(rel)}"

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop by which Spark reads `spark_uri`: endpoint and region of an S3 bucket, without credentials.
        Empty for other storages.
        """
        if not self.uri.startswith("s3://"):
            return {}
        from ledgers.s3 import s3a_settings  # imported late, as RemoteFiles

        return s3a_settings(self.uri, self._files.region)

    def relative(self, spark_uri: str) -> str:
        """Return the path of a file relative to the root. `spark_uri`: the file's path as Spark gives it, e.g. in
        `_metadata.file_path` (percent-encoded, any number of slashes after the scheme).

        Raises StorageError if the file is not under this root.
        """
        for text in (unquote(spark_uri), spark_uri):
            plain, root = _slashes(text), _slashes(self._spark_root)
            if plain.startswith(f"{root}/"):
                return plain[len(root) + 1 :]
        raise StorageError(
            f"{spark_uri} does not lie under the ledger root {self.uri}.", advice="Check whether the root was moved."
        )

    @cached_property
    def _spark_root(self) -> str:
        if self.is_local:
            return f"file://{self._path}"
        split = urlsplit(self.uri)
        scheme = "s3a" if split.scheme == "s3" else split.scheme
        host = split.netloc.rpartition("@")[2]
        return f"{scheme}://{host}{unquote(split.path).rstrip('/')}"


def _split(uri: str) -> SplitResult:
    """Split a URI. Raises StorageError for an invalid URL: unclosed brackets, a port that is not a number, a control character."""
    try:
        split = urlsplit(uri)
        _ = split.port
        if harmful(unquote(uri)):
            raise ValueError("it holds a control or direction character")
    except ValueError as error:
        raise StorageError(
            f"A ledger URI cannot be used: {error}.",
            advice="Give file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or hdfs://host:port/path.",
        ) from error
    return split


def segment_folder(tenant: str, namespace: str, name: str, descriptor: str) -> str:
    """Return the folder of a segment's files. It is unique to the segment and never changes.

    Each name in the path has only letters, digits, `.` and `-`, and begins with a letter or digit. Spark would take a name with `=`
    for a partition, and skips names that begin with `_` or `.`. Other characters are replaced, and a hash of the name is added.
    """
    return "/".join(_safe(part) for part in (tenant, namespace, name, descriptor))


def _no_place(uri: str) -> StorageError:
    return StorageError(
        f"{shown(uri)} is not a place for ledgers.",
        advice="Give file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or hdfs://host:port/path.",
    )


def _safe(name: str) -> str:
    if _SAFE.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    cleaned = _UNSAFE.sub("-", name).lstrip(".-")[:80] or "x"
    return f"{cleaned}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _checked(rel: str) -> str:
    """Return the path. Raise StorageError for a path that leads out of the root: paths come from records, which may be damaged."""
    if all(part not in ("", ".", "..") and "\0" not in part for part in rel.split("/")):
        return rel
    raise StorageError(f"{rel!r} is not a path of a ledger file.", advice="The record that names it is damaged.")


def _slashes(uri: str) -> str:
    scheme, _, rest = uri.partition(":")
    return f"{scheme}:/{rest.lstrip('/')}"
