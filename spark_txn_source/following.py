"""Tailing: a stream keeps its newest reading and uses it until the log changes. So an idle query costs the store almost nothing.

Spark asks a stream for its latest offset every ten milliseconds. The kept reading is still the newest one if it has no undecided
registration and nothing was appended to the log since. `Following.read` checks these two conditions, and reads the log again if
one of them does not hold. So it returns all transactions that committed before the call, as `processAllAvailable` needs it.
`Following.read` also reads the log again after an event of a commit, and if the kept reading is older than `MOST_SECONDS`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from metadata.client.client import Client
from metadata.client.logs import Logs
from metadata.cluster.cluster import Cluster
from metadata.read.reading import Reading
from metadata.read.selection import Pattern, Selection
from metadata.records.names import TopicName, topic_name
from metadata.records.paths import Prefix
from metadata.store.contract import View, Watch, decide

MOST_SECONDS = 0.1

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

    def __init__(self, source: Source[Seen], told: Callable[[], None] = lambda: None) -> None:
        self._source, self._cluster, self._told = source, source.cluster, told
        self._woken = threading.Event()
        self._watches: dict[str, Watch] = {}
        self._seen: Seen | None = None
        self._taken = 0.0

    def read(self) -> Seen:
        """Return a reading with everything that was decided before this call. Raises the errors of `source.now`."""
        clock = self._cluster.clock
        old = self._woken.is_set() or clock.monotonic() - self._taken >= MOST_SECONDS
        if self._seen is None or old or not self._is_newest(self._seen):
            self._woken.clear()  # cleared before the read, so that no wake-up during the read is lost
            self._taken = clock.monotonic()
            self._seen = self._source.now()
            self._watch(self._seen)
        return self._seen

    def _is_newest(self, seen: Seen) -> bool:
        return decide(self._cluster.store, lambda view: self._source.is_newest(view, seen))

    def _watch(self, seen: Seen) -> None:
        wanted = self._source.watched(seen)
        for name in wanted.keys() - self._watches.keys():
            self._watches[name] = self._cluster.store.watch(wanted[name], self.wake)
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
        self._woken.set()
        self._told()

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()


class FollowingLogs:
    """Keeps the newest readings of all logs of a selection for one query. The successors of migrated topics are tailed, too."""

    def __init__(self, client: Client, selection: Selection) -> None:
        self._logs, self._selection = Logs(client, selection), selection
        self._successors: tuple[TopicName, ...] | None = None
        self._shared: Following[Reading] | None = None
        own = self._logs.own
        self._own: Following[tuple[Reading, ...]] | None = None if own is None else Following(own)

    def read(self) -> tuple[Reading, ...]:
        """Return a reading of each log with everything that was decided before this call. The cluster's log is read first
        (`metadata.client.logs` gives the reason). Raises TopicNotFound.
        """
        while True:
            shared = self._read_shared()
            own = () if self._own is None else self._own.read()
            if not self._migrated_further(own):
                return (*shared, *own)

    def _read_shared(self) -> tuple[Reading, ...]:
        if self._successors is None:
            self._successors = self._logs.successors()
        if self._shared is None and (log := self._logs.shared_log(self._successors)) is not None:
            self._shared = Following(log)
        return () if self._shared is None else (self._shared.read(),)

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
