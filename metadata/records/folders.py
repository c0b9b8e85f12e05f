"""The folder that holds the files of a segment or of a persistent topic."""

from __future__ import annotations

from ledgers.storage import segment_folder
from metadata.records.names import PersistentName, is_persistent, persistent_name, segment_name


def folder_of(segment: str) -> str:
    """Return the folder of a segment, relative to the ledger root. This folder never changes. `segment`: the full name of a segment
    or of a persistent topic. Raises OptionError.
    """
    if is_persistent(segment):
        return persistent_folder(persistent_name(segment))
    topic = segment_name(segment).topic
    return segment_folder(topic.tenant, topic.namespace, topic.name, segment.rpartition("/")[2])


def persistent_folder(name: PersistentName) -> str:
    """Return the folder of a persistent topic or of a transaction log. It ends in `persistent`, which is no segment's name."""
    return segment_folder(name.tenant, name.namespace, name.name, "persistent")
