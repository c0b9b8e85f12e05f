"""The replay of a log from its last compaction, for the transaction log and the pending-ack logs.

A compaction stores the state in a record (the topic record of the transaction log, or the record of the subscription), and then
deletes the entries that the state covers. A read first lists the log, then reads the entries, and last this record. So the record
covers every entry that had left the log before its read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, UnknownOutcome
from metadata.instream.managed_log import ManagedLog
from metadata.records.paths import Key
from metadata.records.persistent_records import Identified
from metadata.store.contract import ABSENT, Record, View, decide


class At(Protocol):
    """A state with the number of its last entry."""

    at: int


E = TypeVar("E", bound=Identified)
S = TypeVar("S", bound=At)
O = TypeVar("O")  # noqa: E741


class Done(NamedTuple, Generic[O]):
    """The number of an appended entry, and its effect (`outcome`). The effect is None if a compaction had covered the entry before
    this process read it.
    """

    number: int
    outcome: O | None


class _Moved(Exception):
    """Entries left the log between two reads. The caller starts over."""


class Replay(Generic[E, S, O]):
    """One log and its state, cached in this process. Safe for several threads.

    fold      applies the next entry to the state and returns its effect
    restored  returns the state that the record holds; None if the cached state stays
    """

    def __init__(
        self,
        cluster: Cluster,
        log: ManagedLog[E],
        key: Key,
        initial: S,
        fold: Callable[[S, int, E], O],
        restored: Callable[[Record | None], S | None],
    ) -> None:
        self._store, self.log, self._key = cluster.store, log, key
        self.state, self._fold, self._restored = initial, fold, restored
        self._initial = True  # no entry is applied yet, so the record's state is used even if its `at` is 0 (a new subscription)
        # Each key is the id of an entry that a thread of this process waits for. The value is the first entry with this id, with
        # its effect.
        self._awaited: dict[str, Done[O] | None] = {}
        self.lock = cluster.lock()
        """A caller that uses the state in more than one step holds this lock, because every read changes the state."""

    def read(self, view: View) -> S:
        """Return the state after all entries that were appended before `view` was opened."""
        while True:
            try:
                return self._read(view)
            except _Moved:
                continue

    @property
    def at(self) -> int:
        """The number of the last entry read."""
        return self.state.at

    def now(self) -> S:
        return decide(self._store, self.read)

    def _read(self, view: View) -> S:
        with self.lock:
            numbers = self.log.numbers(view, self.state.at)
            found, (record,) = self.log.entries(view, numbers, then=[self._key])
            kept = self._restored(record)
            if kept is not None and (kept.at > self.state.at or self._initial):
                self.state = kept
            self._initial = self._initial and kept is None
            for number in numbers:
                if number <= self.state.at:
                    continue
                self._initial = False
                if number not in found:
                    raise _Moved
                entry = found[number]
                outcome = self._fold(self.state, number, entry)
                if entry.id in self._awaited and self._awaited[entry.id] is None:
                    self._awaited[entry.id] = Done(number, outcome)
            return self.state

    def append(self, entry: E) -> Done[O]:
        """Append an entry, read the log up to it, and return its number and effect. After a lost reply this method looks for the
        entry by its id. If it finds none, it appends the entry again. Of several copies in the log only the first counts.

        Raises StoreError. The entry may be in the log then, or appear later.
        """
        with self.lock:
            self._awaited[entry.id] = None
        try:
            number = self.log.append_again(entry)
            self.now()
            with self.lock:
                return self._awaited[entry.id] or Done(number, None)
        finally:
            with self.lock:
                del self._awaited[entry.id]

    def compact(self, kept_at: Callable[[Record], int], write: Callable[[Record | None, S, View], bytes | None]) -> int:
        """Store the state in the record, then delete the entries that the record covers. Return how many were deleted.

        `kept_at` returns the number of the last entry that a record covers. `write` gets the old record, the state and the view. It
        returns the bytes of the new record, or None if no record is to be written. After a lost CAS or reply nothing is deleted;
        the next compaction deletes the entries.
        """

        def body(view: View) -> int:
            with self.lock:
                state = self.read(view)
                record = view.get(self._key)
                covered = 0 if record is None else kept_at(record)
                # An older state must not replace one that covers more entries, because those entries are deleted.
                value = write(record, state, view) if covered <= state.at else None
                if record is not None and value == record.value:
                    value = None
                at = state.at
            if value is not None:
                try:
                    self._store.put(self._key, value, expect=ABSENT if record is None else record)
                except (BadVersion, UnknownOutcome):
                    return 0
                covered = at
            return self._delete(view, covered)

        return decide(self._store, body)

    def _delete(self, view: View, to: int) -> int:
        numbers = [n for n in self.log.numbers(view) if n <= to]
        self.log.delete(numbers)
        self.log.forget(to)  # this also drops entries that another process has deleted
        return len(numbers)
