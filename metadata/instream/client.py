"""One process's hands on the persistent topics of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metadata.cluster import Cluster
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.coordinator import InStreamCoordinator
from metadata.instream.topics import PersistentTopics


@dataclass
class InStream:
    """What `Client` has of topic://, of the older model: the parts that share one memory of its logs."""

    cluster: Cluster
    aftermath: Callable[[Callable[[], None]], None]
    topics: PersistentTopics = field(init=False)
    buffer: InStreamBuffer = field(init=False)
    coordinator: InStreamCoordinator = field(init=False)

    def __post_init__(self) -> None:
        self.topics = PersistentTopics(self.cluster)
        self.buffer = InStreamBuffer(self.cluster)
        self.coordinator = InStreamCoordinator(self.cluster, self.buffer, self.aftermath)
