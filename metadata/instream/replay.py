"""A log whose state is found by replay, from what its last compaction left in a record: transaction logs and pending-ack logs.

Read in this order: the log's list, then the record, then the entries. What has left the log by the time it was listed is in the
record that is read after it. A compaction writes the record first and deletes the entries then.
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
    """A state says up to which entry it goes."""

    at: int


E = TypeVar("E", bound=Identified)
S = TypeVar("S", bound=At)
O = TypeVar("O")  # noqa: E741


class Done(NamedTuple, Generic[O]):
    """An entry that is in the log, and what it did there (None: a compaction had passed it before it was read)."""

    number: int
    outcome: O | None


class _Moved(Exception):
    """Entries left the log between two reads: start over."""


class Replay(Generic[E, S, O]):
    """One log and its state as this process knows it. Safe for several threads.

    fold      takes the next entry into the state; what it did
    restored  the state that a record keeps, None if it keeps none
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
        self._initial = True  # a record may say where the first entry finds the state
        self._awaited: dict[str, Done[O] | None] = {}  # what became of the first append of each id that a thread of ours waits for
        self.lock = cluster.lock()
        """Held by whoever looks at a state for longer than one step: it goes on with every read."""

    def read(self, view: View) -> S:
        """The state by all that was appended before the view."""
        while True:
            try:
                return self._read(view)
            except _Moved:
                continue

    @property
    def at(self) -> int:
        """The last entry that was read."""
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
        """Append an entry and read the log up to it: what it did there. A lost reply is resolved by looking for its id; if it is
        not there, it is appended again, and the first of them counts.

        Raises what the store raises; then it may be in the log, also later.
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
        """Keep the state in the record, then delete the entries that it covers; how many. `kept_at`: how far a record's state goes;
        `write` makes the record's new bytes from the old one and the state (None: there is nothing to keep it in).

        Losing the CAS or its reply deletes nothing; the next compaction does it.
        """

        def body(view: View) -> int:
            with self.lock:
                state = self.read(view)
                record = view.get(self._key)
                covered = 0 if record is None else kept_at(record)
                # To put ours in the place of one that goes further would lose what was deleted since.
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
        self.log.forget(to)  # also what somebody else has deleted
        return len(numbers)
