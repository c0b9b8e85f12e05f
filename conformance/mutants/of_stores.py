"""Faults in the code of the metadata stores (protocol.md section 3). `conformance.store.faults` has faults for any store, which
wrap it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from typing import Any

from conformance.mutants.planting import fault
from metadata.records.paths import Key, KeyRange
from metadata.store.contract import Append, Put, Record, Write
from metadata.store.memory import MemoryState
from metadata.store.zookeeper_time import ServerTime

Real = Callable[..., Any]

_STATE = "metadata.store.memory:MemoryState"
_FULL = "tests/metadata/store/test_full_disk.py::"


@fault(
    "index entry left after replace, 3",
    "A put replaces all index entries of its record.",
    at=f"{_STATE}._place",
    store="memory",
    by="store records/a-put-of-any-version-replaces-what-another-session-wrote",
)
def index_entry_left(real: Real, self: Any, record: Record, session: int) -> None:
    old = self.records.get(record.key)
    real(self, record, session)
    left = set() if old is None else set(old.indexes or ()) - set(record.indexes or ())
    for name, entry in left:
        insort(self._indexes[name], (entry, record.key))


@fault(
    "A14, 3",
    "An index scan matches whole values: a scan for 0_1 does not return 0_10.",
    at=f"{_STATE}.scan_index",
    store="memory",
    by="store indexes/index-ranges-are-exact",
)
def index_scan_by_prefix(real: Real, self: Any, index: str, first: str, last: str) -> Any:
    return real(self, index, first, f"{last}~")


@fault(
    "an index range one too wide, A14, 3",
    "A scan of a key range ends with the last key of the range.",
    at=f"{_STATE}.keys",
    store="memory",
    by="store ranges/keys-are-exact-and-in-order",
)
def key_range_one_too_wide(real: Real, self: Any, within: KeyRange) -> list[Key]:
    found: list[Key] = real(self, within)
    beyond = bisect_right(self._order, within.last, key=lambda key: key.path)
    return found + [key for key in self._order[beyond : beyond + 1] if key.partition == within.partition]


@fault(
    "version ignored, 8.1, 3",
    "A put with an expected version fails if the record has another version.",
    at="metadata.store.contract:expected_version",
    within=f"{_STATE}._apply",
    store="memory",
    by="store records/absent-is-none-and-a-delete-of-any-tolerates-it",
)
def version_ignored(real: Real, expect: Any) -> int | None:
    return -1 if real(expect) == -1 else None


@fault(
    "8.3, 3",
    "A sequence never allocates a number twice, even if the record of this number was deleted.",
    at=f"{_STATE}._append",
    store="memory",
    by="store sequences/numbers-begin-at-one-rise-and-are-never-used-again",
)
def number_used_again(real: Real, self: MemoryState, write: Append, undo: list[Any]) -> Any:
    self.numbers.pop(write.prefix, None)
    return real(self, write, undo)


@fault(
    "sequence as counter then record, 8.7, 3",
    "A sequence append allocates its number and creates its record in one atomic step.",
    at="metadata.store.memory:MemoryStore.write",
    store="memory",
    by="store sequences/a-number-that-someone-chose-is-passed-over",
)
def counter_then_record(real: Real, self: Any, *writes: Write) -> Any:
    return real(self, *(_numbered(self, write) if isinstance(write, Append) else write for write in writes))


def _numbered(store: Any, write: Append) -> Put:
    with store.shared.lock:
        numbers = store.shared.state.numbers
        number = numbers[write.prefix] = numbers.get(write.prefix, 0) + 1
    store.clock.sleep(0.01 * (number % 5 == 0))
    return Put(write.prefix.key(number), write.value, -1, write.indexes)


@fault(
    "A30, the session changed between two reads of one decision",
    "All reads of a view use one session. They raise SessionLost once this session has ended.",
    at="metadata.store.memory:MemoryView._checked_state",
    store="memory",
    by="store sessions/a-closed-store-says-so",
)
def session_changes_between_reads(real: Real, self: Any) -> MemoryState:
    state: MemoryState = self._store.shared.state
    return state


# --- ZooKeeper ----------------------------------------------------------------------------------------------------


@fault(
    "3",
    "A session's time never goes back, even if a reply was slow.",
    at="metadata.store.zookeeper_time:learned",
    by="tests/metadata/store/test_server_clocks.py::test_an_answer_that_took_long_does_not_set_the_time_back",
)
def time_set_back_by_a_slow_answer(
    real: Real, known: ServerTime | None, measured: ServerTime, began: float, hosts: str
) -> ServerTime:
    return measured


@fault(
    "the sync before acting on absence left out, A30, 3",
    "The first reads of a view return every write acknowledged before them, whichever server answers.",
    at="metadata.store.zookeeper:ZooKeeperView._fly",
    by="tests/metadata/store/test_ensemble.py::test_a_view_on_a_lagging_server_shows_acknowledged_writes",
)
def no_sync_before_reading(real: Real, self: Any, requests: Sequence[Any]) -> Any:
    self._synced = True
    return real(self, requests)


# --- SQLite on a full disk ----------------------------------------------------------------------------------------


@fault(
    "issue 13, 23",
    "A sweep on a full disk uses the space that is reserved for sweeps.",
    at="metadata.store.sqlite:SqliteStore.make_room",
    by=f"{_FULL}test_a_running_sweeper_still_deletes_once_the_disk_is_full",
)
def full_disk_cannot_be_swept(real: Real, self: Any) -> bool:
    return False
