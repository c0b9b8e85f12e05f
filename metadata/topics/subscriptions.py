"""Subscriptions of topics: made, listed, moved, deleted. Each is a cursor per segment (protocol.md sections 4 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, OptionError, SubscriptionExists, UnknownOutcome
from metadata.cursors.cursors import Where, not_found
from metadata.cursors.pending_ack import PendingAcks
from metadata.records import paths
from metadata.records.names import TopicName, is_persistent, persistent_name, segment_name, topic_name
from metadata.records.persistent_records import PersistentLayout
from metadata.records.records import Cursor, Watermark
from metadata.records.row_ranges import NONE, Rows, before, end_of
from metadata.rules import acks
from metadata.rules.migrated import shift, to_cluster, to_own
from metadata.store.contract import ABSENT, Put, Record, View, decide, in_groups, time_ms, until
from metadata.topics.topics import Topic, Topics, of_record
from metadata.topics.topics import not_found as no_topic

MAX_NAME = 256


def checked(name: str) -> str:
    """A subscription's name. Raises OptionError."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise OptionError(f"subscription={name!r:.200} must be 1 to {MAX_NAME} printable characters.", advice="Give a short name.")
    return name.strip()


def legacy_shift(topic: Topic, segment: str) -> int:
    """What is added to the ledger ids of a persistent topic that became this one's segment, for their place in the log."""
    info = next(info for info in topic.layout.kept() if info.legacy_topic_name == segment)
    assert topic.layout.migration is not None
    assert info.sealed_at_log is not None
    return shift(info.sealed_at_log, topic.layout.migration.seal)


def behind(number: int) -> Rows:
    """All rows at or below a number of the log."""
    return before(end_of(number)) if number else NONE


class Subscriptions:
    """The subscriptions of a cluster."""

    def __init__(self, cluster: Cluster, pending: PendingAcks) -> None:
        self._cluster, self._pending = cluster, pending
        self._topics = Topics(cluster)

    def create(self, topic: TopicName, name: str, *, at: int) -> None:
        """Make a subscription that has everything at or below the number `at` behind it (0: nothing). What a crash left half
        made is completed. Raises TopicNotFound, SubscriptionExists.
        """
        started = False

        def step() -> bool | None:
            nonlocal started
            self._topics.finish_seals()  # children that no layout shows may have tombstones of this name: they are made live below
            records = self._cursors(topic, name)
            missing = [(w, r) for w, r in records.items() if not _live(r)]
            if not missing:
                if started:
                    return True
                raise SubscriptionExists(
                    f"The topic {topic} has a subscription {name!r}.", advice="Seek it, or use it where it stands."
                )
            started = True
            done = self._behind(topic, [w for w, _ in missing], at)
            cursors = [(w, acks.with_done(Cursor(), done[w]).to_bytes(), ABSENT if r is None else r) for w, r in missing]
            self._write([Put(paths.cursor(*w), cursor, expect=expect) for w, cursor, expect in cursors])
            return None  # look again: somebody may have split or merged segments meanwhile, and not seen these

        until(step)

    def delete(self, topic: TopicName, name: str) -> None:
        """Leave tombstones, which go after the grace period: versions of a record must not restart under who still has it in hand.
        Raises TopicNotFound, SubscriptionNotFound.
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
        """Move it: exactly the rows at or below the number `to` count as acknowledged. What OPEN transactions claim stays claimed.
        Raises TopicNotFound, SubscriptionNotFound.
        """
        self._pending.seek(self._behind(topic, self.where(self._topics.get(topic), name), to))

    def cursors(self, topic: Topic, name: str) -> dict[str, Cursor]:
        """The cursor of each segment of the topic. Raises SubscriptionNotFound."""
        return {segment: cursor for (segment, _), cursor in self._pending.read(self.where(topic, name)).items()}

    def list(self, topic: TopicName | None = None) -> list[tuple[TopicName, str]]:
        """Topics and their subscriptions, by name."""

        def body(view: View) -> list[tuple[TopicName, str]]:
            named = [paths.cursor_of(path) for path in view.keys(paths.CURSORS)]
            owners = self._owners(view, {s for s, _ in named})
            wanted = [w for w in named if w[0] in owners and topic in (None, owners[w[0]])]
            records = view.get_many([paths.cursor(*w) for w in wanted]) if wanted else []
            found = [w for w, r in zip(wanted, records, strict=True) if _live(r)]
            names = sorted({owners[s] for s, _ in found})
            shown = view.get_many([paths.topic(t) for t in names]) if names else []
            topics = [of_record(t, r) for t, r in zip(names, shown, strict=True)]
            segments = {s for t in topics if t is not None for s in t.segments()}  # not those of an earlier life
            return sorted({(owners[s], name) for s, name in found if s in segments})

        return decide(self._cluster.store, body)

    @staticmethod
    def _owners(view: View, segments: Iterable[str]) -> dict[str, TopicName]:
        """The topic of each segment: of a persistent topic the one that it goes on in."""
        found = {s: segment_name(s).topic for s in segments if not is_persistent(s)}
        older = sorted(s for s in segments if is_persistent(s))
        records = view.get_many([paths.topic(persistent_name(s)) for s in older]) if older else []
        for name, record in zip(older, records, strict=True):
            to = None if record is None else PersistentLayout.of(record).migrated_to
            if to is not None:
                found[name] = topic_name(to)
        return found

    def _behind(self, topic: TopicName, where: Sequence[Where], number: int) -> dict[Where, Rows]:
        """What lies behind a cursor at a number of the log. Before the first row (0) that is what retention took of any segment
        of the topic: no transaction above it has lost a row.
        """
        now = self._topics.get(topic)
        shifts = {s: legacy_shift(now, s) for s in now.segments() if is_persistent(s)}
        if number:
            return {w: behind(to_own(number, shifts.get(w[0], 0))) for w in where}
        segments = sorted({*now.segments(), *(s for s, _ in where)})
        keys = [paths.topic(persistent_name(s)) if is_persistent(s) else paths.watermark(s) for s in segments]
        records = decide(self._cluster.store, lambda view: view.get_many(keys))
        own = {s: _trimmed(s, record) for s, record in zip(segments, records, strict=True)}
        highest = max(to_cluster(n, shifts.get(s, 0)) for s, n in own.items())
        if now.layout.trimmed_to is not None:
            highest = max(highest, now.layout.trimmed_to.ledger_id)
        return {w: behind(max(own[w[0]], to_own(highest, shifts.get(w[0], 0)))) for w in where}

    @staticmethod
    def where(topic: Topic, name: str) -> Sequence[Where]:
        return [(segment, name) for segment in topic.segments()]

    def _cursors(self, topic: TopicName, name: str) -> dict[Where, Record | None]:
        """Of each segment that the layout has."""

        def body(view: View) -> dict[Where, Record | None]:
            now = of_record(topic, view.get(paths.topic(topic)))
            if now is None:
                raise no_topic(topic)
            where = self.where(now, name)
            return dict(zip(where, view.get_many([paths.cursor(*w) for w in where]), strict=True))

        return decide(self._cluster.store, body)

    def _everywhere(self, topic: TopicName, name: str) -> dict[Where, Record]:
        """All there are, also of children that a layout does not show yet."""

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
        """What loses a race or its reply is looked at again by the caller."""
        for some in in_groups(puts):
            try:
                self._cluster.store.write(*some)
            except (BadVersion, UnknownOutcome):
                continue


def _trimmed(segment: str, record: Record | None) -> int:
    """The ledger up to which retention has taken the rows of a segment, by what says so."""
    if record is None:
        return 0
    if is_persistent(segment):
        return PersistentLayout.of(record).trimmed_log
    last = Watermark.of(record).trimmed_to
    return 0 if last is None else last.ledger_id


def _live(record: Record | None) -> bool:
    return record is not None and Cursor.of(record).deleted_ms is None
