"""The interface of the marker-based model (`persistent://` topics) for the packages of `topic://`.

The packages of `topic://` need the interface for two reasons. A successor has a segment whose rows are in the log of the migrated
persistent topic. Topics of both models share one ledger root, so the orphan sweep must keep the files of both.
`metadata.instream.model` implements the interface. The packages of `topic://` do not import that module.
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
    """What a trim removed. `rows`: how many rows. `bytes`: the size of these rows as written."""

    rows: int
    bytes: int


class MigratedSegment(SegmentView):
    """A segment that was a persistent topic. Its rows are in that topic's log, and retention trims that log."""

    @abstractmethod
    def trim(self, through: int) -> Taken | None:
        """Trim the log of the persistent topic up to the number `through` of the cluster's log. `through` must not lie inside a
        transaction. Return None if there was nothing to trim, or if another process did the trim.
        """

    @abstractmethod
    def mark(self) -> Watermark:
        """Return a watermark that covers the whole segment: all of its rows are decided. No record contains this watermark; the
        method computes it. Its `trimmed_to` is a position in the persistent topic's own log.
        """

    @abstractmethod
    def guard(self) -> Watermark:
        """Return the same watermark as `mark`, but with `trimmed_to` as a position in the cluster's log. When the segment leaves
        the layout, the layout keeps this `trimmed_to`, so that readers notice that rows were trimmed.
        """


class MarkerModel(Protocol):
    """The marker-based model of one cluster."""

    def segment(self, topic: Topic, info: SegmentInfo, name: str, sealed_at: int | None) -> MigratedSegment:
        """Return the segment of `topic` that was a persistent topic. `topic`: the successor. `name`: the full name of the
        persistent topic. Raises CorruptRecord, StorageError.
        """

    def timeouts(self) -> int:
        """Abort the transactions of persistent topics that are past their deadline. Return how many were found."""

    def named_files(self, view: View) -> Iterator[str]:
        """Yield the files that records of persistent topics name. The orphan sweep keeps them."""
