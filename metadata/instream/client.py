"""One process's hands on the persistent topics of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from metadata.cluster import Cluster
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.coordinator import InStreamCoordinator
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.sealing import Sealing
from metadata.instream.sweeping import InStreamSweeper
from metadata.instream.topics import PersistentTopics


@dataclass
class InStream:
    """The parts that share one memory of its logs: `metadata.client.Client.instream`."""

    cluster: Cluster
    buffer: InStreamBuffer
    coordinator: InStreamCoordinator
    sweeper: InStreamSweeper
    sealing: Sealing

    @property
    def topics(self) -> PersistentTopics:
        return self.coordinator.topics

    @property
    def acks(self) -> InStreamAcks:
        return self.coordinator.acks


def instream(cluster: Cluster) -> InStream:
    buffer = InStreamBuffer(cluster)
    coordinator = InStreamCoordinator(cluster, buffer)
    sweeper = InStreamSweeper(cluster, buffer, coordinator)
    return InStream(cluster, buffer, coordinator, sweeper, Sealing(cluster, buffer, coordinator.topics))
