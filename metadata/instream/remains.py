"""What a persistent topic leaves behind once its rows are gone for good: records are bounded by what is there, not by history
(protocol.md section 8.14).

That is so once it was deleted and the grace period is over, and once the topic that it was migrated to has let go of it: retention
has taken all of it there, or that topic was deleted. No other persistent topic gets its name, so nothing of this can come back
under it. What stays is its record: a tombstone, or the word that its name stands for the topic that went on, with the SEAL.

Such a record says so (`bare`), and a sweep looks at some of them alone: its work does not grow with the names that ever died. It
must look at some: who slept since before the topic was sealed may still append to its log, and is told by the record that it did so
in vain; what it has appended counts for nobody, and leaves when its name's turn comes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from metadata.cluster.cluster import Cluster
from metadata.instream import paths, pending_ack
from metadata.instream.ack_records import SubscriptionRecord
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.topics import PersistentTopic, PersistentTopics
from metadata.instream.trimming import InStreamTrimmer
from metadata.records import paths as shared
from metadata.records.names import PersistentName, topic_name
from metadata.records.paths import Key
from metadata.records.persistent_records import PersistentLayout
from metadata.records.records import Layout
from metadata.rules import migrated
from metadata.store.contract import Delete, View, decide, in_groups, look, time_ms, written

LOOKED_AT = 8
"""Names of which nothing is left that one sweep looks at."""


@dataclass(frozen=True)
class Remains:
    """The remains of a cluster's persistent topics. Anyone may collect them, any number at once."""

    cluster: Cluster
    buffer: InStreamBuffer
    topics: PersistentTopics
    acks: InStreamAcks
    trimmer: InStreamTrimmer

    def due(self, topics: Sequence[PersistentTopic]) -> list[PersistentTopic]:
        """Those that a sweep has to look at: all but the bare ones, and of these some, in turn from anywhere: whoever sweeps once
        in a process of its own finds another place than the one before.
        """
        bare = [topic for topic in topics if topic.layout.bare]
        first = zlib.crc32(self.cluster.unique().encode()) % len(bare) if bare else 0
        return [topic for topic in topics if not topic.layout.bare] + [*bare[first:], *bare[:first]][:LOOKED_AT]

    def is_bare(self, topic: PersistentTopic) -> bool:
        """Whether nothing of it is there but its record and, if it was migrated, the SEAL."""
        layout, name = topic.layout, topic.name
        if layout.snapshot is not None or layout.leaving:
            return False
        after = 0 if layout.deleted else layout.trimmed_log + 1  # all below the SEAL is trimmed, once the new topic has let go

        def body(view: View) -> bool:
            entries = view.keys(paths.log(name).range(after + 1))
            return not (entries or view.keys(paths.subscriptions(str(name))) or view.keys(shared.schemas(str(name))))

        return decide(self.cluster.store, body)

    def _mark(self, name: PersistentName) -> None:
        """Say in the record whether it is bare."""
        topic = self.topics.seen(name)
        bare = self.is_bare(topic) or None
        if topic.layout.bare is not bare:
            self.topics.change(name, lambda layout: layout.model_copy(update={"bare": bare}), deleted=True)

    def collect(self, topic: PersistentTopic) -> bool:
        """Take away what may go of this topic; whether it is over, so that nothing else is to be done about it."""
        if topic.layout.deleted:
            over_ms = (topic.layout.deleted_ms or 0) + self.cluster.settings.grace_period_ms
            if over_ms < time_ms(self.cluster.store):
                self._forget(topic.name)
                self._mark(topic.name)
            return True
        if not self._let_go(topic):
            return False
        reading = self.buffer.read(topic.name)
        assert reading.sealed_at is not None
        self.trimmer.trim_to(reading, reading.sealed_at - 1)  # as retention does it: who planned a moment ago has the grace period
        layout = self.topics.get(topic.name).layout
        if layout.trimmed_log >= reading.sealed_at - 1 and not layout.leaving:
            self.topics.change(topic.name, _stripped)  # before the log loses what its snapshot may be of
            self._empty(topic.name, reading.sealed_at)
            self._forget(topic.name)
            self._mark(topic.name)
        return True

    def _let_go(self, topic: PersistentTopic) -> bool:
        to = topic.layout.migrated_to
        record = None if to is None else look(self.cluster.store, paths.topic(topic_name(to)))
        return migrated.let_go(topic.name, None if record is None else Layout.of(record))

    def _empty(self, name: PersistentName, seal: int) -> None:
        """What a zombie appended above the SEAL counts for nobody. After the grace period nobody looks for it either."""
        log = self.buffer.log(name)
        numbers = decide(self.cluster.store, partial(log.numbers, after=seal))
        found, _ = decide(self.cluster.store, lambda view: log.entries(view, numbers)) if numbers else ({}, [])
        before = time_ms(self.cluster.store) - self.cluster.settings.grace_period_ms
        old = [number for number, entry in found.items() if entry.publish_ms < before]
        log.delete(old)

    def _forget(self, name: PersistentName) -> None:
        """Its subscriptions with their logs, and its schemas: the logs first, since the record says where they are."""
        store = self.cluster.store
        for where, record in decide(store, lambda view: pending_ack.records(view, str(name))):
            found = SubscriptionRecord.of(record)
            self.acks.empty(where, range(found.cleared + 1, found.life + 1))
            written(store, Delete(record.key, expect=record))  # unless a compaction has written it just now: the next sweep looks
        schemas = decide(store, lambda view: view.keys(shared.schemas(str(name))))
        for some in in_groups([Key(path, path.split("/")[2]) for path in schemas]):
            store.write(*(Delete(key) for key in some))


def _stripped(layout: PersistentLayout) -> PersistentLayout:
    """The record names no file and no schema any more; the SEAL can be replayed without."""
    if layout.snapshot is None and layout.schema_id is None:
        return layout
    return layout.model_copy(update={"snapshot": None, "schema_id": None})
