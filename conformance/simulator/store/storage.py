"""A ledger storage in memory, with the interface of `ledgers.storage.LedgerStorage`. Most calls are steps of the gate.

The file of a part without keyed rows has four bytes. It stands for one row, whose id is the path of the file (`keyed.rows_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from conformance.simulator.store.faults import Crashed, Fate, Gate, always
from ledgers.errors import MissingFile, StorageError
from ledgers.storage import FileEntry, LedgerStorage
from metadata.common.clock import Clock


class Disk:
    """The files, which all processes of a world share. `files`: (content, time of change in ms) of each file, by its path."""

    def __init__(self, clock: Clock) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self.clock = clock


class GatedStorage(LedgerStorage):
    """The storage of one process. `gate_reads`: whether reading a file is a step, too. Files never change, so this matters only in
    worlds that delete files.
    """

    def __init__(self, disk: Disk, gate: Gate = always, *, gate_reads: bool = True) -> None:
        self.uri, self._path = "file:///simulated", "/simulated"
        self.disk, self.gate, self._gate_reads = disk, gate, gate_reads

    def create(self) -> None:
        return

    def _pass(self, kind: str, rel: str) -> Fate:
        fate = self.gate(kind, rel)
        if fate in (Fate.CRASH_BEFORE, Fate.SPLIT_CRASH):
            raise Crashed
        if fate not in (Fate.GO, Fate.CRASH_AFTER):
            raise StorageError(f"The simulated storage refused {kind} {rel}.")
        return fate

    def publish(self, rel: str, data: bytes) -> None:
        fate = self._pass("publish", rel)
        if rel in self.disk.files:
            raise StorageError(f"{rel} exists already.")
        self.disk.files[rel] = (data, self.disk.clock.now_ms())
        if fate is Fate.CRASH_AFTER:
            raise Crashed

    def replace(self, rel: str, data: bytes) -> None:
        fate = self._pass("publish", rel)
        self.disk.files[rel] = (data, self.disk.clock.now_ms())
        if fate is Fate.CRASH_AFTER:
            raise Crashed

    def publish_all(self, files: Mapping[str, bytes]) -> None:
        """Write several new files in one step."""
        if files:
            fate = self._pass("publish", next(iter(files)))
            now = self.disk.clock.now_ms()
            self.disk.files.update((rel, (data, now)) for rel, data in files.items())
            if fate is Fate.CRASH_AFTER:
                raise Crashed

    def open_output(self, rel: str) -> _Output:
        return _Output(self, rel)

    def read(self, rel: str) -> bytes:
        if self._gate_reads and self._pass("read", rel) is Fate.CRASH_AFTER:
            raise Crashed
        if rel not in self.disk.files:
            raise MissingFile(f"{rel} does not exist.")
        return self.disk.files[rel][0]

    def open_input(self, rel: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(rel))

    def info(self, rel: str) -> tuple[int, int] | None:
        found = self.disk.files.get(rel)
        return None if found is None else (len(found[0]), found[1])

    def list(self, folder: str = "") -> Iterator[FileEntry]:
        self._pass("list", folder)
        for path, (data, mtime) in sorted(self.disk.files.items()):
            if not folder or path.startswith(f"{folder}/"):
                yield FileEntry(path, len(data), mtime)

    def delete(self, rel: str) -> None:
        fate = self._pass("delete", rel)
        self.disk.files.pop(rel, None)
        if fate is Fate.CRASH_AFTER:
            raise Crashed


class _Output:
    """A file that is being written."""

    def __init__(self, storage: GatedStorage, rel: str) -> None:
        self._storage, self._rel = storage, rel
        self.stream = pa.BufferOutputStream()

    def publish(self) -> None:
        self._storage.publish(self._rel, self.stream.getvalue().to_pybytes())

    def discard(self) -> None:
        return
