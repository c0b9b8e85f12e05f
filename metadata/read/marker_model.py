"""What the rooms of `topic://` ask of the marker-based model, which serves `persistent://` topics.

A topic that was migrated has a segment whose rows lie in the log of the persistent topic that it was, and both kinds of topics
share one ledger root. `metadata.instream.model` implements this; the rooms of `topic://` do not import it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from metadata.read.segment_view import SegmentView
from metadata.records.records import SegmentInfo, Watermark
from metadata.store.contract import View
from metadata.topics.topic import Topic


class Taken(NamedTuple):
    """What a trim took away: rows, and bytes as they were written."""

    rows: int
    bytes: int


class MigratedSegment(SegmentView):
    """A segment that was a persistent topic: its rows lie in that topic's log, and retention takes them there."""

    @abstractmethod
    def trim(self, through: int) -> Taken | None:
        """Take what stands at or below the number `through` of the cluster's log, which splits no transaction, out of the topic's
        log. None: there was nothing to take, or somebody else took it.
        """

    @abstractmethod
    def mark(self) -> Watermark:
        """What the watermark record of another segment would say of this one, in numbers of its own log: all of it is decided."""

    @abstractmethod
    def guard(self) -> Watermark:
        """The same in numbers of the cluster's log: the guard of readers once the segment has left the layout."""


class MarkerModel(Protocol):
    """The marker-based model of one cluster."""

    def segment(self, topic: Topic, info: SegmentInfo, name: str, sealed_at: int | None) -> MigratedSegment:
        """The segment of a migrated topic that was a persistent one. Raises CorruptRecord, StorageError."""

    def timeouts(self) -> int:
        """End transactions of persistent topics that are past their deadline; how many."""

    def named_files(self, view: View) -> Iterator[str]:
        """The files that records of persistent topics name: the orphan sweep keeps them."""
