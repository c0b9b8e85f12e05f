"""Deletion of the remaining records of a persistent topic whose rows are gone for good (protocol.md section 8.14). Of such a topic
only one record stays, or two after a migration. So the store does not fill with the records of former topics.

There are two cases: a deleted topic after the grace period, and a migrated topic whose rows are gone from its successor. In the
second case, either the retention of the successor has trimmed all of these rows, or the successor was deleted. No other persistent
topic gets the name, so no record can be needed again. The topic's own record stays. For a deleted topic this record is the
tombstone. For a migrated topic it names the successor, and the SEAL stays, too.

A topic with no other records is marked `bare`. A sweep checks only a few bare topics, so its work does not grow with the number of
former names. The check is needed because a process that was suspended before the SEAL was appended may still append to the log.
Such entries count for no reader. The process then learns from the topic's record that the topic is sealed, and a later check
deletes the entries.
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
"""How many bare topics one sweep checks at most."""


@dataclass(frozen=True)
class Remains:
    """Deletes the remaining records of a cluster's persistent topics. Any number of processes may delete them at the same time."""

    cluster: Cluster
    buffer: InStreamBuffer
    topics: PersistentTopics
    acks: InStreamAcks
    trimmer: InStreamTrimmer

    def due(self, topics: Sequence[PersistentTopic]) -> list[PersistentTopic]:
        """Return the topics that a sweep must check: all topics that are not marked `bare`, and up to `LOOKED_AT` topics that are.
        The bare topics are taken in order from a random one, because no sweep knows where the previous sweep stopped. So each bare
        topic is checked now and then.
        """
        bare = [topic for topic in topics if topic.layout.bare]
        first = zlib.crc32(self.cluster.unique().encode()) % len(bare) if bare else 0
        return [topic for topic in topics if not topic.layout.bare] + [*bare[first:], *bare[:first]][:LOOKED_AT]

    def is_bare(self, topic: PersistentTopic) -> bool:
        """Return whether the topic has no record except its own and, after a migration, the SEAL."""
        layout, name = topic.layout, topic.name
        if layout.snapshot is not None or layout.leaving:
            return False
        after = 0 if layout.deleted else layout.trimmed_log + 1  # a migrated topic keeps the SEAL, just above its trimmed entries

        def body(view: View) -> bool:
            entries = view.keys(paths.log(name).range(after + 1))
            return not (entries or view.keys(paths.subscriptions(str(name))) or view.keys(shared.schemas(str(name))))

        return decide(self.cluster.store, body)

    def _mark(self, name: PersistentName) -> None:
        """Store in the topic's record whether the topic is bare (`is_bare`)."""
        topic = self.topics.seen(name)
        bare = self.is_bare(topic) or None
        if topic.layout.bare is not bare:
            self.topics.change(name, lambda layout: layout.model_copy(update={"bare": bare}), deleted=True)

    def collect(self, topic: PersistentTopic) -> bool:
        """Delete the records of the topic that are no longer needed, if its rows are gone for good. Return True if the topic was
        deleted or its successor has let it go, because the sweep then has no other work on the topic.
        """
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
        # The entries stay in the log for the grace period, as after a trim by retention.
        self.trimmer.trim_to(reading, reading.sealed_at - 1)
        layout = self.topics.get(topic.name).layout
        if layout.trimmed_log >= reading.sealed_at - 1 and not layout.leaving:
            # the snapshot is removed first, because a snapshot beyond the end of the log is an error
            self.topics.change(topic.name, _stripped)
            self._empty(topic.name, reading.sealed_at)
            self._forget(topic.name)
            self._mark(topic.name)
        return True

    def _let_go(self, topic: PersistentTopic) -> bool:
        to = topic.layout.migrated_to
        record = None if to is None else look(self.cluster.store, paths.topic(topic_name(to)))
        return migrated.let_go(topic.name, None if record is None else Layout.of(record))

    def _empty(self, name: PersistentName, seal: int) -> None:
        """Delete the entries above the SEAL that are older than the grace period. They were appended by processes that had not seen
        the SEAL, and count for no reader.
        """
        log = self.buffer.log(name)
        numbers = decide(self.cluster.store, partial(log.numbers, after=seal))
        found, _ = decide(self.cluster.store, lambda view: log.entries(view, numbers)) if numbers else ({}, [])
        before = time_ms(self.cluster.store) - self.cluster.settings.grace_period_ms
        old = [number for number, entry in found.items() if entry.publish_ms < before]
        log.delete(old)

    def _forget(self, name: PersistentName) -> None:
        """Delete the topic's subscriptions with their logs, and its schemas. The entries of a log are deleted before the record of
        its subscription, which gives the number of its lives.
        """
        store = self.cluster.store
        for where, record in decide(store, lambda view: pending_ack.records(view, str(name))):
            found = SubscriptionRecord.of(record)
            self.acks.empty(where, range(found.cleared + 1, found.life + 1))
            # if a compaction has just written the record, this delete fails, and the next sweep deletes the record
            written(store, Delete(record.key, expect=record))
        schemas = decide(store, lambda view: view.keys(shared.schemas(str(name))))
        for some in in_groups([Key(path, path.split("/")[2]) for path in schemas]):
            store.write(*(Delete(key) for key in some))


def _stripped(layout: PersistentLayout) -> PersistentLayout:
    """Return the topic's record without its snapshot and schema. The SEAL can be replayed without them."""
    if layout.snapshot is None and layout.schema_id is None:
        return layout
    return layout.model_copy(update={"snapshot": None, "schema_id": None})
