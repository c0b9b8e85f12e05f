"""The stream reader that Spark sees. One object in one long-lived process serves a query: the live log stays in its memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from metadata.client.client import Client, shared_client
from metadata.common import metrics
from metadata.read.reading import Reading
from metadata.records.names import TopicName, is_persistent, persistent_name, topic_name
from metadata.records.row_ranges import NONE, union
from metadata.rules import transitions
from spark_txn_source import persistent
from spark_txn_source.cursors import StreamCursors, acked_when_planned
from spark_txn_source.following import Following
from spark_txn_source.following_topics import FollowingTopics
from spark_txn_source.losses import check_deletions, check_trims, hidden, known_trims
from spark_txn_source.offsets import StreamOffset, offset_of, planned_selection, same_topics
from spark_txn_source.options import ReadOptions
from spark_txn_source.persistent import Range
from spark_txn_source.plan import (
    deleted_to,
    reading_final,
    reading_now,
    reading_to,
    start_number,
    tasks,
    within_log,
)
from spark_txn_source.schema_checks import check_replay, check_schema
from spark_txn_source.selection import AtTime, Pattern, Position
from spark_txn_source.tasks import read_task
from spark_txn_source.topics import columns_wanted, nothing_read, onward, reads_log, selected, standing

if TYPE_CHECKING:
    from metadata.instream.reading import TopicReading


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One `spark.readStream.format("txnsegment").load(...)`: offsets are numbers of the log, micro-batches whole transactions."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = ReadOptions.parse(options, streaming=True)
        client = self._client()
        self._options = standing(client, self._options)
        self._selection = self._options.selection
        self._columns = columns_wanted(client, self._options, schema)
        self._target: StreamOffset | None = None
        self._reached = StreamOffset(0, self._selection.key)
        self._following: Following | None = None
        self._following_topics: FollowingTopics | None = None
        self._onward: tuple[TopicName, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles the reader to its tasks, which read files and follow nothing."""
        kept = {name: value for name, value in self.__dict__.items() if name != "_cursors"}
        return kept | {"_following": None, "_following_topics": None}

    @cached_property
    def _cursors(self) -> StreamCursors | None:
        """The cursors of the stream's subscription; None: the stream has no subscription."""
        subscription = self._options.subscription
        return None if subscription is None else StreamCursors(self._client, self._options, subscription)

    def follow(self) -> Following | None:
        """What this query knows of its topic:// topics; made when first asked for, since tasks never ask. None: it reads none."""
        if self._onward is None:
            self._onward = onward(self._client(), self._selection)
        found = selected(self._selection, self._onward)
        if self._following is None and found is not None:
            self._following = Following(self._client(), found)
        return self._following

    def _goes_on(self, topics: Sequence[TopicReading]) -> bool:
        """Follow what persistent topics go on in, once they were migrated; whether there is anything that was not followed."""
        named = {topic_name(to) for one in topics if (to := one.topic.layout.migrated_to) is not None} - {*(self._onward or ())}
        if isinstance(self._selection, Pattern):
            named = {name for name in named if not self._selection.matches(name)}  # the others are covered anyway
        further = onward(self._client(), self._selection) if named else self._onward
        if further == self._onward:
            return False
        self._onward = further
        if self._following is not None:
            self._following.close()
            self._following = None
        return True

    def _newest(self) -> tuple[Reading, tuple[TopicReading, ...]]:
        """What was decided before this call: in the log of topic://, and in that of each persistent topic.

        The log first: its cut may lie beyond rows of what a persistent topic goes on in only if these are followed, and they come
        after all rows of that topic. So what was not migrated yet AFTER the log was read has nothing below its cut.
        """
        if self._following_topics is None:
            self._following_topics = FollowingTopics(self._client(), self._selection)
        while True:
            following = self.follow()
            reading = nothing_read(self._client().cluster) if following is None else following.read()
            topics = self._following_topics.read()
            if not self._goes_on(topics):
                return reading, topics

    def _client(self) -> Client:
        return shared_client(self._options.service_url.text)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new checkpoint begins. Spark asks again for each plan of the first batch, until that batch is done. The end of
        the first batch records which answer it was planned from.
        """
        client, start = self._client(), self._options.start
        if isinstance(start, AtTime):  # not before it is known which rows come before it: a batch that ends there has them
            reading = reading_final(client, self._options, start.ms - 1)
            topics = persistent.read_final(client, self._options, start.ms - 1)
        else:
            reading, topics = reading_now(client, self._selection), persistent.read(client, self._selection)
        if self._cursors is not None:
            return self._initial(self._cursors.start(reading, topics))
        number = start_number(reading, start) if reads_log(reading) else 0
        within_log(number, reading)
        known = deleted_to(reading, start, self._options.end)
        trims = known_trims(reading, start) | persistent.known_trims(topics, start)
        positions = {one.name: persistent.position(one, persistent.start_number(one, start)) for one in topics}
        found = StreamOffset(number, self._selection.key, known, trims=trims, positions=positions)
        return self._initial(found)

    def _initial(self, offset: StreamOffset) -> dict[str, Any]:
        return dataclasses.replace(self._signed(offset), is_initial=True).to_json()

    def _signed(self, offset: StreamOffset) -> StreamOffset:
        """With what its numbers are of, and which cursors follow."""
        return dataclasses.replace(offset, cluster=self._client().cluster.id, subscription=self._options.subscription)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        client = self._client()
        reading = reading_now(client, self._selection)  # first, as in `_newest`
        topics = persistent.read(client, self._selection)
        positions = {one.name: Position(one.cut, 0) for one in topics}
        self._target = StreamOffset(reading.cluster.before_lost(reading.cut), self._selection.key, positions=positions)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch: whole transactions up to cut, limits and next seal; never below the start."""
        given = self._start(start)
        offset = given.first_end()
        begin = offset.log
        reading, topics = self._newest()
        if reads_log(reading):
            within_log(begin, reading)
        migrated = _migrated(reading, begin)
        if self._cursors is not None:
            self._cursors.join(reading, topics)
            if not self._cursors.check_added(reading, topics, offset):
                self._reached = given
                return given.to_json()
        offset = offset.as_segments(migrated)
        for one in topics:
            persistent.within_log(offset.number(one.name), one)
        gone = persistent.deleted(self._client(), self._selection, offset.positions, topics, fail=self._options.fail_on_data_loss)
        offset = dataclasses.replace(offset, positions={n: place for n, place in offset.positions.items() if n not in gone})
        self._measure(reading, topics)
        self._reached = self._given(offset, begin, {})
        end = max(begin, reading.last_change(begin))
        if self._target is not None:
            end = max(begin, min(end, self._target.log))
        ranges = self._beyond(offset, topics)
        if any(one.reading.topic.layout.migrated_to is not None for one in ranges):
            end = begin  # what was migrated is read to its end before what goes on from it
        if end == begin and not ranges:
            return self._reached.to_json()  # equal to the start: Spark would run an empty batch for any other
        shown = [*reading.topics, *map(persistent.topic, topics)]
        check_schema(self._client(), shown, self._columns, streaming=True, ignore_new=self._ignores_new())
        rows, size = self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadAllAvailable):
            rows = size = None
        seals = reading.seals(begin, end)
        if ranges:
            number, positions = persistent.limited(reading, begin, min([end, *seals]), ranges, max_rows=rows, max_bytes=size)
        else:
            weights = reading.weights(begin, end)
            number, positions = transitions.limited(weights, end, max_rows=rows, max_bytes=size, seals=seals), {}
        came = {one.reading.name: one.reading.lost_to for one in ranges if one.reading.name not in offset.positions}
        client, cursors = self._client(), self._cursors
        acked_to = acked_when_planned(client, offset) if cursors is None else cursors.acked_now(reading, topics, offset)
        after = dataclasses.replace(offset, acked_to=acked_to).after(begin, migrated)
        trims = {**after.trims, **{name: n for name, n in came.items() if n}}
        began = offset.began if given.is_initial else None
        after = self._signed(dataclasses.replace(after, trims=trims, began=began))
        self._reached = self._given(after, number, positions)
        return self._reached.to_json()

    def _beyond(self, offset: StreamOffset, topics: Sequence[TopicReading]) -> list[Range]:
        """Of the persistent topics those with anything new, and up to where."""
        found = []
        for one in topics:
            begin = offset.number(one.name)
            end = one.last_change(begin)
            if self._target is not None:
                end = min(end, self._target.number(one.name))
            if end > begin:
                found.append(Range(one, begin, end))
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the progress shows as the newest there is: equal to the end of the last batch once the stream has all of it."""
        reached = self._reached
        reading, topics = self._newest()
        if self._cursors is not None:
            self._cursors.join(reading, topics)
        positions = {
            one.name: persistent.position(one, last)
            for one in topics
            if (last := one.last_change(reached.number(one.name))) > reached.number(one.name)
        }
        newest = self._given(reached, max(reached.log, reading.last_change(reached.log)), positions)
        if self._cursors is None:
            return newest.to_json()
        left = self._cursors.lag(reading, topics, reached)
        return newest.to_json() | ({"lag": dataclasses.asdict(left)} if left.rows else {})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a GIVEN range, the first time or as a replay: the same rows for ever. Raises OffsetOutOfRange or DataLoss rather
        than fewer.

        A replay reads the topics that the batch's end names: topics added since start where the stream stands, which is there. The
        first batch starts where its end says that it began: Spark's start is a new initial offset.
        """
        to = self._start(end)
        offset = to.start_of_batch(self._start(start))
        begin, last = offset.log, to.log
        ends = {persistent_name(n): (offset.number(n), to.number(n)) for n in to.positions if to.number(n) > offset.number(n)}
        if begin >= last and not ends:  # (above: a first batch whose end, of an older version, does not say where it began)
            return []
        client = self._client()
        planned = planned_selection(end, self._selection)
        reading, found = reading_to(client, planned, last), persistent.read_to(client, ends, fail=self._options.fail_on_data_loss)
        offset = offset.as_segments(_migrated(reading, begin))
        ranges = [one._replace(done=offset.done().get(one.reading.name, NONE)) for one in found]
        if self._options.fail_on_data_loss:
            # The start of a first batch that an older version planned is a new initial offset: its end alone says what was known.
            known = min(offset.deleted_to, max(last, to.deleted_to))
            check_deletions(reading, begin, last, known, to.trims, offset.done())
            check_trims(reading, begin, last, to.trims, offset.done())
            for one in ranges:
                persistent.check_trim(one.reading, one.start, one.end, to.trims.get(one.reading.name, 0))
        done = offset.done()
        fail = self._options.fail_on_data_loss or self._options.subscription is not None
        for name, rows in hidden(reading, to.trims, fail_on_data_loss=fail).items():
            done[name] = union(done.get(name, NONE), rows)
        topics = [*reading.topics, *persistent.topics(client, planned, ranges)]
        if planned.key == self._selection.key:
            check_schema(client, topics, self._columns, streaming=True, ignore_new=self._ignores_new())
        else:
            check_replay(client, topics, self._columns)
        return tasks(reading, self._options, self._columns, begin, last, done, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint keeps the progress; a subscription's cursors follow it. Idempotent. Raises AckConflict (a transaction
        of somebody else claims rows of this batch; or the subscription was moved back, or deleted and made again),
        SubscriptionNotFound (it was deleted).
        """
        if self._cursors is not None:
            self._cursors.commit(offset_of(end), *self._newest())

    def stop(self) -> None:
        """The client is shared by the process's queries and stays."""
        for following in (self._following, self._following_topics):
            if following is not None:
                following.close()

    def _start(self, found: dict[str, Any]) -> StreamOffset:
        offset = offset_of(found)
        self._client().cluster.check_is_mine(offset.cluster)
        same_topics(offset, self._selection, self._options.topics_changed)
        return offset

    def _given(self, offset: StreamOffset, number: int, positions: Mapping[str, Position]) -> StreamOffset:
        """At a number, and at new positions of some persistent topics, with what a batch before it has to know."""
        return dataclasses.replace(offset, log=number, read=self._selection.key, positions={**offset.positions, **positions})

    def _ignores_new(self) -> bool:
        return self._columns.pinned or self._options.schema_change == "ignoreNewColumns"

    def _measure(self, reading: Reading, topics: Sequence[TopicReading]) -> None:
        for topic in reading.topics:
            metrics.READ_LAG.labels(topic=str(topic.name)).set(reading.end_of_log - reading.cut)
        for one in topics:
            metrics.READ_LAG.labels(topic=one.name).set(one.end - one.cut)


def _migrated(reading: Reading, number: int) -> dict[str, int]:
    """The persistent topics that are segments of what is read by the numbers of the log, and the ledger of each at one of them."""
    return {s.name: s.ledger_id(number) for s in reading.segments if is_persistent(s.name)}
