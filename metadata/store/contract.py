"""The MetadataStore contract (protocol.md section 3). Every backend fulfils it, and callers may assume no more.

Reading goes through a `View`, writing through the store itself:

    view = store.view()                 # a decision begins: everything acknowledged before now is visible
    record = view.get(key)
    store.write(Put(key, value, expect=record))

A decision that is based on more than one read is correct only if all its reads are in one view. `decide()` starts over with a new
view when the session of the view is lost.
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
"""Maximum length of a value in bytes. A longer value raises ValueTooLarge. The limit fits every backend: a znode has at most 1 MB,
which includes the names of the index entries.
"""

BUSY_SECONDS: Final = 10.0
"""How long in seconds a process waits for another process that holds the database. Then the waiting process reports an error."""


class Put(NamedTuple):
    """Write a record.

    `expect`: with ANY (None) the record may have any version or not exist. With ABSENT (-1) it must not exist. With a Record or a
    version it must still have that version. `indexes` replaces all index entries of the record. `ephemeral`: the record is deleted
    when this store's session ends.

    `durable` has the same meaning in each kind of write. With False a power failure may undo the write, but then it also undoes
    everything written later. A group is durable if one of its writes is. ZooKeeper ignores False: each write is durable there.
    """

    key: Key
    value: bytes
    expect: Record | int | None = ANY
    indexes: tuple[IndexEntry, ...] = ()
    ephemeral: bool = False
    durable: bool = True


class Delete(NamedTuple):
    """Delete a record with its index entries. `expect`: as in Put. With ANY the record need not exist. With a version, a missing
    record raises BadVersion.
    """

    key: Key
    expect: Record | int | None = ANY
    durable: bool = True


class Append(NamedTuple):
    """Allocate the next number of the sequence `prefix` and create the record of this number, in one atomic step. The numbers rise,
    may have gaps, and are never allocated twice, even after deletes and restarts. A reader that sees a record of the sequence also
    sees all records with lower numbers that were not deleted.
    """

    prefix: Prefix
    value: bytes
    indexes: tuple[IndexEntry, ...] = ()
    durable: bool = True


Write = Put | Delete | Append


class View(ABC):
    """A series of reads. All of them are in one session, and each sees everything that was acknowledged before `store.view()` was
    called.

    A backend may send the sync that ensures this with the first read, in the same round trip. Reads raise SessionLost if the
    session has ended since the view was made, and Unavailable if the store cannot be reached. A read may always be repeated with a
    new view. A list is in ascending order of the key (or of (index key, key)). It is complete, or the call raises.
    """

    def get(self, key: Key) -> Record | None:
        """Return the record, or None if it does not exist. One round trip."""
        return self.get_many([key])[0]

    @abstractmethod
    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        """Return the record of each key, or None. The records are read one by one, in the order of `keys`. One round trip."""

    @abstractmethod
    def keys(self, within: KeyRange) -> list[str]:
        """Return the paths in the range. A list of a sequence (see `Append`) has no gaps: for each record in the list, the list
        also has all earlier records of the range that still exist. Only newer records may be missing.
        """

    def scan(self, within: KeyRange) -> list[Record]:
        """Return the records in the range. A record that is deleted between the list and the get is left out."""
        found = self.get_many([Key(path, within.partition) for path in self.keys(within)])
        return [r for r in found if r is not None]

    @abstractmethod
    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        """Return the records that have an entry in `index` with a key from `first` to `last`, both inclusive. Keys are compared as
        whole texts, so a longer key that begins with `last` is not in the range.
        """

    @abstractmethod
    def now_ms(self) -> int:
        """Return the time of the store's clock in ms since 1970. All deadlines are judged by this clock."""


class Watch(ABC):
    """A request for wake-ups, made by `MetadataStore.watch`. `close` ends it."""

    @abstractmethod
    def close(self) -> None: ...


class MetadataStore(ABC):
    """A place that keeps records. Safe for use by several threads of a process, which must not share it across a fork."""

    read_only: bool = False
    """Whether all writes are refused. Readers of such a store leave transactions past their deadline to other processes."""

    @abstractmethod
    def view(self) -> View:
        """Return a new view in the current session. Its reads see everything that was acknowledged before this call."""

    @abstractmethod
    def write(self, *writes: Write) -> list[Record | None]:
        """Do the writes in one round trip. Return the new record of each write (None for a Delete).

        A group of writes saves round trips. It need not be atomic: the stores of this package (memory, SQLite, ZooKeeper) do all
        writes or none, but another backend may stop between two writes. Callers must be correct in both cases. Raises BadVersion (a
        lost race), ValueTooLarge or Unavailable if nothing was done, and UnknownOutcome if the writes may have been done. A backend
        never repeats a write by itself.
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
        """Do one `Put`. Return the new record. Raises as `write` does."""
        (record,) = self.write(Put(key, value, expect, indexes, ephemeral))
        assert record is not None
        return record

    def delete(self, key: Key, *, expect: Record | int | None = ANY) -> None:
        """Do one `Delete`. Raises as `write` does."""
        self.write(Delete(key, expect))

    def append(self, prefix: Prefix, value: bytes, *, indexes: tuple[IndexEntry, ...] = ()) -> Record:
        """Do one `Append`. Return the new record, whose key has the allocated number. Raises as `write` does."""
        (record,) = self.write(Append(prefix, value, indexes))
        assert record is not None
        return record

    def skip(self, prefix: Prefix, to: int) -> None:
        """Make all later appends to the sequence `prefix` get numbers of at least `to`. A restore calls this, so that no number is
        allocated twice.

        A `to` that is lower than in an earlier call changes nothing. Raises Unavailable or UnknownOutcome; the caller may repeat
        the call after both. Raises ConfigurationError if the backend cannot advance a sequence.
        """
        raise ConfigurationError(
            f"A {type(self).__name__} cannot advance its sequences, so no backup can be restored into it.",
            advice="Restore into SQLite (file:///folder) or ZooKeeper (zk://...).",
        )

    @abstractmethod
    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        """Call `wake` (from any thread) soon after the key, or the records under the prefix, may have changed.

        Wake-ups may be lost or repeated, and one wake-up may stand for several changes. So a caller reads, waits for a wake-up or a
        timeout, and reads again.
        """

    def is_served_by(self, hosts: Sequence[str]) -> bool:
        """Return whether the servers `hosts` (`host:port` each) hold this very store, and not a copy. A store without servers
        returns False.
        """
        return False

    def make_room(self) -> bool:
        """Free some of the reserved disk space if the disk is full. Return whether space was freed. A sweep calls this when the
        store cannot write, and then tries again.
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
    """Split a list of small writes into groups of at most `size`. A group must not be large, because a ZooKeeper multi has at most
    1 MB.
    """
    for i in range(0, len(items), size):
        yield items[i : i + size]


def written(store: MetadataStore, *writes: Write) -> bool:
    """Write the group and return whether it succeeded. After a lost race or a lost reply return False, so that the caller reads
    again. Callers use this function for steps that any process may do.
    """
    try:
        store.write(*writes)
    except (BadVersion, UnknownOutcome):
        return False
    return True


def expected_version(expect: Record | int | None) -> int | None:
    """Return the version that a write with this `expect` requires. None: any version. -1: the record must not exist."""
    return expect.version if isinstance(expect, Record) else expect


def decide(store: MetadataStore, body: Callable[[View], T], *, attempts: int = 10) -> T:
    """Return the result of `body`, called with a new view. If the session is lost between two reads, start over with another view.
    `body` may therefore run several times, so each write in it must be a CAS, which does no harm when it is repeated.

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
    """Call `step` until it returns a value other than None, and return this value. A step returns None after a lost race or a lost
    reply, because it must then read again.

    Raises BadVersion after `attempts` calls. Then another writer won each race, or each reply was lost.
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
    """Call `MetadataStore.skip`, and repeat the call while it raises UnknownOutcome: later appends to the sequence `prefix` get
    numbers of at least `to`.
    """

    def step() -> bool | None:
        try:
            store.skip(prefix, to)
        except UnknownOutcome:
            return None
        return True

    until(step)


def look(store: MetadataStore, key: Key) -> Record | None:
    """Return one record, read in a view of its own. Raises SessionLost as `decide` does."""
    return decide(store, lambda view: view.get(key))


def time_ms(store: MetadataStore) -> int:
    """Return the time of the store's clock (`View.now_ms`), read in a view of its own. Raises SessionLost as `decide` does."""
    return decide(store, lambda view: view.now_ms())
