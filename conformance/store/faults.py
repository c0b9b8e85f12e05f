"""Deliberate faults of a metadata store, one at a time, to show that the suite has teeth: each is caught by a case that is named.

    run(url, seed, opener=lambda url: fault.wrap(open_store(url)))

A fault is a wrapper around a sound store. Most are faults that real systems had: see protocol.md section 9.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

from metadata.errors import BadVersion, Unavailable, ValueTooLarge
from metadata.paths import Key, KeyRange, Prefix
from metadata.store.contract import ABSENT, ANY, Append, Delete, MetadataStore, Put, Record, View, Watch, Write, expected_version

TOP = "\U0010ffff"


class Sound(MetadataStore):
    """Passes everything on. Faults override one thing."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def view(self) -> View:
        return SoundView(self.store.view())

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*writes)

    def skip(self, prefix: Prefix, to: int) -> None:
        self.store.skip(prefix, to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self.store.watch(target, wake)

    def close(self) -> None:
        self.store.close()


class SoundView(View):
    def __init__(self, view: View) -> None:
        self.view = view

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return self.view.get_many(keys)

    def keys(self, within: KeyRange) -> list[str]:
        return [record.key.path for record in self.scan(within)]

    def scan(self, within: KeyRange) -> list[Record]:
        return self.view.scan(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        return self.view.scan_index(index, first, last)

    def now_ms(self) -> int:
        return self.view.now_ms()


@dataclass(frozen=True, slots=True)
class Fault:
    """`caught_by`: the case that must fail. `says`: what the faulty store does."""

    name: str
    says: str
    wrap: Callable[[MetadataStore], MetadataStore]
    caught_by: str


FAULTS: list[Fault] = []


def _planted(caught_by: str) -> Callable[[type[Sound]], type[Sound]]:
    def plant(kind: type[Sound]) -> type[Sound]:
        name = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__).strip("-")
        FAULTS.append(Fault(name, " ".join((kind.__doc__ or "").split()), kind, caught_by))
        return kind

    return plant


def _planted_view(caught_by: str) -> Callable[[type[SoundView]], type[SoundView]]:
    """The same for a fault of reading."""

    def plant(kind: type[SoundView]) -> type[SoundView]:
        def view(self: Sound) -> View:
            return kind(self.store.view())

        _planted(caught_by)(type(kind.__name__, (Sound,), {"view": view, "__doc__": kind.__doc__}))
        return kind

    return plant


# --- ranges and indexes -------------------------------------------------------------------------------------------


@_planted_view("indexes/index-ranges-are-exact")
class IndexScanByPrefix(SoundView):
    """An index scan finds every index key that begins with the last one (A14)."""

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        return self.view.scan_index(index, first, last + TOP)


@_planted_view("ranges/keys-are-exact-and-in-order")
class KeyRangeByPrefix(SoundView):
    """A range of keys holds every key that begins with the last one (A14)."""

    def scan(self, within: KeyRange) -> list[Record]:
        return self.view.scan(within._replace(last=within.last + TOP))


@_planted_view("indexes/index-ranges-are-exact")
class IndexEndExclusive(SoundView):
    """The last index key of a range is left out."""

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        at_the_end = self.view.scan_index(index, last, last)
        return [record for record in self.view.scan_index(index, first, last) if record not in at_the_end]


@_planted_view("ranges/keys-are-exact-and-in-order")
class RangeEndExclusive(SoundView):
    """The last key of a range is left out."""

    def scan(self, within: KeyRange) -> list[Record]:
        return [record for record in self.view.scan(within) if record.key.path != within.last]


@_planted_view("indexes/index-names-are-exact")
class IndexNamesIgnoreCase(SoundView):
    """Indexes whose names differ in case only are one."""

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        return [
            record for name in dict.fromkeys([index.lower(), index.upper()]) for record in self.view.scan_index(name, first, last)
        ]


@_planted_view("ranges/any-calls-leave-what-the-model-says")
class OrderByLength(SoundView):
    """Lists are in an order of their own."""

    def scan(self, within: KeyRange) -> list[Record]:
        return sorted(self.view.scan(within), key=lambda record: (len(record.key.path), record.key.path))


@_planted_view("ranges/a-range-over-all-partitions-keeps-each-records-own")
class OneShardOnly(SoundView):
    """A scan over all partitions asks one server of four (A15)."""

    def scan(self, within: KeyRange) -> list[Record]:
        return [r for r in self.view.scan(within) if within.partition or crc32(r.key.partition.encode()) % 4 == 0]


@_planted_view("records/another-partition-key-finds-nothing")
class PartitionIgnored(SoundView):
    """A get finds a record of another partition key."""

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return [next(iter(self.view.scan(KeyRange(key.path, key.path, ""))), None) for key in keys]


@_planted_view("records/many-records-in-one-call-come-in-the-order-asked")
class AnswersInKeyOrder(SoundView):
    """A get of many keys answers in the order of the keys."""

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return self.view.get_many(sorted(keys))


@_planted("indexes/a-put-replaces-the-entries-and-a-delete-removes-them")
class IndexEntryLeftAfterReplace(Sound):
    """A put adds its index entries and leaves the old ones."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(self._with_old(write) for write in writes))

    def _with_old(self, write: Write) -> Write:
        old = self.store.view().get(write.key) if isinstance(write, Put) else None
        return (
            write._replace(indexes=tuple(dict.fromkeys([*old.indexes, *write.indexes])))
            if old and isinstance(write, Put)
            else write
        )


# --- versions and writes ------------------------------------------------------------------------------------------


@_planted("records/a-record-that-moved-on")
class VersionIgnored(Sound):
    """A put or delete that expects a version does not look at it."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(
            *(w._replace(expect=ANY) if isinstance(w, Put | Delete) and expected_version(w.expect) != ABSENT else w for w in writes)
        )


@_planted("records/a-record-that-has-its-old-value-again")
class ValuesAreCompared(Sound):
    """A put or delete that expects a record compares its value, not its version."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(self._with_newest(write) for write in writes))

    def _with_newest(self, write: Write) -> Write:
        if isinstance(write, Append) or not isinstance(write.expect, Record):
            return write
        now = self.store.view().get(write.key)
        return write._replace(expect=now) if now is not None and now.value == write.expect.value else write


@_planted("records/a-put-that-expects-nothing-meets-a-record")
class AbsenceIgnored(Sound):
    """A put that expects absence replaces what is there."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(
            *(w._replace(expect=ANY) if isinstance(w, Put) and expected_version(w.expect) == ABSENT else w for w in writes)
        )


@_planted("records/a-delete-that-expects-nothing-meets-a-record")
class DeleteOfNothingSucceeds(Sound):
    """A delete that expects absence succeeds without a look (the ZooKeeper store of this project did)."""

    def write(self, *writes: Write) -> list[Record | None]:
        kept = [w for w in writes if not (isinstance(w, Delete) and w.expect == ABSENT)]
        return self.store.write(*kept) if len(kept) == len(writes) else [*self.store.write(*kept), None]


@_planted("records/a-record-that-moved-on")
class LostRaceIsSilent(Sound):
    """A write that lost its race returns what is there, as if it had won."""

    def write(self, *writes: Write) -> list[Record | None]:
        try:
            return self.store.write(*writes)
        except BadVersion:
            return [None if isinstance(w, Append) else self.store.view().get(w.key) for w in writes]


@_planted("races/exactly-one-creates")
class CheckThenAct(Sound):
    """The version is compared first, and the record written a moment later."""

    def write(self, *writes: Write) -> list[Record | None]:
        unchecked: list[Write] = []
        for write in writes:
            if isinstance(write, Put):
                found = self.store.view().get(write.key)
                expected = expected_version(write.expect)
                if expected is not None and expected != (found.version if found else ABSENT):
                    raise BadVersion(f"{write.key.path} has another version.")
                unchecked.append(write._replace(expect=ANY))
            else:
                unchecked.append(write)
        time.sleep(0.002)
        return self.store.write(*unchecked)


@_planted("records/versions-count-puts-and-restart-with-the-key")
class PutsAreRepeated(Sound):
    """An unconditional put is sent twice, in case its reply was lost (A26)."""

    def write(self, *writes: Write) -> list[Record | None]:
        found = self.store.write(*writes)
        again = len(writes) == 1 and isinstance(writes[0], Put) and writes[0].expect is ANY
        return self.store.write(*writes) if again else found


@_planted("indexes/an-append-may-have-entries")
class AppendsAreRepeated(Sound):
    """An append is sent twice, in case its reply was lost (A26)."""

    def write(self, *writes: Write) -> list[Record | None]:
        if len(writes) == 1 and isinstance(writes[0], Append):
            self.store.write(*writes)
        return self.store.write(*writes)


@_planted("histories/threads")
class AcknowledgedNotDone(Sound):
    """Every thirtieth put is acknowledged and forgotten."""

    calls: ClassVar[Counter[str]] = Counter()

    def write(self, *writes: Write) -> list[Record | None]:
        if len(writes) == 1 and isinstance(put := writes[0], Put) and put.expect is ANY:
            self.calls["put"] += 1
            if self.calls["put"] % 30 == 0:
                found = self.store.view().get(put.key)
                return [Record(put.key, put.value, found.version + 1 if found else 0, put.indexes)]
        return self.store.write(*writes)


@_planted("histories/threads")
class DoneNotAcknowledged(Sound):
    """Every twentieth write is done and called Unavailable, which means that it is known not to be done (A18)."""

    calls: ClassVar[Counter[str]] = Counter()

    def write(self, *writes: Write) -> list[Record | None]:
        done = self.store.write(*writes)
        self.calls["write"] += 1
        if self.calls["write"] % 20 == 0:
            raise Unavailable("The server is busy.")
        return done


@_planted("groups/or-nothing-of-it")
class HalfAGroup(Sound):
    """The writes of a group are done one by one, until one fails."""

    def write(self, *writes: Write) -> list[Record | None]:
        return [record for write in writes for record in self.store.write(write)]


@_planted("records/the-longest-value-fits-and-a-longer-one-is-refused")
class LongValuesAreCut(Sound):
    """A value ends after 512 KiB."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(w if isinstance(w, Delete) else w._replace(value=w.value[: 512 * 1024]) for w in writes))


@_planted("records/the-longest-value-fits-and-a-longer-one-is-refused")
class TooLongIsDropped(Sound):
    """A value that does not fit is dropped without a word (A20)."""

    def write(self, *writes: Write) -> list[Record | None]:
        try:
            return self.store.write(*writes)
        except ValueTooLarge:
            return [Record(w.prefix.key(1) if isinstance(w, Append) else w.key, b"x", 0) for w in writes]


@_planted("records/any-bytes-survive")
class ValuesAreText(Sound):
    """Values are kept as UTF-8."""

    def write(self, *writes: Write) -> list[Record | None]:
        as_text = (w if isinstance(w, Delete) else w._replace(value=w.value.decode(errors="replace").encode()) for w in writes)
        return self.store.write(*as_text)


# --- freshness ----------------------------------------------------------------------------------------------------


class _Lagging(Sound):
    """Reads from a replica that lags: every `every`-th get gives what the session saw there before, if it saw anything. What it saw
    is noted of one get of `looks`, the one with the remainder `since`.
    """

    every: ClassVar[int]
    looks: ClassVar[int] = 1
    since: ClassVar[int] = 0

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self.seen: dict[Key, Record | None] = {}
        self.reads = 0

    def view(self) -> View:
        return _StaleView(self.store.view(), self)


class _StaleView(SoundView):
    def __init__(self, view: View, session: _Lagging) -> None:
        super().__init__(view)
        self._session = session

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        session = self._session
        session.reads += 1
        if session.reads % session.every == 0 and all(key in session.seen for key in keys):
            return [session.seen[key] for key in keys]
        found = self.view.get_many(keys)
        if session.reads % session.looks == session.since:
            session.seen.update(zip(keys, found, strict=True))
        return found


@_planted("records/a-session-sees-at-once-what-another-one-was-told-is-done")
class StaleReads(_Lagging):
    """A session reads from a replica that lags: every third get of a key gives what the session saw there before (A30)."""

    every = 3


@_planted("histories/threads")
class StaleReadsNowAndThen(_Lagging):
    """One get of twenty gives what the session saw there before: only a history shows it."""

    every, looks, since = 20, 10, 1  # so that what was seen is old by then


@_planted_view("groups/a-group-is-never-seen-half")
class ReadsInReverse(SoundView):
    """A get of many keys reads them one by one, the last one first."""

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        found = []
        for key in reversed(keys):
            found += self.view.get_many([key])
            time.sleep(0.0005)
        return found[::-1]


# --- sequences ----------------------------------------------------------------------------------------------------


@_planted("sequences/whoever-sees-a-number-sees-all-below")
class CounterFirstRecordLater(Sound):
    """An append takes its number first and writes its record a moment later: n+1 is there before n."""

    numbers: ClassVar[Counter[tuple[int, Prefix]]] = Counter()
    guard: ClassVar[threading.Lock] = threading.Lock()

    def write(self, *writes: Write) -> list[Record | None]:
        return [
            record
            for write in writes
            for record in ([self._append(write)] if isinstance(write, Append) else self.store.write(write))
        ]

    def _append(self, append: Append) -> Record:
        with self.guard:
            taken = self.store.view().get(Key("/counter", "")) or self.store.put(Key("/counter", ""), b"0", expect=ABSENT)
            number = int(taken.value) + 1
            self.store.put(Key("/counter", ""), b"%d" % number)
        if number % 5 == 0:
            time.sleep(0.01)
        return self.store.put(append.prefix.key(number), append.value, expect=ABSENT, indexes=append.indexes)


@_planted("sequences/the-newest-number-is-not-used-again-after-its-delete")
class NumbersAreUsedAgain(Sound):
    """An append takes the number after the highest that is there."""

    def write(self, *writes: Write) -> list[Record | None]:
        return [
            record
            for write in writes
            for record in ([self._append(write)] if isinstance(write, Append) else self.store.write(write))
        ]

    def _append(self, append: Append) -> Record:
        while True:
            paths = self.store.view().keys(append.prefix.range())
            key = append.prefix.key(int(paths[-1][-20:]) + 1 if paths else 1)
            try:
                return self.store.put(key, append.value, expect=ABSENT, indexes=append.indexes)
            except BadVersion:
                continue  # another one took that number: the next


@_planted("sequences/a-skip-moves-numbers-on-and-never-back")
class SkipsAreForgotten(Sound):
    """A skip does nothing: after a restore numbers are given a second time."""

    def skip(self, prefix: Prefix, to: int) -> None:
        """Says that it is done."""


@_planted_view("sequences/an-acknowledged-append-is-in-every-later-list")
class ListsLag(SoundView):
    """A list leaves out its newest record when there are many."""

    def scan(self, within: KeyRange) -> list[Record]:
        found = self.view.scan(within)
        return found[:-1] if len(found) > 9 else found


# --- sessions, watches, time --------------------------------------------------------------------------------------


@_planted("sessions/ephemeral-records-go-with-their-session")
class EphemeralRecordsStay(Sound):
    """Ephemeral records are like others."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(w._replace(ephemeral=False) if isinstance(w, Put) else w for w in writes))


@_planted("sessions/only-the-sessions-own-records-go")
class EphemeralRecordsOfAllGo(Sound):
    """When a session ends, the ephemeral records of all sessions go."""

    made: ClassVar[set[Key]] = set()

    def write(self, *writes: Write) -> list[Record | None]:
        self.made.update(w.key for w in writes if isinstance(w, Put) and w.ephemeral)
        return self.store.write(*writes)

    def close(self) -> None:
        while self.made:
            self.store.delete(self.made.pop())
        self.store.close()


@_planted("watches/a-change-of-the-key-wakes")
class WatchesAreSilent(Sound):
    """A watch never wakes."""

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self.store.watch(target, lambda: None)


@_planted("watches/a-change-below-the-prefix-wakes")
class WatchesWakeOnce(Sound):
    """A watch wakes for the first change only, as a raw watch of ZooKeeper does."""

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        once = iter([wake])
        return self.store.watch(target, lambda: next(once, lambda: None)())


@_planted("watches/a-closed-watch-is-silent")
class ClosedWatchesWake(Sound):
    """Closing a watch does nothing."""

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return _Unclosed(self.store.watch(target, wake))


class _Unclosed(Watch):
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def close(self) -> None:
        """Leaves it open."""


@_planted_view("sessions/the-store-has-a-clock")
class ClockInSeconds(SoundView):
    """The clock gives seconds (A12)."""

    def now_ms(self) -> int:
        return self.view.now_ms() // 1000
