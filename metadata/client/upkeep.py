"""Upkeep by policy: trims topics, and compacts those whose policy says so. For sweepers; committers only trim, once a day."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgers.compaction import Policy
from metadata.client.client import Client
from metadata.common.failures import RACES, contained
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.maintenance.trimming import Trimmed, Trimmer, trim_all


@dataclass
class Upkeep:
    """What one upkeep did. `failed`: topics that could not be looked after, with the reason; the others were."""

    trimmed: Trimmed = field(default_factory=Trimmed)
    compacted: Compacted = field(default_factory=Compacted)
    failed: dict[str, Exception] = field(default_factory=dict)


def upkeep(client: Client) -> Upkeep:
    """Trim every topic by its retention, and compact those with `compactFiles`: a run of at least so many small files, and no file
    into one with less than twice its rows. Off by default: compaction reads and writes rows, and doubles what it rewrites in
    storage for the grace period, which nobody should meet unasked.
    """
    done = Upkeep()
    done.failed |= trim_all(client.cluster, client.buffer, done.trimmed)
    trimmer, compactor = Trimmer(client.cluster, client.buffer), Compactor(client.cluster)
    for topic in client.topics.list():
        with contained("compact", str(topic.name), done.failed, races=RACES):
            files = trimmer.policies(topic.name, topic.layout).compact_files
            for segment in topic.segments() if files is not None else ():
                compactor.compact(segment, Policy(min_files=files or 2, grows=True), done.compacted)
    return done
