"""The MetadataStore contract (protocol.md section 3): what every backend gives and what callers may assume.

Reading goes through a `View`, writing through the store itself:

    view = store.view()                 # a decision begins: everything acknowledged before now is visible
    record = view.get(key)
    store.write(Put(key, value, expect=record))

Deciding over more than one read is only sound within one view; `decide()` starts over when its session is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from metadata.common.errors import BadVersion, ConfigurationError, SessionLost, UnknownOutcome
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.records.stored import IndexEntry as IndexEntry
from metadata.records.stored import Record as Record

T = TypeVar("T")

ANY: Final = None
ABSENT: Final = -1
MAX_VALUE: Final = 768 * 1024
"""Longest value in bytes that every backend takes (one znode holds 1 MB with its index entries). Longer: ValueTooLarge."""

BUSY_SECONDS: Final = 10.0
"""How long in seconds a process waits for another one that holds the same database or ledger root, before it reports an error."""


class Put(NamedTuple):
    """Write a record.

    `expect`: ANY (None) = any version; ABSENT (-1) = the record must not exist; a Record or a version = the record must still have
    that version. `indexes` replaces all index entries of the record. `ephemeral`: the record is deleted when this store's session
    ends. `durable` (of every write): with False a power failure may undo the write, as long as it also undoes everything written
    later. A group is as durable as its most durable write. A backend that gains nothing from False (ZooKeeper) ignores it.
    """

    key: Key
    value: bytes
    expect: Record | int | None = ANY
    indexes: tuple[IndexEntry, ...] = ()
    ephemeral: bool = False
    durable: bool = True


class Delete(NamedTuple):
    """Delete a record with its index entries. `expect` as in Put: with ANY the record may be absent, with a version absence is
    BadVersion.
    """

    key: Key
    expect: Record | int | None = ANY
    durable: bool = True


class Append(NamedTuple):
    """Allocate the next number under `prefix` and create the record, in one atomic step. Numbers rise strictly, may have gaps, and
    are never reused, also after deletes and restarts. A reader that sees number n+1 sees every number <= n.
    """

    prefix: Prefix
    value: bytes
    indexes: tuple[IndexEntry, ...] = ()
    durable: bool = True


Write = Put | Delete | Append


class View(ABC):
    """Reads that fit together: all within one session, and none older than the moment `store.view()` was called.

    The sync may be sent with the first read, in the same round trip. Reads raise SessionLost when the session has changed
    since the view was made, Unavailable when the store cannot be reached (reading is always safe to repeat, with a new view).
    All lists are in ascending order of the key (or of (index key, key)), whole or an error, never half.
    """

    def get(self, key: Key) -> Record | None:
        """The record, or None if it does not exist. One round trip."""
        return self.get_many([key])[0]

    @abstractmethod
    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        """The records in the order asked. One round trip (pipelined), read one after the other in that order."""

    @abstractmethod
    def keys(self, within: KeyRange) -> list[str]:
        """The paths from `first` to `last`, both inclusive. For a sequence: a consistent prefix of the append order."""

    def scan(self, within: KeyRange) -> list[Record]:
        """Return the records from `first` to `last`. A record that is deleted between list and get is left out."""
        found = self.get_many([Key(path, within.partition) for path in self.keys(within)])
        return [r for r in found if r is not None]

    @abstractmethod
    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        """The records whose entry in `index` lies from `first` to `last`, both inclusive, exact: never a prefix match."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the store's clock in ms since 1970. All deadlines are judged by this clock."""


class Watch(ABC):
    """A wake-up that can be stopped."""

    @abstractmethod
    def close(self) -> None: ...


class MetadataStore(ABC):
    """A place that keeps records. Safe for use by several threads of a process, which must not share it across a fork."""

    @abstractmethod
    def view(self) -> View:
        """Begin a decision: a linearizable starting point within the session of now."""

    @abstractmethod
    def write(self, *writes: Write) -> list[Record | None]:
        """Do the writes in one round trip; the records as they are now (None for a Delete), in order.

        A group is a way to save round trips, not a transaction to rely on: a backend that has groups (memory, SQLite, ZooKeeper)
        does all or nothing, another may stop between two. Callers must be right either way.
        Raises BadVersion (a lost race), ValueTooLarge, Unavailable (all: not done) or UnknownOutcome (perhaps done).
        A backend never repeats a write by itself.
        """

    def put(
        self,
        key: Key,
        value: bytes,
        *,
        expect: Record | int | None = ANY,
        indexes: tuple[IndexEntry, ...] = (),
        ephemeral: bool = False,
    ) -> Record:
        """One `Put` alone; the record as it is now. Raises as `write`."""
        (record,) = self.write(Put(key, value, expect, indexes, ephemeral))
        assert record is not None
        return record

    def delete(self, key: Key, *, expect: Record | int | None = ANY) -> None:
        """One `Delete` alone. Raises as `write`."""
        self.write(Delete(key, expect))

    def append(self, prefix: Prefix, value: bytes, *, indexes: tuple[IndexEntry, ...] = ()) -> Record:
        """One `Append` alone; the record with its key, and so its number. Raises as `write`."""
        (record,) = self.write(Append(prefix, value, indexes))
        assert record is not None
        return record

    def skip(self, prefix: Prefix, to: int) -> None:
        """Make later appends under `prefix` get numbers of at least `to`. A restore calls this, so that no number is given out
        twice.

        Numbers never move back, and a repeated call changes nothing. Raises Unavailable or UnknownOutcome (both may be repeated),
        and ConfigurationError if the backend cannot do it.
        """
        raise ConfigurationError(
            f"A {type(self).__name__} cannot advance its sequences, so no backup can be restored into it.",
            advice="Restore into SQLite (file:///folder) or ZooKeeper (zk://...).",
        )

    @abstractmethod
    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        """Call `wake` (from any thread) soon after the key, or the records under the prefix, may have changed.

        Wake-ups may be lost, repeated or coalesced and never carry the truth: look, then sleep until woken or a timeout.
        """

    def is_served_by(self, hosts: Sequence[str]) -> bool:
        """Return whether the given servers (`host:port`) hold this same store under other addresses, and not a copy. For stores
        with servers.
        """
        return False

    def make_room(self) -> bool:
        """Free some of the reserved disk space if the disk is full. Return whether any was freed. Sweeps call this before they
        delete.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """End the session, which deletes its ephemeral records, and free all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def in_groups(items: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Split writes into groups of a size that every backend takes (one ZooKeeper multi holds 1 MB)."""
    for i in range(0, len(items), size):
        yield items[i : i + size]


def written(store: MetadataStore, *writes: Write) -> bool:
    """Write the group and return whether this call did it. After a lost race or reply return False; the caller reads again. For
    steps that any process may take.
    """
    try:
        store.write(*writes)
    except (BadVersion, UnknownOutcome):
        return False
    return True


def expected_version(expect: Record | int | None) -> int | None:
    """Return the version that a write expects: None = any, -1 = must not exist."""
    return expect.version if isinstance(expect, Record) else expect


def decide(store: MetadataStore, body: Callable[[View], T], *, attempts: int = 10) -> T:
    """Run `body` with a fresh view. If the session is lost between its reads, start over (so the writes of `body` must be CASes).

    Raises SessionLost after `attempts` lost sessions in a row.
    """
    for left in range(attempts - 1, -1, -1):
        try:
            return body(store.view())
        except SessionLost:
            if not left:
                raise
    raise AssertionError("attempts must be positive")


def until(step: Callable[[], T | None], *, attempts: int = 100) -> T:
    """Repeat `step` until it returns something other than None, and return that. A step returns None after a lost race or a lost
    reply, when it must read again.

    Raises BadVersion after `attempts` steps: another writer wins each time, or the store does not answer.
    """
    for _ in range(attempts):
        answer = step()
        if answer is not None:
            return answer
    raise BadVersion(
        f"Other writers changed the record, or the reply to its write was lost, {attempts} times in a row.",
        advice="Try again; if it fails again, check the metadata store (txnsegment doctor).",
    )


def skip(store: MetadataStore, prefix: Prefix, to: int) -> None:
    """Call `MetadataStore.skip` until its outcome is known. Repeating it is safe."""

    def step() -> bool | None:
        try:
            store.skip(prefix, to)
        except UnknownOutcome:
            return None
        return True

    until(step)


def look(store: MetadataStore, key: Key) -> Record | None:
    """Read one record: `decide` with one read. Raises SessionLost as `decide` does."""
    return decide(store, lambda view: view.get(key))


def time_ms(store: MetadataStore) -> int:
    """Read the store's clock (`View.now_ms`): `decide` with one read. Raises SessionLost as `decide` does."""
    return decide(store, lambda view: view.now_ms())
