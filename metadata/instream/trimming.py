"""Trimming of persistent topics by retention. A trim writes into the topic's record up to which number entries are trimmed. After
the grace period a sweep deletes these entries from the log.

If a topic has transactions, entries above its newest snapshot are not trimmed, because readers replay them. Rows that a
subscription still needs are not trimmed unless the policy says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from metadata.cluster.clock_looks import seen_for
from metadata.cluster.cluster import Cluster
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.reading import TopicReading
from metadata.instream.topics import PersistentTopic, PersistentTopics, every
from metadata.records import paths
from metadata.records.names import PersistentName
from metadata.records.persistent_records import PersistentLayout, Trimmed
from metadata.records.records import Policies, Position
from metadata.rules import acks, elapsed, retention
from metadata.rules.retention import Kept
from metadata.store.contract import decide, look, time_ms

log = logging.getLogger("txnsegment.instream")


class TrimmedTo(NamedTuple):
    """The result of a trim. `to`: the number up to which entries are trimmed now. `rows`, `bytes`: how many rows this trim removed,
    and their bytes as written.
    """

    to: int
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class InStreamTrimmer:
    """Trims a cluster's persistent topics. Any number of processes may trim at once."""

    cluster: Cluster
    buffer: InStreamBuffer
    topics: PersistentTopics
    acks: InStreamAcks

    def trim(self, name: PersistentName) -> TrimmedTo:
        """Trim a topic by its policies, or by the policies of its namespace. Raises TopicNotFound."""
        reading = self.buffer.read(name)
        if reading.topic.layout.sealing and reading.topic.layout.migrated_to is not None:
            return TrimmedTo(reading.trimmed_to)  # the rows belong to the successor topic, so its retention and its cursors apply
        policies = self._policies(reading.topic)
        if policies.retention_ms is None and policies.retention_bytes is None:
            return TrimmedTo(reading.trimmed_to)
        total = sum(weight.bytes for weight in reading.weights())
        kept = (Kept(found.id, found.publish_ms, found.bytes) for found in reading.ledgers())
        now_ms, keep_ms = reading.now_ms, policies.retention_ms
        if keep_ms is not None:
            now_ms = elapsed.now_for(seen_for(self.cluster.store, self.cluster.clock, keep_ms), keep_ms)
        through = retention.trim_to(kept, policies, total_bytes=total, now_ms=now_ms)
        to = through if policies.despite_subscriptions else self._needed(reading, through)
        return trim_log(self.buffer, self.topics, reading, to)

    def trim_to(self, reading: TopicReading, to: int) -> int:
        """Trim a topic up to the number `to` (see `trim_log`). Return the number up to which entries are trimmed now."""
        return trim_log(self.buffer, self.topics, reading, to).to

    def _policies(self, topic: PersistentTopic) -> Policies:
        record = look(self.cluster.store, paths.namespace(topic.name.tenant, topic.name.namespace))
        return retention.effective(topic.layout.policies, None if record is None else Policies.of(record))

    def _needed(self, reading: TopicReading, through: int) -> int:
        """Return the id of the last ledger, at most `through`, before the first ledger that a subscription still needs (0: none).
        Rows with a pending ack count as needed.
        """
        cursors = self.acks.read((reading.name, subscription) for subscription in self.acks.list(reading.name))
        first = min((acks.first_unacknowledged_row(cursor) for cursor in cursors.values()), default=None)
        done = 0
        for found in reading.ledgers(0, through):
            if not retention.is_done(found.id, found.last_entry, first):
                break
            done = found.id
        return done

    def leave(self, name: PersistentName) -> int:
        """Delete the topic's log entries that were trimmed longer ago than the grace period. If the topic itself was deleted longer
        ago than that, delete all of its log entries. Return how many were deleted.
        """
        record = look(self.cluster.store, paths.topic(name))
        if record is None:
            return 0
        layout, now_ms = PersistentLayout.of(record), time_ms(self.cluster.store)
        grace_ms, entries = self.cluster.settings.grace_period_ms, self.buffer.log(name)
        over = [one for one in layout.leaving if one.at_ms + grace_ms < now_ms]
        to = max((one.to for one in over), default=0)
        numbers = decide(self.cluster.store, partial(entries.numbers, after=0))
        everything = bool(layout.deleted) and (layout.deleted_ms or 0) + grace_ms < now_ms
        going = [n for n in numbers if n <= to or everything]
        entries.delete(going)
        if everything and layout.snapshot is not None:  # the tombstone names no file any more
            self.topics.change(name, lambda now: now.model_copy(update={"snapshot": None, "leaving": ()}), deleted=True)
        elif over:  # last, because after a failed delete the next sweep must still find the entries in `leaving`
            self.topics.change(
                name,
                lambda now: now.model_copy(update={"leaving": tuple(one for one in now.leaving if one.to > to)}),
                deleted=True,
            )
        return len(going)

    def every(self) -> list[PersistentTopic]:
        """Return all persistent topics, deleted ones included."""
        return decide(self.cluster.store, every)


def trim_log(buffer: InStreamBuffer, topics: PersistentTopics, reading: TopicReading, to: int) -> TrimmedTo:
    """Trim the log up to the number `to`, as far as everything is decided. If the topic has transactions, a snapshot must cover
    what is trimmed; one is taken if necessary, and without it nothing is trimmed. The SEAL stays, because a topic without it would
    accept writes again.
    """
    to = min(to, reading.cut)
    if reading.sealed_at is not None:
        to = min(to, reading.sealed_at - 1)
    if to <= reading.trimmed_to:
        return TrimmedTo(reading.trimmed_to)
    latest = max((ms for _, ms in reading.published(0, to)), default=0)
    gone = Trimmed(to=to, at_ms=reading.now_ms)
    last, going = _of(reading, reading.trimmed_to, to)
    ours = TrimmedTo(0)

    def trimmed(layout: PersistentLayout) -> PersistentLayout:
        nonlocal ours
        if layout.trimmed_log >= to or not _replayable(layout, to):
            # If the reply to an earlier CAS of this trim was lost, the record may already have the trim.
            ours = ours if gone in layout.leaving else TrimmedTo(0)
            return layout
        # the count leaves out entries that other processes have trimmed since the reading
        ours = going if layout.trimmed_log <= reading.trimmed_to else _of(reading, layout.trimmed_log, to)[1]
        update = {
            "trimmed_log": to,
            "trimmed_to": layout.trimmed_to if last is None else last,
            "trimmed_ms": max(latest, layout.trimmed_ms or 0),
            "leaving": (*layout.leaving, gone),
        }
        return layout.model_copy(update=update)

    if not _replayable(reading.topic.layout, to):
        buffer.snapshot(reading.topic.name)
    after = topics.change(reading.topic.name, trimmed).layout.trimmed_log
    if after >= to:
        log.info("trimmed %s up to %s", reading.topic.name, after)
    return ours._replace(to=after)


def _of(reading: TopicReading, after: int, to: int) -> tuple[Position | None, TrimmedTo]:
    """Return the position of the last visible entry with after < number <= to. Return also how many visible rows these entries
    have, and their bytes.
    """
    last, rows, size = None, 0, 0
    for found in reading.ledgers(after, to):
        last, rows, size = Position(ledger_id=found.id, entry_id=found.last_entry), rows + found.rows, size + found.bytes
    return last, TrimmedTo(to, rows, size)


def _replayable(layout: PersistentLayout, to: int) -> bool:
    """Return whether readers can replay the entries above `to` without those up to `to`."""
    return layout.contains_txn is False or (layout.snapshot is not None and layout.snapshot.at >= to)
