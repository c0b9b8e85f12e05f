"""Ledger files on an object store or on HDFS. On an object store a file appears when its upload completes. On HDFS a file is
written under a temporary name and renamed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.fs as pafs

from ledgers.errors import MissingFile, StorageError
from ledgers.io_errors import explain, explained
from ledgers.s3 import creates_buckets, open_s3
from ledgers.s3_errors import BUCKET, CREDENTIALS

log = logging.getLogger(__name__)


class RemoteFiles:
    """Files under `uri`, through pyarrow's file systems. Credentials come from the environment and never from the URI."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._seen = False
        self._root: str
        try:
            if uri.startswith("s3://"):
                self._fs, self._quick, self._root = open_s3(uri)
            else:
                self._fs, self._root = pafs.FileSystem.from_uri(uri)
                self._quick = self._fs
        except OSError as error:
            raise explain(error, "open the ledger storage", uri) from error
        except pa.ArrowException as error:
            raise StorageError(
                f"The ledger storage {uri} cannot be opened: {error}.", advice="Check the URI, the credentials and the network."
            ) from error
        self._renames = self._fs.type_name == "hdfs"
        self._is_s3 = self._fs.type_name == "s3"

    @property
    def region(self) -> str:
        """The region of the bucket; an empty text if the storage is not S3."""
        return str(self._fs.region) if self._is_s3 else ""

    def _path(self, rel: str) -> str:
        return f"{self._root}/{rel}"

    def _place(self, rel: str) -> str:
        return f"{self._uri.partition('?')[0]}/{rel}"

    def create(self) -> None:
        with explained("make the ledger folder", self._uri):
            if self._is_s3:  # a folder is only the beginning of names
                if creates_buckets(self._uri) and self._bucket_is_missing():
                    self._fs.create_dir(self._bucket)
                self._check_bucket()
            elif self._fs.get_file_info(self._root).type == pafs.FileType.NotFound:
                self._fs.create_dir(self._root, recursive=True)

    @property
    def _bucket(self) -> str:
        return self._root.partition("/")[0]

    def _bucket_is_missing(self) -> bool:
        return bool(self._fs.get_file_info(self._bucket).type == pafs.FileType.NotFound)

    def _check_bucket(self) -> None:
        """Raise StorageError if the bucket of an S3 URI does not exist: all files of a wrong bucket would look deleted."""
        if self._is_s3 and not self._seen:
            with explained("look at", self._uri):
                if self._bucket_is_missing():
                    # Some servers say that to unknown credentials, too.
                    raise StorageError(
                        f"The bucket {self._bucket} of {self._uri} does not exist.", advice=f"{BUCKET} {CREDENTIALS}"
                    )
            self._seen = True

    def publish(self, rel: str, data: bytes) -> None:
        output = self.open_output(rel)
        try:
            with explained("write", self._place(rel)):
                output.stream.write(data)
            output.publish()
        finally:
            output.discard()

    def replace(self, rel: str, data: bytes) -> None:
        path = self._path(rel)
        folder, _, name = path.rpartition("/")
        writing = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp" if self._renames else path
        with explained("write", self._place(rel)):
            if self._renames:
                self._fs.create_dir(folder, recursive=True)
            # Not tried for long: if an answer is lost, another attempt would undo what another process has written since.
            with self._quick.open_output_stream(writing) as out:
                out.write(data)
            if self._renames:
                if self._fs.get_file_info(path).type == pafs.FileType.File:
                    self._fs.delete_file(path)  # HDFS refuses to rename over a file
                self._fs.move(writing, path)

    def open_output(self, rel: str) -> RemoteOutput:
        with explained("write", self._place(rel)):
            if not self._renames:
                return RemoteOutput(self._fs, self._path(rel), self._path(rel), self._place(rel))
            folder, _, name = self._path(rel).rpartition("/")
            self._fs.create_dir(folder, recursive=True)
            return RemoteOutput(self._fs, f"{folder}/.{name}.{uuid.uuid4().hex}.tmp", self._path(rel), self._place(rel))

    def open_input(self, rel: str) -> pa.NativeFile:
        try:
            with explained("read", self._place(rel)):
                return self._fs.open_input_file(self._path(rel))
        except MissingFile:
            self._check_bucket()
            raise

    def info(self, rel: str) -> tuple[int, int] | None:
        with explained("look at", self._place(rel)):
            found = self._fs.get_file_info(self._path(rel))
        if found.type == pafs.FileType.NotFound:
            self._check_bucket()
            return None
        return found.size, (found.mtime_ns or 0) // 1_000_000

    def list(self, folder: str) -> Iterator[tuple[str, int, int]]:
        top = f"{self._root}/{folder}" if folder else self._root
        with explained("list", self._place(folder)):
            found = self._fs.get_file_info(pafs.FileSelector(top, recursive=True, allow_not_found=self._is_s3 or bool(folder)))
        if not found:
            self._check_bucket()
        for file in found:
            if file.type == pafs.FileType.File:
                yield file.path[len(self._root) + 1 :], file.size, (file.mtime_ns or 0) // 1_000_000

    def delete(self, rel: str) -> None:
        # Not tried for long: a sweep may delete for HANDOVER_SECONDS after its last look at the mark of the root.
        with explained("delete", self._place(rel)):
            try:
                self._quick.delete_file(self._path(rel))
            except FileNotFoundError:
                return


class RemoteOutput:
    """A stream to a file. Closing the stream completes the upload, so `discard` closes it and then deletes the file."""

    def __init__(self, fs: pafs.FileSystem, writing: str, path: str, place: str) -> None:
        self._fs = fs
        self._writing: str | None = writing
        self._path = path
        self._place = place
        self.stream: pa.NativeFile = fs.open_output_stream(writing)

    def publish(self) -> None:
        if self._writing is None:
            raise ValueError(f"{self._path} was published or discarded before")
        writing, self._writing = self._writing, None
        try:
            self.stream.close()
            if writing != self._path:
                self._fs.move(writing, self._path)
        except OSError as error:
            if writing != self._path:
                self._writing = writing
                self.discard()
            # Else the upload may have completed, although no answer told so: then the file is an orphan. A deletion now would most
            # likely fail as the upload did, after as many attempts.
            raise explain(error, "publish", self._place) from error

    def discard(self) -> None:
        """Delete the file. If that fails, the file is an orphan, which a later sweep deletes; so the error that made the caller
        discard the file is the one that is raised.
        """
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        try:
            self.stream.close()
            self._fs.delete_file(writing)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("%s", explain(error, "discard", self._place))
