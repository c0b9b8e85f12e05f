"""Maintenance of files by policy. Topics are trimmed by their retention and compacted by the policy `compactFiles`. Sweepers do
both. Committers only trim, and only when they also sweep orphans (once a day by default).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgers.compaction import Policy
from metadata.client.client import Client
from metadata.common.failures import RACES, contained
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.maintenance.trimming import Trimmed, Trimmer, trim_all


@dataclass
class Upkeep:
    """The result of one pass over all topics. `failed`: the topics that failed, each with its error. The pass continues with the
    remaining topics.
    """

    trimmed: Trimmed = field(default_factory=Trimmed)
    compacted: Compacted = field(default_factory=Compacted)
    failed: dict[str, Exception] = field(default_factory=dict)


def upkeep(client: Client) -> Upkeep:
    """Trim every topic by its retention, and compact the topics with the policy `compactFiles`.

    Compaction joins small files if at least `compactFiles` of them follow each other. The new file has at least twice the rows of
    each file that it replaces. Compaction is off by default, because it reads and writes rows, and the replaced files take storage
    for the grace period.
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
