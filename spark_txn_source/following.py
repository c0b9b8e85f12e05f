"""Tailing: a stream keeps its newest reading and uses it until the log changes. So an idle query costs the store almost nothing.

The kept reading is still the newest one if it has no undecided registration and nothing of the read was appended to the log since.
`Following.read` checks these two conditions, and reads the log again if one of them does not hold. So it returns all transactions
that committed before the call, as `processAllAvailable` needs it. `Following.read` also reads the log again after an event of a
commit, and if the kept reading is too old.

Spark asks a stream for its latest offset every ten milliseconds, and each answer costs the store a request. So
`FollowingLogs.rest` waits for a wake-up, for at most `REST_SECONDS`, if the stream has had no news for `IDLE_SECONDS`. It waits
before the reading and not after it, so the answer still has all that was decided before the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from metadata.client.client import Client
from metadata.client.logs import Logs
from metadata.cluster.cluster import Cluster
from metadata.common.clock import wait
from metadata.read.reading import Reading
from metadata.read.selection import Pattern, Selection
from metadata.records.names import TopicName, topic_name
from metadata.records.paths import LOG, Prefix
from metadata.store.contract import View, Watch, decide

MOST_SECONDS = 0.1
"""The greatest age of a kept reading. A trim appends nothing to the log, so only a new reading shows it."""
IDLE_SECONDS = 1.0
"""How long a stream must have had no news to be idle. The kept reading of an idle stream has no unread rows, which a trim could
remove. So it may be this old.
"""
REST_SECONDS = 0.1
"""How long an idle stream rests between two answers, if nothing wakes it."""

Seen = TypeVar("Seen")


class Source(Protocol[Seen]):
    """The logs to tail: one log (`LogReader`), or the logs of several topics (`TopicLogs`)."""

    @property
    def cluster(self) -> Cluster: ...

    def now(self) -> Seen: ...

    def is_newest(self, view: View, seen: Seen, /) -> bool: ...

    def watched(self, seen: Seen, /) -> Mapping[str, Prefix]: ...


class Following(Generic[Seen]):
    """Keeps the newest reading of a source for one query. `told`: a function that is called at each wake-up, from any thread."""

    def __init__(self, source: Source[Seen], told: Callable[[], None] = lambda: None, *, without: Collection[Prefix] = ()) -> None:
        """`without`: sequences that are not watched, although `source.watched` names them."""
        self._source, self._cluster, self._told, self._without = source, source.cluster, told, without
        self._woken = threading.Event()
        self._stale = False
        """Whether the next `read` reads the source again without a look at the log."""
        self._watches: dict[str, Watch] = {}
        self._seen: Seen | None = None
        self._taken = 0.0

    def read(self, most: float = MOST_SECONDS) -> Seen:
        """Return a reading with everything that was decided before this call. Trims may be missing that happened in the last `most`
        seconds. Raises the errors of `source.now`.
        """
        clock = self._cluster.clock
        old = self._stale or clock.monotonic() - self._taken >= most
        self._stale = False  # before the read, so that no wake-up during the read is lost
        self._woken.clear()
        if self._seen is None or old or not self._is_newest(self._seen):
            self._taken = clock.monotonic()
            self._seen = self._source.now()
            self._watch(self._seen)
        return self._seen

    def _is_newest(self, seen: Seen) -> bool:
        return decide(self._cluster.store, lambda view: self._source.is_newest(view, seen))

    def _watch(self, seen: Seen) -> None:
        wanted = {name: prefix for name, prefix in self._source.watched(seen).items() if prefix not in self._without}
        for name in wanted.keys() - self._watches.keys():
            # A registration in the cluster's log may be of other topics: the next read looks whose it is.
            woken = self._stir if wanted[name] == LOG else self.wake
            self._watches[name] = self._cluster.store.watch(wanted[name], woken)
            self.wake()  # a change between the reading and this watch caused no wake-up
        for name in self._watches.keys() - wanted.keys():
            self._watches.pop(name).close()

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, at most `seconds`, because wake-ups may be lost. Return whether a wake-up came."""
        return self._woken.wait(seconds)

    def forget(self) -> None:
        """Make the next `read` read the source again, because the kept reading does not show that retention has removed rows."""
        self._seen = None

    def wake(self) -> None:
        """Make the next `read` read the source again, because a record may have changed."""
        self._stale = True
        self._stir()

    def _stir(self) -> None:
        self._woken.set()
        self._told()

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()


class FollowingLogs:
    """Keeps the newest readings of all logs of a selection for one query. The successors of migrated topics are tailed, too.

    The cluster's log is not watched: each commit to any topic would wake the queries of all topics, and an event follows each
    commit to a topic of the query.
    """

    def __init__(self, client: Client, selection: Selection) -> None:
        self._logs, self._selection, self._clock = Logs(client, selection), selection, client.cluster.clock
        self._woken = threading.Event()
        self._news = self._rested = self._clock.monotonic()
        self._successors: tuple[TopicName, ...] | None = None
        self._shared: Following[Reading] | None = None
        own = self._logs.own
        self._own: Following[tuple[Reading, ...]] | None = None if own is None else Following(own, self._woken.set)

    def rest(self) -> None:
        """If the stream is idle, wait for a wake-up, but at most until `REST_SECONDS` after the last rest."""
        left = self._rested + REST_SECONDS - self._clock.monotonic()
        if left > 0 and self._idle:
            wait(self._clock, self._woken, left)
        self._rested = self._clock.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait for a wake-up after the last `read`, but at most `seconds`, because wake-ups may be lost."""
        wait(self._clock, self._woken, seconds)

    @property
    def _idle(self) -> bool:
        return self._clock.monotonic() - self._news >= IDLE_SECONDS

    def news(self) -> None:
        """Note that the stream has rows to read, or waits for a decision. So it is not idle."""
        self._news = self._clock.monotonic()

    def read(self) -> tuple[Reading, ...]:
        """Return a reading of each log with everything that was decided before this call. The cluster's log is read first
        (`metadata.client.logs` gives the reason). Raises TopicNotFound.
        """
        self._woken.clear()  # cleared before the read, so that a wake-up during the read is not lost
        while True:
            shared = self._read_shared()
            own = () if self._own is None else self._own.read()
            if not self._migrated_further(own):
                found = (*shared, *own)
                if any(reading.undecided for reading in found):
                    self.news()
                return found

    def _read_shared(self) -> tuple[Reading, ...]:
        if self._successors is None:
            self._successors = self._logs.successors()
        if self._shared is None and (log := self._logs.shared_log(self._successors)) is not None:
            self._shared = Following(log, self._woken.set, without=(LOG,))
        return () if self._shared is None else (self._shared.read(IDLE_SECONDS if self._idle else MOST_SECONDS),)

    def _migrated_further(self, own: tuple[Reading, ...]) -> bool:
        """Return whether there are new successors of migrated topics. If so, they are tailed from now on."""
        named = {topic_name(one.successor) for one in own if one.successor is not None} - {*(self._successors or ())}
        if isinstance(self._selection, Pattern):
            named = {name for name in named if not self._selection.matches(name)}  # the pattern itself covers names that match
        further = self._logs.successors() if named else self._successors
        if further == self._successors:
            return False
        self._successors = further
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        return True

    def close(self) -> None:
        for one in (self._shared, self._own):
            if one is not None:
                one.close()
