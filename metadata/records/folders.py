"""Where the files of what a part is written for lie: of a segment, or of a persistent topic, which stands for one."""

from __future__ import annotations

from ledgers.storage import segment_folder
from metadata.records.names import PersistentName, is_persistent, persistent_name, segment_name


def folder_of(segment: str) -> str:
    """Relative to the ledger root, the same for ever. `segment`: of a segment, or of a persistent topic. Raises OptionError."""
    if is_persistent(segment):
        return persistent_folder(persistent_name(segment))
    topic = segment_name(segment).topic
    return segment_folder(topic.tenant, topic.namespace, topic.name, segment.rpartition("/")[2])


def persistent_folder(name: PersistentName) -> str:
    """The same of a persistent topic, a transaction log among them. No segment is named so."""
    return segment_folder(name.tenant, name.namespace, name.name, "persistent")
