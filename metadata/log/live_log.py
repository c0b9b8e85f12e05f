"""The live log, cached in memory. A registration changes only once, when it is settled (protocol.md sections 2 and 4).

The log has no index. Each reader lists the whole log and reads the bodies that it has not seen. Folding keeps the log short.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from ledgers.json_text import read_json
from ledgers.model import Ledger, Part
from ledgers.storage import LedgerStorage
from metadata.common.errors import CorruptRecord
from metadata.records import paths
from metadata.records.paths import Key
from metadata.records.records import Registration, SegmentWrite
from metadata.store.contract import Record, View


class Entry:
    """One record of the log as last read. The body is decoded on first use, because a search for seals decodes only few bodies."""

    def __init__(self, number: int, record: Record, registration: Registration | None = None) -> None:
        self.number, self.record = number, record
        if registration is not None:
            self.registration = registration

    @cached_property
    def registration(self) -> Registration:
        return Registration.of(self.record)

    @property
    def is_seal(self) -> bool:
        return b'"seal"' in self.record.value and self.registration.seal is not None


def unsettled(entry: Entry) -> bool:
    """Return whether the entry is a transaction's registration that no sweep has settled yet (as last read)."""
    return entry.registration.txn is not None and entry.registration.state is None


class LiveLog:
    """A cache of the entries of a cluster's live log, by number. Safe for several threads."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._lock = threading.Lock()

    def list(self, view: View, *, again: Callable[[Entry], bool] | None = None, then: Sequence[Key] = ()) -> Listing:
        """List the log in ascending order. Only the bodies that are not cached are read.

        `again` selects cached entries whose body is read again, such as unsettled ones. `then`: the keys of other records, which
        are read after the bodies in the same request. So a listing takes two round trips in all.

        If an entry is folded after its key was listed, its body is gone. Such an entry is left out. The caller reads the snapshots
        later and finds the entry there. A listing is made from a copy of the cache, so listings of other threads do not change it.
        """
        numbers = [int(path[-20:]) for path in view.keys(paths.LOG.range())]
        known = self._known(numbers)
        wanted = [n for n in numbers if n not in known or (again is not None and again(known[n]))]
        records = view.get_many([paths.LOG.key(n) for n in wanted] + list(then)) if wanted or then else []
        for number, record in zip(wanted, records, strict=False):
            if record is None:
                known.pop(number, None)
            else:
                known[number] = Entry(number, record)
        end = numbers[-1] if numbers else 0
        with self._lock:
            for entry in known.values():
                self._keep(entry)
            for number in [n for n in self._entries if n <= end and n not in known]:
                del self._entries[number]  # folded; entries above `end` are newer than this listing
        return Listing([known[n] for n in numbers if n in known], end, records[len(wanted) :])

    def _known(self, numbers: Sequence[int]) -> dict[int, Entry]:
        """Return a copy of this process's cached entries with these numbers, for use by one listing."""
        with self._lock:
            return {n: self._entries[n] for n in numbers if n in self._entries}

    def _keep(self, entry: Entry) -> None:
        old = self._entries.get(entry.number)
        if old is None or old.record.version <= entry.record.version:
            self._entries[entry.number] = entry

    def __len__(self) -> int:
        """Return how many entries are cached: those of the last listing of this process, and those added since (`update`)."""
        return len(self._entries)

    def update(self, entry: Entry) -> None:
        """Cache an entry that the caller has just written or read."""
        with self._lock:
            self._keep(entry)


class Listing(NamedTuple):
    """A listing of the log. `entries`: in ascending order. `end`: the newest listed number; 0 if the log is empty. `also`: the
    other records for which the caller of `LiveLog.list` asked by its argument `then`, in that order; None for a missing record.
    """

    entries: list[Entry]
    end: int
    also: list[Record | None]

    def seals(self) -> dict[int, Registration]:
        return {e.number: e.registration for e in self.entries if e.is_seal}


def in_record(
    storage: LedgerStorage, registration: Registration, path: Callable[[], str], *, most: int
) -> tuple[Registration, bytes]:
    """Return a registration and its record, of at most `most` bytes. Parts that do not fit go into a manifest file.

    `path`: returns the path of the manifest, if there is one.

    Statistics alone send no registration into a manifest, because one file more would make the commit slower. They are left out.
    """
    body = registration.to_bytes()
    if len(body) <= most:
        return registration, body
    bare = without_statistics(registration)
    if len(body := bare.to_bytes()) <= most:
        return bare, body
    listed = in_manifest(storage, registration, path())
    return listed, listed.to_bytes()


def without_statistics(registration: Registration) -> Registration:
    """Return a registration whose parts have no statistics."""
    bare = {n: w.model_copy(update={"parts": tuple(part.bare() for part in w.parts)}) for n, w in registration.segments.items()}
    return registration.model_copy(update={"segments": bare})


def in_manifest(storage: LedgerStorage, registration: Registration, path: str) -> Registration:
    """Publish the parts of a registration that is too large for its record as a manifest file. Return the registration with the
    totals of each segment, and with the path, length and CRC-32 of the file in place of the parts.
    """
    whole = {name: write.model_dump(by_alias=True, mode="json", exclude_none=True) for name, write in registration.segments.items()}
    data = json.dumps(whole).encode()
    storage.publish(path, data)
    totals = {name: write.model_copy(update={"parts": ()}) for name, write in registration.segments.items()}
    return registration.model_copy(
        update={"segments": totals, "manifest": path, "manifest_bytes": len(data), "manifest_crc": zlib.crc32(data)}
    )


def ledger(storage: LedgerStorage, number: int, registration: Registration, segment: str) -> Ledger:
    """Return the ledger that a registration adds to one of its segments. The parts are in the registration or in its manifest file.

    Raises CorruptRecord for a damaged manifest, StorageError if it cannot be read.
    """
    path = registration.manifest
    if path is None:
        return registration.ledger(number, segment)
    data = storage.read(path)
    if registration.manifest_crc is not None:  # absent in registrations of older versions
        if len(data) != registration.manifest_bytes:
            raise _damaged(path, number, f"it has {len(data)} bytes, not {registration.manifest_bytes}")
        if zlib.crc32(data) != registration.manifest_crc:
            raise _damaged(path, number, f"its CRC-32 is {zlib.crc32(data):08x}, not {registration.manifest_crc:08x}")
    try:
        parts = _parts(data, segment)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, number, str(error)) from error
    return Ledger(number, registration.publish_ms, registration.txn, parts)


def _parts(manifest: bytes, segment: str) -> tuple[Part, ...]:
    return SegmentWrite.model_validate(read_json(manifest)[segment]).parts


def _damaged(path: str, number: int, problem: str) -> CorruptRecord:
    return CorruptRecord(
        f"The manifest {path} of registration {number} is damaged: {problem}.",
        advice="Restore the file from a copy: only the manifest lists the parts of the registration. No row was dropped silently.",
    )
