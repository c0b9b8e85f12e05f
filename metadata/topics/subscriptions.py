"""Subscriptions of topics: create, list, seek, delete. A subscription is one cursor for each segment (protocol.md sections 4 and
7).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, SubscriptionExists, UnknownOutcome
from metadata.cursors.cursors import Where, not_found
from metadata.cursors.pending_ack import PendingAcks
from metadata.records import paths
from metadata.records.names import TopicName, is_persistent, persistent_name, segment_name, topic_name
from metadata.records.persistent_records import PersistentLayout
from metadata.records.records import Cursor, Watermark
from metadata.records.row_ranges import Rows, through_ledger
from metadata.records.subscription_names import checked as checked
from metadata.rules import acks
from metadata.rules.migrated import to_cluster, to_own
from metadata.store.contract import ABSENT, Put, Record, View, decide, in_groups, time_ms, until
from metadata.topics.topic import legacy_shift as legacy_shift
from metadata.topics.topics import Topic, Topics, of_record
from metadata.topics.topics import not_found as no_topic


class Subscriptions:
    """The subscriptions of a cluster."""

    def __init__(self, cluster: Cluster, pending: PendingAcks) -> None:
        self._cluster, self._pending = cluster, pending
        self._topics = Topics(cluster)

    def create(self, topic: TopicName, name: str, *, at: int) -> None:
        """Create a subscription. Rows at or below the number `at` count as acknowledged. 0 stands for the highest number that
        retention has trimmed in any segment of the topic. If a crash interrupted an earlier creation, this call completes it.
        Raises TopicNotFound, SubscriptionExists.
        """
        started = False

        def step() -> bool | None:
            nonlocal started
            # The children of an unfinished split or merge are not in the layout yet. They may have tombstones of this subscription.
            # Finishing the seals adds the children to the layout, so that the writes below replace the tombstones.
            self._topics.finish_seals()
            records = self._cursors(topic, name)
            missing = [(w, r) for w, r in records.items() if not _live(r)]
            if not missing:
                if started:
                    return True
                raise SubscriptionExists(
                    f"The topic {topic} has a subscription {name!r}.", advice="Use it at its position, or seek it."
                )
            started = True
            done = self._behind(topic, [w for w, _ in missing], at)
            cursors = [(w, acks.with_done(Cursor(), done[w]).to_bytes(), ABSENT if r is None else r) for w, r in missing]
            self._write([Put(paths.cursor(*w), cursor, expect=expect) for w, cursor, expect in cursors])
            return None  # read again: a concurrent split or merge may have missed these cursors

        until(step)

    def delete(self, topic: TopicName, name: str) -> None:
        """Delete a subscription. The records of its cursors stay as tombstones until the grace period is over. So the versions of
        these records do not restart while a process may still expect an old version. Raises TopicNotFound, SubscriptionNotFound.
        """
        started = False

        def step() -> bool | None:
            nonlocal started
            there = {w: r for w, r in self._everywhere(topic, name).items() if _live(r)}
            if not there:
                if started:
                    return True
                raise not_found(topic, name)
            started = True
            gone = Cursor(deleted_ms=time_ms(self._cluster.store)).to_bytes()
            self._write([Put(paths.cursor(*w), gone, expect=r) for w, r in there.items()])
            return None

        until(step)

    def seek(self, topic: TopicName, name: str, *, to: int) -> None:
        """Move a subscription. After the call exactly the rows at or below the number `to` count as acknowledged. 0 has the same
        meaning as in `create`. Pending acks of OPEN transactions stay. Raises TopicNotFound, SubscriptionNotFound.
        """
        self._pending.seek(self._behind(topic, self.where(self._topics.get(topic), name), to))

    def cursors(self, topic: Topic, name: str) -> dict[str, Cursor]:
        """Return the cursor of each segment of the topic. Raises SubscriptionNotFound."""
        return {segment: cursor for (segment, _), cursor in self._pending.read(self.where(topic, name)).items()}

    def list(self, topic: TopicName | None = None) -> list[tuple[TopicName, str]]:
        """Return (topic, subscription) pairs of one topic (None: of all topics), sorted by name."""

        def body(view: View) -> list[tuple[TopicName, str]]:
            named = [paths.cursor_of(path) for path in view.keys(paths.CURSORS)]
            owners = self._owners(view, {s for s, _ in named})
            wanted = [w for w in named if w[0] in owners and topic in (None, owners[w[0]])]
            records = view.get_many([paths.cursor(*w) for w in wanted]) if wanted else []
            found = [w for w, r in zip(wanted, records, strict=True) if _live(r)]
            names = sorted({owners[s] for s, _ in found})
            shown = view.get_many([paths.topic(t) for t in names]) if names else []
            topics = [of_record(t, r) for t, r in zip(names, shown, strict=True)]
            # Cursors that a deleted topic of the same name has left are not returned.
            segments = {s for t in topics if t is not None for s in t.segments()}
            return sorted({(owners[s], name) for s, name in found if s in segments})

        return decide(self._cluster.store, body)

    @staticmethod
    def _owners(view: View, segments: Iterable[str]) -> dict[str, TopicName]:
        """Return the topic of each segment. The topic of a migrated persistent topic is its successor."""
        found = {s: segment_name(s).topic for s in segments if not is_persistent(s)}
        older = sorted(s for s in segments if is_persistent(s))
        records = view.get_many([paths.topic(persistent_name(s)) for s in older]) if older else []
        for name, record in zip(older, records, strict=True):
            to = None if record is None else PersistentLayout.of(record).migrated_to
            if to is not None:
                found[name] = topic_name(to)
        return found

    def _behind(self, topic: TopicName, where: Sequence[Where], number: int) -> dict[Where, Rows]:
        """Return, for each cursor, the rows that count as acknowledged if the subscription is at `number`: the rows at or below
        `number`. 0 stands for the highest number that retention has trimmed in any segment of the topic. Retention has removed no
        row above that number, so the subscription sees only whole transactions.
        """
        now = self._topics.get(topic)
        shifts = {s: legacy_shift(now, s) for s in now.segments() if is_persistent(s)}
        if number:
            return {w: through_ledger(to_own(number, shifts.get(w[0], 0))) for w in where}
        segments = sorted({*now.segments(), *(s for s, _ in where)})
        keys = [paths.topic(persistent_name(s)) if is_persistent(s) else paths.watermark(s) for s in segments]
        records = decide(self._cluster.store, lambda view: view.get_many(keys))
        own = {s: _trimmed(s, record) for s, record in zip(segments, records, strict=True)}
        highest = max(to_cluster(n, shifts.get(s, 0)) for s, n in own.items())
        if now.layout.trimmed_to is not None:
            highest = max(highest, now.layout.trimmed_to.ledger_id)
        return {w: through_ledger(max(own[w[0]], to_own(highest, shifts.get(w[0], 0)))) for w in where}

    @staticmethod
    def where(topic: Topic, name: str) -> Sequence[Where]:
        return [(segment, name) for segment in topic.segments()]

    def _cursors(self, topic: TopicName, name: str) -> dict[Where, Record | None]:
        """Return the cursor record of the subscription for each segment of the layout; None for a segment without a record."""

        def body(view: View) -> dict[Where, Record | None]:
            now = of_record(topic, view.get(paths.topic(topic)))
            if now is None:
                raise no_topic(topic)
            where = self.where(now, name)
            return dict(zip(where, view.get_many([paths.cursor(*w) for w in where]), strict=True))

        return decide(self._cluster.store, body)

    def _everywhere(self, topic: TopicName, name: str) -> dict[Where, Record]:
        """Return all cursor records of the subscription, tombstones included. The result also has the cursors of child segments
        that are not in the layout yet.
        """

        def body(view: View) -> dict[Where, Record]:
            now = of_record(topic, view.get(paths.topic(topic)))
            if now is None:
                raise no_topic(topic)
            legacy = {s for s in now.segments() if is_persistent(s)}
            named = [paths.cursor_of(path) for path in view.keys(paths.CURSORS)]
            mine = [w for w in named if w[0] in legacy or (not is_persistent(w[0]) and segment_name(w[0]).topic == topic)]
            where = [w for w in mine if w[1] == name]
            records = view.get_many([paths.cursor(*w) for w in where]) if where else []
            return {w: r for w, r in zip(where, records, strict=True) if r is not None}

        return decide(self._cluster.store, body)

    def _write(self, puts: Sequence[Put]) -> None:
        """Do the writes in groups. A lost race or a lost reply raises no error, because the caller then reads again and writes what
        is still missing.
        """
        for some in in_groups(puts):
            try:
                self._cluster.store.write(*some)
            except (BadVersion, UnknownOutcome):
                continue


def _trimmed(segment: str, record: Record | None) -> int:
    """Return the id of the last ledger that retention has trimmed in a segment (0: none). `record`: the segment's watermark, or the
    record of the persistent topic.
    """
    if record is None:
        return 0
    if is_persistent(segment):
        return PersistentLayout.of(record).trimmed_log
    last = Watermark.of(record).trimmed_to
    return 0 if last is None else last.ledger_id


def _live(record: Record | None) -> bool:
    return record is not None and Cursor.of(record).deleted_ms is None
