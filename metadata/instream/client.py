"""The per-process client of a cluster's persistent topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metadata.cluster.cluster import Cluster
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.coordinator import InStreamCoordinator
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.sealing import Sealing
from metadata.instream.sweeping import InStreamSweeper
from metadata.instream.topics import PersistentTopics
from metadata.write.background import inline

if TYPE_CHECKING:
    from metadata.instream.migrating import Migrator


@dataclass
class InStream:
    """The client of a cluster's persistent topics (`metadata.client.client.Client.instream`). Its parts share one cache of the
    logs.
    """

    cluster: Cluster
    buffer: InStreamBuffer
    coordinator: InStreamCoordinator
    sweeper: InStreamSweeper
    sealing: Sealing

    @property
    def topics(self) -> PersistentTopics:
        return self.coordinator.topics

    @property
    def migrator(self) -> Migrator:
        """The migrator of persistent topics to topic://."""
        return self.coordinator.redirect.migrator

    @property
    def acks(self) -> InStreamAcks:
        return self.coordinator.acks


def instream(cluster: Cluster, background: Callable[[Callable[[], None]], None] = inline) -> InStream:
    """Create the client. `background` receives the work that a commit does not wait for."""
    buffer = InStreamBuffer(cluster)
    coordinator = InStreamCoordinator(cluster, buffer, background)
    sweeper = InStreamSweeper(cluster, buffer, coordinator)
    return InStream(cluster, buffer, coordinator, sweeper, Sealing(cluster, buffer, coordinator.topics))
