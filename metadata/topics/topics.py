"""Topics: create, describe, list, delete, split and merge them, and finish their seals (protocol.md sections 4 and 5)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from ledgers.schema import check_writable, nullable
from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, OptionError, SegmentSealed, TopicExists, TopicNotFound, UnknownOutcome
from metadata.cursors.cursors import make_children
from metadata.log.live_log import LiveLog
from metadata.records import paths, patterns
from metadata.records.names import TopicName, check_new, even_ranges, topic_name
from metadata.records.records import Layout, Range, Registration, SegmentInfo, SegmentState, TopicSchema
from metadata.rules import transitions
from metadata.store.contract import ABSENT, View, decide, look, time_ms, until
from metadata.topics.keys import check_key
from metadata.topics.schemas import TopicSchemas
from metadata.topics.topic import Topic as Topic
from metadata.topics.topic import not_found as not_found
from metadata.topics.topic import of_record as of_record

T = TypeVar("T")

MAX_LAYOUT_SEGMENTS = 3_000
"""Maximum number of segments in a layout, including sealed segments. Each takes about 250 bytes of the layout's record, which has
at most 768 KiB.
"""


class Topics:
    """The topics of a cluster."""

    def __init__(self, cluster: Cluster, log: LiveLog | None = None) -> None:
        """`log`: this process's cache of the log. None: the object makes an empty cache of its own."""
        self._cluster = cluster
        self._log = LiveLog() if log is None else log
        self.schemas = TopicSchemas(cluster)

    def get(self, name: TopicName) -> Topic:
        """Return a topic. Raises TopicNotFound."""
        topic = self.find(name)
        if topic is None:
            raise decide(self._cluster.store, lambda view: missing(view, name, self._cluster.url))
        return topic

    def find(self, name: TopicName) -> Topic | None:
        """Return a topic, or None if it does not exist. An unfinished migration to this topic is completed first, so that the
        topic has active segments.
        """
        topic = of_record(name, look(self._cluster.store, paths.topic(name)))
        if topic is not None and topic.layout.unsealed_legacy() is not None:
            self.complete(name)
            return self.find(name)
        return topic

    def list(self, pattern: str | None = None) -> list[Topic]:
        """Return all topics whose full name matches the regular expression from its first to its last character (None: all
        topics), sorted by name. Raises OptionError for a bad pattern.
        """
        return decide(self._cluster.store, lambda view: matching(view, compiled(pattern)))

    def create(self, name: TopicName, *, segments: int = 1, key: str | None = None, schema: StructType | None = None) -> Topic:
        """Create a topic. If a deleted topic had this name, the epoch and the segment ids continue above those of the deleted
        topic.

        Raises TopicExists (also if another process creates the topic at the same time), OptionError (the name, the number of
        segments or the key column is not allowed), SchemaError (a topic cannot store the schema).
        """
        check_new(name)
        ranges = even_ranges(segments)
        if schema is not None:
            check_writable(schema)
        if schema is not None and key is not None:
            check_key(key, arrow_schema(schema))

        def body(view: View) -> Topic:
            record = view.get(paths.topic(name))
            old = None if record is None else Layout.of(record)
            if old is not None and not old.deleted:
                raise TopicExists(f"The topic {name} exists already.", advice="Choose another name, or use the topic as it is.")
            epoch, first = (old.epoch + 1, old.next_segment_id) if old else (0, 0)
            now_ms = view.now_ms()
            infos = {
                str(first + i): SegmentInfo(
                    segment_id=first + i,
                    hash_range=Range(start=r.start, end=r.end),
                    state=SegmentState.ACTIVE,
                    created_at_epoch=epoch,
                    created_at_ms=now_ms,
                )
                for i, r in enumerate(ranges)
            }
            first_schema = None if schema is None else TopicSchema(spark=nullable(schema).json(), created_at_ms=now_ms)
            layout = Layout(
                epoch=epoch,
                next_segment_id=first + segments,
                # The layout keeps the segments of a deleted topic of this name until the grace period ends. By these segments a
                # read that starts below the deletion notices that rows of the deleted topic are gone.
                segments=({} if old is None else {str(i.segment_id): i for i in old.gone()}) | infos,
                key=key,
                schema_id=None if first_schema is None else self.schemas.put(view, name, first_schema),
                deleted_to_log=None if old is None else old.deleted_to_log,
                migration=None if old is None else old.migration,
            )
            try:
                made = self._cluster.store.put(paths.topic(name), layout.to_bytes(), expect=ABSENT if record is None else record)
            except (BadVersion, UnknownOutcome) as error:
                now = of_record(name, look(self._cluster.store, paths.topic(name)))
                if now is None:
                    raise
                if now.layout == layout:
                    return now
                raise TopicExists(
                    f"The topic {name} exists already: another process has just created it.",
                    advice="Choose another name, or use the topic as it is.",
                ) from error
            return Topic(name, layout, made)

        return decide(self._cluster.store, body)

    def ensure(self, name: TopicName, *, segments: int, key: str | None, schema: StructType, create: bool) -> Topic:
        """Return the topic. If it does not exist, create it, or raise TopicNotFound if `create` is False. Idempotent."""
        topic = self.find(name)
        if topic is None:
            if not create:
                raise not_found(name)
            try:
                return self.create(name, segments=segments, key=key, schema=schema)
            except TopicExists:
                return self.get(name)
        return topic

    # --- schemas ------------------------------------------------------------------------------------------------

    def schema(self, topic: Topic) -> StructType | None:
        """Return the topic's current columns, or None if it has no schema yet."""
        latest = self.schemas.latest(topic)
        return None if latest is None else latest.columns

    def schema_version(self, name: TopicName, schema_id: int) -> StructType:
        """Return the columns of a schema version. Raises SchemaError if the version does not exist."""
        return self.schemas.get(name, schema_id).columns

    def evolve(self, name: TopicName, incoming: StructType, key: str | None = None, *, grow: bool = True) -> tuple[Topic, int]:
        """Do `TopicSchemas.evolve`: evolve the topic's schema for a write."""
        return self.schemas.evolve(name, incoming, key, grow=grow)

    # --- splitting, merging, deleting: a seal, then the layout that shows it (5, Sealing) --------------------------

    def split(self, name: TopicName, segment_id: int, *, epoch: int | None = None) -> Topic:
        """Split an active segment in two halves. The segment is sealed, and two children take its range. Return the topic with the
        new layout.

        `epoch`: the epoch of the layout by which the caller decided to split (None: any). If the topic has another epoch now,
        nothing is done. Raises BadVersion (another epoch), TopicNotFound, OptionError (no such segment, a segment with a single
        hash value, too many segments), SegmentSealed (the segment is no longer active; the error names its children).
        """
        return until(lambda: self._seal(name, (segment_id,), "split", epoch))

    def merge(self, name: TopicName, first: int, second: int, *, epoch: int | None = None) -> Topic:
        """Merge two active neighbours. Both are sealed, and one child takes both ranges. Return the topic with the new layout.
        Raises as `split` does.
        """
        return until(lambda: self._seal(name, (first, second), "merge", epoch))

    def delete(self, name: TopicName) -> None:
        """Delete a topic: seal all its segments, then leave a tombstone. Raises TopicNotFound."""
        topic = self.get(name)

        def step() -> bool | None:
            now = self.get(name)
            self._append_seal(now, now.active(), "delete", ())
            # If the topic still exists, its layout had changed before this seal was appended, so the seal was void.
            return None if self._still(topic) else True

        until(step)

    def _seal(self, name: TopicName, segment_ids: tuple[int, ...], why: str, epoch: int | None) -> Topic | None:
        # Without this call an unfinished seal from the same layout would make the new seal void (failure A35).
        self.finish_seals()
        topic = self.get(name)
        if epoch is not None and topic.layout.epoch != epoch:
            raise BadVersion(
                f"The layout of {name} is of epoch {topic.layout.epoch}; this {why} was decided by epoch {epoch}.",
                advice="Nothing was done. The topic was split or merged since: read its layout and decide again.",
            )
        parents = [self._active(topic, segment_id) for segment_id in segment_ids]
        parents.sort(key=lambda info: info.hash_range.start)
        try:
            children = len(transitions.child_ranges([info.hash_range for info in parents]))
        except ValueError as error:
            raise OptionError(
                f"A {why} of {', '.join(topic.segment(info) for info in parents)} cannot be: {error}.",
                advice="Split a segment of at least two hash values; merge two active neighbours (txnsegment topics describe).",
            ) from error
        if len(topic.layout.segments) + children > MAX_LAYOUT_SEGMENTS:
            raise OptionError(
                f"The layout of {name} has {len(topic.layout.segments)} segments, sealed ones included, and cannot take more.",
                advice="Sealed segments leave the layout once retention has trimmed them.",
            )
        first = topic.layout.next_segment_id
        self._append_seal(topic, parents, why, tuple(range(first, first + children)))
        now = self.get(name)
        if all(now.layout.segments[str(i)].state is SegmentState.ACTIVE for i in segment_ids if str(i) in now.layout.segments):
            return None  # the layout had changed before this seal was appended, so this seal is void
        if not all(_ended_by(now, i, why, topic.layout.epoch + 1) for i in segment_ids):
            raise self._sealed(now, segment_ids)
        return now

    def _active(self, topic: Topic, segment_id: int) -> SegmentInfo:
        info = topic.layout.segments.get(str(segment_id))
        if info is None or info.deleted_at_log is not None:
            active = ", ".join(str(found.segment_id) for found in topic.active())
            raise OptionError(f"The topic {topic.name} has no segment {segment_id}.", advice=f"The active segments are: {active}.")
        if info.state is not SegmentState.ACTIVE:
            raise self._sealed(topic, (segment_id,))
        return info

    @staticmethod
    def _sealed(topic: Topic, segment_ids: tuple[int, ...]) -> SegmentSealed:
        infos = [topic.layout.segments[str(i)] for i in segment_ids if str(i) in topic.layout.segments]
        sealed = [info for info in infos if info.state is SegmentState.SEALED]
        return SegmentSealed(
            "; ".join(f"{topic.segment(i)} was sealed at {i.sealed_at_log}, its children are {i.child_ids}" for i in sealed) + ".",
            advice="The segment was split or merged already: look at the layout (txnsegment topics describe) and choose again.",
        )

    def _append_seal(self, topic: Topic, infos: Sequence[SegmentInfo], why: str, children: tuple[int, ...]) -> None:
        """Append a seal, then write the layout that shows it. A lost reply does no harm. If the seal was appended, `finish_seals`
        finishes it. If the seal was not appended, the caller finds the layout unchanged and appends the seal again.
        """
        self._refuse_unfinishable(topic.name)
        seal = Registration(
            publish_ms=time_ms(self._cluster.store),
            seal=tuple(topic.segment(info) for info in infos),
            topic=str(topic.name),
            why=why,
            epoch=topic.layout.epoch,
            children=children,
        )
        with suppress(UnknownOutcome):
            self._cluster.store.append(paths.LOG, seal.to_bytes())
        self.finish_seals()

    def _refuse_unfinishable(self, name: TopicName) -> None:
        """Raise SegmentSealed if the topic has an unfinished seal of a kind that only a newer version of txnsegment can finish. A
        second seal from the same layout would be void, so every retry of the caller would fail.
        """

        def body(view: View) -> list[int]:
            seals = self._log.list(view).seals()
            record = view.get(paths.topic(name))
            layout = None if record is None else Layout.of(record)
            return [
                n
                for n, s in seals.items()
                if s.topic == str(name) and transitions.unfinished(n, s, layout, seals) and not transitions.finishable(s)
            ]

        found = decide(self._cluster.store, body)
        if found:
            raise SegmentSealed(
                f"Segments of {name} were sealed in a way that this version does not know (seal {found[0]}).",
                advice="Finish it with the version of txnsegment that began it.",
            )

    def _still(self, topic: Topic) -> bool:
        """Return whether the topic still exists. A new topic of the same name has other segment ids."""
        now = self.find(topic.name)
        return now is not None and not set(now.segments()).isdisjoint(topic.segments())

    def complete(self, name: TopicName) -> None:
        """Complete the migration of a persistent topic to the topic `name`. The persistent topic is the first segment of this
        topic. Append the seal of this segment, and write the layout with the child segments. Several processes may do this at once,
        because only the first of several seals from one layout counts. Guards against failure A35 (protocol.md section 9).

        The migrated ledgers get the numbers of the cluster's log just below the seal (`metadata.instream.legacy`). So the cluster's
        log first skips as many numbers as the persistent topic's log has used. A reader whose cut is above the skipped numbers
        would miss the migrated rows if its layout did not name the persistent topic. Therefore the layout names the persistent
        topic already before this call. This call lists the end of the cluster's log AFTER it has read that layout, and skips only
        numbers above this end.
        """

        def step() -> bool | None:
            self.finish_seals()  # this also finishes seals of other processes
            topic = of_record(name, look(self._cluster.store, paths.topic(name)))
            legacy = None if topic is None else topic.layout.unsealed_legacy()
            if topic is None or legacy is None:
                return True
            migration = topic.layout.migration
            assert migration is not None
            end = decide(self._cluster.store, self._log.list).end
            first = topic.layout.next_segment_id
            with suppress(UnknownOutcome):
                self._cluster.store.skip(paths.LOG, end + 1 + migration.seal + 1)
                self._append_seal(topic, [legacy], "migrate", tuple(range(first, first + migration.segments)))
            return None

        until(step)

    def forget_deleted(self) -> None:
        """Remove the segments of deleted topics whose grace period is over from the layouts. Of these segments a layout then keeps
        only the number of the seal that deleted them (`deleted_to_log`).
        """

        def body(view: View) -> bool:
            done = True
            for topic in every(view):
                after = transitions.without_gone(
                    topic.layout, now_ms=view.now_ms(), grace_ms=self._cluster.settings.grace_period_ms
                )
                if after is topic.layout:
                    continue
                try:
                    self._cluster.store.put(paths.topic(topic.name), after.to_bytes(), expect=topic.record)
                except (BadVersion, UnknownOutcome):
                    done = False
            return done

        until(lambda: decide(self._cluster.store, body) or None)

    def finish_seals(self) -> int:
        """Finish all seals: for each valid seal that no layout shows yet, write the layout that shows it. Seals of a kind that only
        a newer version of txnsegment knows are left out. Return how many layouts were written. Several processes may do this at
        once.
        """
        done = 0

        def body(view: View) -> bool:
            nonlocal done
            listing = self._log.list(view)
            seals = listing.seals()
            names = {n: topic_name(s.topic) for n, s in seals.items() if s.topic is not None and transitions.finishable(s)}
            for number, name in names.items():
                record = view.get(paths.topic(name))
                layout = None if record is None else Layout.of(record)
                if not transitions.unfinished(number, seals[number], layout, seals):
                    continue
                assert layout is not None
                after = transitions.sealed_layout(layout, number, seals[number], now_ms=view.now_ms())
                # The cursors of the children must exist before the layout shows the children.
                make_children(self._cluster.store, view, name, layout, after)
                try:
                    self._cluster.store.put(paths.topic(name), after.to_bytes(), expect=record)
                except (BadVersion, UnknownOutcome):
                    return False
                done += 1
            return True

        until(lambda: decide(self._cluster.store, body) or None)
        return done


def _ended_by(topic: Topic, segment_id: int, why: str, epoch: int) -> bool:
    """Return whether the segment was sealed by the change `why` (`split` or `merge`), and this change made the layout of the epoch
    `epoch`. A split gives the segment two children, a merge one child.
    """
    info = topic.layout.segments.get(str(segment_id))
    return info is not None and info.sealed_at_epoch == epoch and len(info.child_ids) == (2 if why == "split" else 1)


def compiled(pattern: str | None) -> re.Pattern[str] | None:
    """Compile a pattern of topic names; None stays None. Raises OptionError for a bad pattern."""
    return None if pattern is None else patterns.compiled(pattern)


def matching(view: View, pattern: re.Pattern[str] | None) -> list[Topic]:
    """Return the topics whose full name matches the pattern (None: all), sorted by name. Deleted topics are left out."""
    return [t for t in every(view, pattern) if not t.layout.deleted]


def missing(view: View, name: TopicName, url: str) -> TopicNotFound:
    """Return the error for a topic that does not exist. Its advice names the cluster, and an existing topic with a similar name.
    `url`: the service URL of the cluster.
    """
    error = not_found(name)
    found = {topic.name.name.lower(): topic.name for topic in matching(view, None)}
    near = difflib.get_close_matches(name.name.lower(), found, n=1, cutoff=0.7)
    meant = f"Did you mean {found[near[0]]}? " if near else ""
    error.advice = f"{meant}{error.advice} The cluster is {url}."
    return error


def every(view: View, pattern: re.Pattern[str] | None = None) -> list[Topic]:
    """Return the topics whose full name matches the pattern (None: all), sorted by name. Deleted topics are included, by their
    tombstones.
    """
    found = [paths.topic_at(path) for path in view.keys(paths.TOPICS)]
    names = sorted(n for n in found if pattern is None or pattern.fullmatch(str(n)))
    records = view.get_many([paths.topic(n) for n in names]) if names else []
    return [Topic(n, Layout.of(r), r) for n, r in zip(names, records, strict=True) if r is not None]
