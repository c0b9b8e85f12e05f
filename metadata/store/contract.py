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
"""How long whoever finds another one at work, in the same database or ledger root, waits for his turn, before it is an error."""


class Put(NamedTuple):
    """Write a record. `expect`: ANY (None) = whatever is there; ABSENT (-1) = it must not exist; a Record or a version = it must
    still have that version. `indexes` replaces all index entries of the record. `ephemeral`: goes when this store's session ends.

    `durable` (of every write): False says that a power failure may undo it, as long as it undoes everything written after it
    too; a group is as durable as its most durable write. A backend that has nothing to save by it (ZooKeeper) ignores it.
    """

    key: Key
    value: bytes
    expect: Record | int | None = ANY
    indexes: tuple[IndexEntry, ...] = ()
    ephemeral: bool = False
    durable: bool = True


class Delete(NamedTuple):
    """Delete a record with its index entries. `expect` as in Put; ANY tolerates absence, a version does not (BadVersion)."""

    key: Key
    expect: Record | int | None = ANY
    durable: bool = True


class Append(NamedTuple):
    """Allocate the next number under `prefix` and create the record, in one atomic step. Numbers rise strictly, may have gaps,
    and are never used again, also after deletes and restarts. Whoever sees number n+1 can see every number <= n.
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
        """The records from `first` to `last`; one that is deleted between list and get is left out."""
        found = self.get_many([Key(path, within.partition) for path in self.keys(within)])
        return [r for r in found if r is not None]

    @abstractmethod
    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        """The records whose entry in `index` lies from `first` to `last`, both inclusive, exact: never a prefix match."""

    @abstractmethod
    def now_ms(self) -> int:
        """The store's clock, ms since 1970: what all deadlines are judged by."""


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
        """From now on appends under `prefix` get numbers of at least `to`: a restore goes on above all that was ever given out.

        Numbers never move back, and doing it again changes nothing. Raises Unavailable or UnknownOutcome: either may be repeated;
        ConfigurationError by a backend that cannot.
        """
        raise ConfigurationError(
            f"Sequences of a {type(self).__name__} cannot be moved on, so no backup can be restored into it.",
            advice="Restore into SQLite (file:///folder) or ZooKeeper (zk://...).",
        )

    @abstractmethod
    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        """Call `wake` (from any thread) soon after the key, or the records under the prefix, may have changed.

        Wake-ups may be lost, repeated or coalesced and never carry the truth: look, then sleep until woken or a timeout.
        """

    def is_served_by(self, hosts: Sequence[str]) -> bool:
        """Whether servers, `host:port` each, hold this very store: other addresses of it, and no copy. For stores with servers."""
        return False

    def make_room(self) -> bool:
        """Free some of the room that was kept for a full disk, if it is full; whether any was freed. For sweeps, which delete."""
        return False

    @abstractmethod
    def close(self) -> None:
        """End the session (its ephemeral records go) and free everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def in_groups(items: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Writes in groups that every backend takes (one ZooKeeper multi holds 1 MB)."""
    for i in range(0, len(items), size):
        yield items[i : i + size]


def written(store: MetadataStore, *writes: Write) -> bool:
    """Whether the group was done by us. A lost race or reply is left to whoever reads again: for steps that anybody may take."""
    try:
        store.write(*writes)
    except (BadVersion, UnknownOutcome):
        return False
    return True


def expected_version(expect: Record | int | None) -> int | None:
    """The version that a write expects: None = any, -1 = must not exist."""
    return expect.version if isinstance(expect, Record) else expect


def decide(store: MetadataStore, body: Callable[[View], T], *, attempts: int = 10) -> T:
    """Run `body` over a fresh view; if the session is lost between its reads, start over (its writes must be CASes).

    Raises SessionLost after `attempts` sessions were lost in a row.
    """
    for left in range(attempts - 1, -1, -1):
        try:
            return body(store.view())
        except SessionLost:
            if not left:
                raise
    raise AssertionError("attempts must be positive")


def until(step: Callable[[], T | None], *, attempts: int = 100) -> T:
    """Run a step that answers None when it has to look again: it lost a race, or the reply to a write. What it answers else.

    Raises BadVersion after `attempts` of them: each lost race means that somebody else moved on, so it is the store, or a crowd.
    """
    for _ in range(attempts):
        answer = step()
        if answer is not None:
            return answer
    raise BadVersion(
        f"A record kept changing under us, or writing it was never answered, {attempts} times in a row.",
        advice="Try again; if it stays so, look after the metadata store (txnsegment doctor).",
    )


def skip(store: MetadataStore, prefix: Prefix, to: int) -> None:
    """`MetadataStore.skip`, again while its outcome is unknown: doing it again changes nothing."""

    def step() -> bool | None:
        try:
            store.skip(prefix, to)
        except UnknownOutcome:
            return None
        return True

    until(step)


def look(store: MetadataStore, key: Key) -> Record | None:
    """The record as it is now: `decide` with one read. Raises SessionLost as `decide` does."""
    return decide(store, lambda view: view.get(key))


def time_ms(store: MetadataStore) -> int:
    """The store's time as it is now (`View.now_ms`): `decide` with one look at the clock. Raises SessionLost as `decide` does."""
    return decide(store, lambda view: view.now_ms())
