"""Faults of order and time: stale reads, sequences, sessions, watches and the clock."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar

from conformance.store.faults.planting import Sound, SoundView, planted, planted_view
from metadata.common.errors import BadVersion
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import ABSENT, Append, MetadataStore, Put, Record, View, Watch, Write


class _Lagging(Sound):
    """A store whose reads come from a lagging replica. Each session numbers its gets from 1.

    The session remembers the answers of a correct get whose number n has `n % looks == since`. A get whose number is a multiple of
    `every` returns remembered answers, if there is one for each requested key. All other gets are correct.
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


@planted("records/a-session-sees-at-once-what-another-one-was-told-is-done")
class StaleReads(_Lagging):
    """A session reads from a lagging replica: every third get returns an old value, which the session read earlier (A30)."""

    every = 3


@planted("histories/threads")
class StaleReadsNowAndThen(_Lagging):
    """One get in twenty returns an old value, which the session read earlier. Only a check of a history finds a fault so rare."""

    every, looks, since = 20, 10, 1  # a remembered value is at least nine gets old when it is returned


@planted_view("groups/a-group-is-never-seen-half")
class ReadsInReverse(SoundView):
    """A get of many keys reads the keys one by one, from the last to the first."""

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        found = []
        for key in reversed(keys):
            found += self.view.get_many([key])
            time.sleep(0.0005)
        return found[::-1]


@planted("sequences/whoever-sees-a-number-sees-all-below")
class CounterFirstRecordLater(Sound):
    """An append takes its number first and writes its record later. So the number n+1 can be visible before n."""

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


@planted("sequences/the-newest-number-is-not-used-again-after-its-delete")
class NumbersAreUsedAgain(Sound):
    """An append takes the number after the highest number that still has a record."""

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
                continue  # another session took the number, so try the next


@planted("sequences/a-skip-moves-numbers-on-and-never-back")
class SkipsAreForgotten(Sound):
    """A skip does nothing, so numbers are given a second time after a restore."""

    def skip(self, prefix: Prefix, to: int) -> None:
        """Do nothing."""


@planted_view("sequences/an-acknowledged-append-is-in-every-later-list")
class ListsLag(SoundView):
    """A list of ten records or more leaves out the newest record."""

    def scan(self, within: KeyRange) -> list[Record]:
        found = self.view.scan(within)
        return found[:-1] if len(found) > 9 else found


@planted("sessions/ephemeral-records-go-with-their-session")
class EphemeralRecordsStay(Sound):
    """Ephemeral records outlive their session."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(w._replace(ephemeral=False) if isinstance(w, Put) else w for w in writes))


@planted("sessions/only-the-sessions-own-records-go")
class EphemeralRecordsOfAllGo(Sound):
    """The end of a session deletes the ephemeral records of all sessions."""

    made: ClassVar[set[Key]] = set()

    def write(self, *writes: Write) -> list[Record | None]:
        self.made.update(w.key for w in writes if isinstance(w, Put) and w.ephemeral)
        return self.store.write(*writes)

    def close(self) -> None:
        while self.made:
            self.store.delete(self.made.pop())
        self.store.close()


@planted("watches/a-change-of-the-key-wakes")
class WatchesAreSilent(Sound):
    """A watch never wakes."""

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self.store.watch(target, lambda: None)


@planted("watches/a-change-below-the-prefix-wakes")
class WatchesWakeOnce(Sound):
    """A watch wakes for the first change only, as a raw watch of ZooKeeper does."""

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        once = iter([wake])
        return self.store.watch(target, lambda: next(once, lambda: None)())


@planted("watches/a-closed-watch-is-silent")
class ClosedWatchesWake(Sound):
    """A closed watch still wakes."""

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return _Unclosed(self.store.watch(target, wake))


class _Unclosed(Watch):
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def close(self) -> None:
        """Leave the watch open."""


@planted_view("sessions/the-store-has-a-clock")
class ClockInSeconds(SoundView):
    """The clock gives seconds instead of milliseconds (A12)."""

    def now_ms(self) -> int:
        return self.view.now_ms() // 1000
