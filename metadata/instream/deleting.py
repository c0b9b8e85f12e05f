"""Deleting a persistent topic: a seal ends its log, then its record becomes a tombstone. Its log goes on for ever under the name,
so the topic is never made again.
"""

from __future__ import annotations

from metadata.cluster import Cluster
from metadata.instream import paths
from metadata.instream.managed_log import ManagedLog
from metadata.instream.records import EntryKind, LogEntry
from metadata.instream.topics import PersistentTopics
from metadata.names import PersistentName
from metadata.store.contract import time_ms


def delete(cluster: Cluster, topics: PersistentTopics, name: PersistentName) -> None:
    """Everything that is appended after the seal is void; new reads and writes find no topic. Safe to do again after an error.

    Raises TopicNotFound.
    """
    topics.change(name, lambda layout: layout if layout.sealing else layout.model_copy(update={"sealing": True}))
    log = ManagedLog(cluster.store, paths.log(name), LogEntry)
    seal = LogEntry(kind=EntryKind.SEAL, id=cluster.unique(), publish_ms=time_ms(cluster.store), why="delete")
    log.append_again(seal)
    topics.change(name, lambda layout: layout.model_copy(update={"deleted": True}))
