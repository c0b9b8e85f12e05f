"""Ledger files on an object store or on HDFS. On an object store a file appears when its upload completes. On HDFS a file is
written under a temporary name and renamed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.fs as pafs

from ledgers.errors import StorageError
from ledgers.io_errors import explain, explained


class RemoteFiles:
    """Files under `uri`, through pyarrow's file systems. Credentials come from the environment and never from the URI."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        try:
            self._fs, self._root = pafs.FileSystem.from_uri(uri)
        except (OSError, pa.ArrowException) as error:
            raise StorageError(
                f"The ledger storage {uri} cannot be opened: {error}.", advice="Check the URI, the credentials and the network."
            ) from error
        self._renames = self._fs.type_name == "hdfs"

    def _path(self, rel: str) -> str:
        return f"{self._root}/{rel}"

    def _place(self, rel: str) -> str:
        return f"{self._uri.partition('?')[0]}/{rel}"

    def create(self) -> None:
        with explained("make the ledger folder", self._uri):
            if self._fs.get_file_info(self._root).type == pafs.FileType.NotFound:
                self._fs.create_dir(self._root, recursive=True)

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
            with self._fs.open_output_stream(writing) as out:
                out.write(data)
            if self._renames:
                if self._fs.get_file_info(path).type == pafs.FileType.File:
                    self._fs.delete_file(path)  # HDFS refuses to rename over a file
                self._fs.move(writing, path)

    def open_output(self, rel: str) -> RemoteOutput:
        with explained("write", self._place(rel)):
            if not self._renames:
                return RemoteOutput(self._fs, self._path(rel), self._path(rel))
            folder, _, name = self._path(rel).rpartition("/")
            self._fs.create_dir(folder, recursive=True)
            return RemoteOutput(self._fs, f"{folder}/.{name}.{uuid.uuid4().hex}.tmp", self._path(rel))

    def open_input(self, rel: str) -> pa.NativeFile:
        with explained("read", self._place(rel)):
            return self._fs.open_input_file(self._path(rel))

    def info(self, rel: str) -> tuple[int, int] | None:
        with explained("look at", self._place(rel)):
            found = self._fs.get_file_info(self._path(rel))
        return None if found.type == pafs.FileType.NotFound else (found.size, (found.mtime_ns or 0) // 1_000_000)

    def list(self, folder: str) -> Iterator[tuple[str, int, int]]:
        top = f"{self._root}/{folder}" if folder else self._root
        with explained("list", self._place(folder)):
            found = self._fs.get_file_info(pafs.FileSelector(top, recursive=True, allow_not_found=bool(folder)))
        for file in found:
            if file.type == pafs.FileType.File:
                yield file.path[len(self._root) + 1 :], file.size, (file.mtime_ns or 0) // 1_000_000

    def delete(self, rel: str) -> None:
        with explained("delete", self._place(rel)):
            try:
                self._fs.delete_file(self._path(rel))
            except FileNotFoundError:
                return


class RemoteOutput:
    """A stream to a file. Closing the stream completes the upload, so `discard` closes it and then deletes the file."""

    def __init__(self, fs: pafs.FileSystem, writing: str, path: str) -> None:
        self._fs = fs
        self._writing: str | None = writing
        self._path = path
        self.stream: pa.NativeFile = fs.open_output_stream(writing)

    def publish(self) -> None:
        if self._writing is None:
            raise ValueError(f"{self._path} was published or discarded before")
        try:
            self.stream.close()
            if self._writing != self._path:
                self._fs.move(self._writing, self._path)
            self._writing = None
        except OSError as error:
            self.discard()
            raise explain(error, "publish", self._path) from error

    def discard(self) -> None:
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        with explained("discard", writing):
            try:
                self.stream.close()
            finally:
                if self._fs.get_file_info(writing).type == pafs.FileType.File:
                    self._fs.delete_file(writing)
