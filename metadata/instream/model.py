"""The implementation of `metadata.read.marker_model`. Code for `topic://` uses the marker-based model through that interface."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from metadata.cluster.cluster import Cluster
from metadata.read.marker_model import MigratedSegment
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records.names import persistent_name
from metadata.records.records import SegmentInfo
from metadata.rules.migrated import shift
from metadata.store.contract import View
from metadata.topics.topic import Topic

if TYPE_CHECKING:
    from metadata.instream.buffer import InStreamBuffer
    from metadata.instream.sweeping import InStreamSweeper


@dataclass
class InStreamModel:
    """Implements `MarkerModel`. The other modules of this package are imported on first use, because reads of topics that were
    never persistent do not need them.
    """

    cluster: Cluster

    @cached_property
    def _buffer(self) -> InStreamBuffer:
        from metadata.instream.buffer import InStreamBuffer

        return InStreamBuffer(self.cluster)

    @property
    def _sweeper(self) -> InStreamSweeper:
        from metadata.instream.client import instream

        return instream(self.cluster).sweeper

    def segment(self, topic: Topic, info: SegmentInfo, name: str, sealed_at: int | None) -> MigratedSegment:
        """Return the segment of the successor `topic` that has the rows of the persistent topic. All of these rows are decided,
        because the SEAL counts only if no transaction is open in the topic. Only retention may remove some of them later.
        """
        from metadata.instream.legacy import LegacySegment

        migration = topic.layout.migration
        assert migration is not None
        return LegacySegment(
            name=name,
            topic=topic,
            info=info,
            sealed_at=sealed_at,
            buffer=self._buffer,
            reading=self._buffer.read(persistent_name(name)),
            seal=migration.seal,
            shift=shift(info.sealed_at_log or sealed_at or 0, migration.seal),
        )

    def timeouts(self) -> int:
        return self._sweeper.timeouts()

    def named_files(self, view: View) -> Iterator[str]:
        return self._sweeper.named_files(view)


def transaction_buffer(cluster: Cluster) -> TransactionBuffer:
    """Return a transaction buffer that also reads the segments of migrated topics."""
    return TransactionBuffer(cluster, InStreamModel(cluster))
