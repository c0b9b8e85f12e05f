"""How a stream follows its topics: readings kept while nothing wakes it, so that an idle query costs the store next to nothing.

Spark asks for the latest offset every ten milliseconds. A reading without anything undecided stays the newest until the log has
another record, so it is enough to list the log (a layout changes only after its seal is in the log, and a new topic, schema or
segment has no row before a registration that came after it); what was committed before Spark asked is always in the answer, which
`processAllAvailable` rests on. A commit wakes us by its events, and after `MOST_SECONDS` a reading is taken again in any case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from metadata.client.client import Client
from metadata.read.reading import Reading, Selection
from metadata.records import paths
from metadata.store.contract import Watch, decide

MOST_SECONDS = 0.1


class Following:
    """The newest reading of a selection, for one query. `told` hears of each wake-up, from any thread."""

    def __init__(self, client: Client, selection: Selection, told: Callable[[], None] = lambda: None) -> None:
        self._client, self._selection, self._told = client, selection, told
        self._woken = threading.Event()
        self._watches: dict[str, Watch] = {}
        self._reading: Reading | None = None
        self._taken = 0.0

    def read(self) -> Reading:
        """A reading with all that was decided before this call. Raises what `TransactionBuffer.read` does."""
        clock = self._client.cluster.clock
        old = self._woken.is_set() or clock.monotonic() - self._taken >= MOST_SECONDS
        if self._reading is None or old or not self._is_newest(self._reading):
            self._woken.clear()  # before reading: a wake-up in between is not lost
            self._taken = clock.monotonic()
            self._reading = self._client.buffer.read(self._selection)
            self._watch(self._reading)
        return self._reading

    def _is_newest(self, reading: Reading) -> bool:
        """Whether nothing was registered since, and nothing that could have been decided since was open."""
        if reading.undecided:
            return False
        numbers = decide(self._client.cluster.store, lambda view: view.keys(paths.LOG.range()))
        return reading.end_of_log == (paths.sequence_number(numbers[-1]) if numbers else 0)

    def _watch(self, reading: Reading) -> None:
        """Be woken by registrations, and by the events of this read's segments, which follow a decision. A sealed segment in which
        nothing is open has none to come.
        """
        store = self._client.cluster.store
        deciding = [s.name for s in reading.segments if s.sealed_at is None or reading.undecided]
        wanted = {paths.LOG.path: paths.LOG} | {name: paths.segment_events(name) for name in deciding}
        for name in wanted.keys() - self._watches.keys():
            self._watches[name] = store.watch(wanted[name], self.wake)
            self.wake()  # what came between the reading and its first watch has woken nobody
        for name in self._watches.keys() - wanted.keys():
            self._watches.pop(name).close()

    def wait(self, seconds: float) -> bool:
        """Until something wakes us, at most so long: wake-ups may be lost. Whether it did."""
        return self._woken.wait(seconds)

    def wake(self) -> None:
        """Something may have changed: the next reading is taken anew."""
        self._woken.set()
        self._told()

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
