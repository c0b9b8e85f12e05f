"""Automatic splits and merges of segments by policy, for the leading sweeper (docs/scaling.md). The load of a segment is computed
from its registrations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ledgers import snapshots
from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, SegmentSealed
from metadata.common.failures import RACES, STORE, contained
from metadata.maintenance.leading import Leadership
from metadata.read.reading import LogSelection, Reading
from metadata.read.segment_view import SegmentView
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.rules import scaling
from metadata.rules.scaling import Measured, Rule
from metadata.topics.policies import holding
from metadata.topics.topics import Topic, Topics

log = logging.getLogger("txnsegment.autoscaling")

LOST = (*RACES, BadVersion, SegmentSealed)
"""Errors of a leader whose reading is outdated: the topic was deleted, its layout has another epoch, or the segment was split or
merged meanwhile.
"""


@dataclass
class Scaled:
    """The result of one pass. `failed`: the topics that could not be scaled, each with its error. The pass continues with the
    remaining topics.
    """

    splits: int = 0
    merges: int = 0
    failed: dict[str, Exception] = field(default_factory=dict)


@dataclass
class Autoscaler:
    """A process that may be the leading sweeper. `scale` does nothing unless this process leads. `scale` reads only the
    registrations of topics with a scaling policy.
    """

    cluster: Cluster
    buffer: TransactionBuffer
    leadership: Leadership = field(init=False)

    def __post_init__(self) -> None:
        self.leadership = Leadership(self.cluster)

    def scale(self) -> Scaled:
        """Scale all topics once, if this process leads. Raises StoreError if the store fails."""
        done = Scaled()
        if not self.leadership.leads():
            return done
        topics = Topics(self.cluster)
        for topic, policies in holding(self.cluster, topics.list()):
            rule = scaling.rule(policies)
            if rule is None:
                continue
            with contained("scale", str(topic.name), done.failed, passing=STORE, races=LOST):
                self._scale(topics, topic, rule, done)
        return done

    def _scale(self, topics: Topics, topic: Topic, rule: Rule, done: Scaled) -> None:
        reading = self.buffer.read(LogSelection((str(topic.name),)))
        now = reading.topics[0]
        since = reading.now_ms - rule.cool_down_ms
        young = {s.info.segment_id for s in reading.segments if s.info.created_at_ms > since}
        active = now.active()
        ids = {info.segment_id for info in active} - young
        measured = {s.info.segment_id: published(reading, s, since) for s in reading.segments if s.info.segment_id in ids}
        epoch = now.layout.epoch
        for change in scaling.changes(rule, active, measured, reading.now_ms):
            act: Callable[..., Topic] = topics.split if len(change.segments) == 1 else topics.merge
            # Each change names the epoch of the layout on which it was decided. A leader that slept, or has lost the leadership
            # unnoticed, may have an outdated layout, and its change is then refused.
            epoch = act(now.name, *change.segments, epoch=epoch).layout.epoch
            log.info("%s topic=%s segments=%s epoch=%s: %s", act.__name__, now.name, change.segments, epoch, change.why)
            if len(change.segments) == 1:
                done.splits += 1
            else:
                done.merges += 1


def published(reading: Reading, segment: SegmentView, since_ms: int) -> Measured:
    """Return the rows and bytes of a segment's visible registrations that were published after `since_ms`. The snapshot's files are
    in ascending order. The first files, which have no such registration, are skipped.
    """
    rows = size = 0
    if segment.head is not None and segment.head.publish_max > since_ms:
        before = max((file.last for file in segment.head.files if file.publish_max <= since_ms), default=0)
        for found in snapshots.read_ledgers(reading.cluster.storage, segment.head, before, segment.head.last_ledger):
            if found.publish_ms > since_ms:
                rows, size = rows + found.rows, size + found.bytes
    for _, registration in segment.live:
        if registration.publish_ms > since_ms:
            write = registration.segments[segment.name]
            rows, size = rows + write.rows, size + write.bytes
    return Measured(rows, size)
