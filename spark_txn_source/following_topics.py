"""How a stream follows its persistent topics: as `following`, but each has a log of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from metadata.client.client import Client
from metadata.instream import paths
from metadata.records.names import PersistentName
from metadata.store.contract import View, Watch, decide
from spark_txn_source import persistent
from spark_txn_source.following import MOST_SECONDS
from spark_txn_source.selection import Pattern, Selection

if TYPE_CHECKING:
    from metadata.instream.reading import TopicReading


class FollowingTopics:
    """The newest readings of a selection's persistent topics, for one query."""

    def __init__(self, client: Client, selection: Selection) -> None:
        self._client, self._selection = client, selection
        self._woken = threading.Event()
        self._watches: dict[str, Watch] = {}
        self._readings: tuple[TopicReading, ...] | None = None
        self._met: set[PersistentName] = set()
        self._taken = 0.0

    def read(self) -> tuple[TopicReading, ...]:
        """A reading of each topic with all that was decided before this call. Raises TopicNotFound."""
        if not isinstance(self._selection, Pattern) and not self._selection.persistent:
            return ()
        clock = self._client.cluster.clock
        old = self._woken.is_set() or clock.monotonic() - self._taken >= MOST_SECONDS
        if self._readings is None or old or not decide(self._client.cluster.store, self._are_newest):
            self._woken.clear()  # before reading: a wake-up in between is not lost
            self._taken = clock.monotonic()
            self._readings = persistent.read(self._client, self._selection)
            self._watch(self._readings)
        return self._readings

    def _are_newest(self, view: View) -> bool:
        """Whether nothing was appended since (a marker would be, too), and no topic of a pattern was made.

        A sealed topic's log has had its last word: what becomes of the topic then, its record says alone.
        """
        readings = self._readings or ()
        sealed = [reading.topic for reading in readings if reading.sealed_at is not None]
        ended = [topic for topic in sealed if topic.layout.migrated_to is None]
        if ended and view.get_many([topic.record.key for topic in ended]) != [topic.record for topic in ended]:
            return False
        live = [reading for reading in readings if reading.sealed_at is None]
        if any(view.keys(paths.log(reading.topic.name).range(reading.end + 1)) for reading in live):
            return False
        if not isinstance(self._selection, Pattern):
            return True
        there = {name for name in map(paths.topic_of, view.keys(paths.TOPICS)) if self._selection.matches(name)}
        new = there - self._met
        self._met |= new  # it is read right after this, if there is anything to read of it
        return not new

    def _watch(self, readings: tuple[TopicReading, ...]) -> None:
        """Be woken by appends: data, and the markers that decide about it."""
        wanted = {reading.name: paths.log(reading.topic.name) for reading in readings}
        for name in wanted.keys() - self._watches.keys():
            self._watches[name] = self._client.cluster.store.watch(wanted[name], self._woken.set)
            self._woken.set()  # what came between the reading and its first watch has woken nobody
        for name in self._watches.keys() - wanted.keys():
            self._watches.pop(name).close()

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
