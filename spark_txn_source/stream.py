"""The stream reader of Spark's DataSource API. Spark keeps one reader object in one process for the whole life of a query. So the
reader keeps the live log in memory between micro-batches.
"""

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
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from metadata.client.client import Client, shared_client
from metadata.client.logs import Logs
from metadata.common import metrics
from metadata.common.tracing import traced
from metadata.common.workers import tells_errors
from metadata.read.log_reader import now
from metadata.read.reading import Reading
from metadata.read.selection import LOG, AtTime, Earliest, Selection
from metadata.records.row_ranges import NONE, union
from spark_txn_source.acked import acked_when_planned
from spark_txn_source.columns import columns_wanted
from spark_txn_source.current_names import with_current_names
from spark_txn_source.following import MOST_SECONDS, FollowingLogs
from spark_txn_source.lag import named, note_lag, note_planned
from spark_txn_source.limits import waits
from spark_txn_source.log_ranges import LogRange, deleted_to, limited, start_number
from spark_txn_source.losses import check_deletions, check_trims, hidden, known_trims
from spark_txn_source.offsets import StreamOffset, offset_of, planned_selection, same_topics
from spark_txn_source.options import ReadOptions, check_progress
from spark_txn_source.plan import tasks
from spark_txn_source.read_limits import default_limit
from spark_txn_source.schema_checks import check_replay, check_schema
from spark_txn_source.task_reader import TaskReader
from spark_txn_source.timestamps import final

if TYPE_CHECKING:
    from spark_txn_source.cursors import StreamCursors


@tells_errors
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one `spark.readStream.format("txnsegment").load(...)`. Its offsets are numbers of logs. Its micro-batches have
    whole transactions.
    """

    def __init__(self, options: dict[str, str], schema: StructType, client: Client | None = None) -> None:
        """`client`: the client of a program that follows a topic without Spark. None: the client that all readers of this process
        share.
        """
        self._own_client = client
        self._options = ReadOptions.parse(options, streaming=True)
        client = self._client()
        self._options = with_current_names(client, self._options)
        self._selection = self._options.selection
        self._columns = columns_wanted(client, self._options, schema)
        self._target: Mapping[str, int] | None = None
        """The number, for each log, up to which `Trigger.AvailableNow` reads. None for other triggers."""
        self._last_rows: float | None = None
        """The monotonic time of the last micro-batch with rows of this run. None: there was none."""
        self._reached = StreamOffset(0, self._selection.key)
        self._following: FollowingLogs | None = None
        self._unreported: tuple[Reading, ...] | None = None
        """The readings of the last `latestOffset`, until `reportLatestOffset` has reported them."""
        self._unplanned: tuple[float, tuple[Reading, ...]] | None = None
        """The same readings with the monotonic time at which they were newest, until `partitions` has planned a batch from them."""

    def __reduce__(self) -> tuple[type[TaskReader], tuple[()]]:
        """Spark pickles the reader for its tasks, which only read files."""
        return TaskReader, ()

    @cached_property
    def _cursors(self) -> StreamCursors | None:
        """The cursors of the stream's subscription, or None if the stream has no subscription."""
        subscription = self._options.subscription
        if subscription is None:
            return None
        from spark_txn_source.cursors import StreamCursors  # imported late, because most streams have no subscription

        return StreamCursors(self._client, self._options, subscription)

    def _newest(self) -> tuple[Reading, ...]:
        """Return a reading of each log with everything that was decided before this call. The first call starts the tailing. Tasks
        never call this method, so they do not tail.
        """
        if self._following is None:
            self._following = FollowingLogs(self._client(), self._selection)
        return self._following.read()

    def _client(self) -> Client:
        return shared_client(self._options.service_url.text) if self._own_client is None else self._own_client

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new checkpoint. Spark calls this method for each plan of the first batch, until the batch is done.
        The end of the first batch records the initial offset from which the batch was planned.
        """
        start, logs = self._options.start, Logs(self._client(), self._selection)
        check_progress(self._client().cluster, self._selection, start)
        if isinstance(start, AtTime):
            # Wait until the rows before the start are final. A batch that ends just before the start then has exactly these rows.
            ms, patience_ms = start.ms - 1, self._options.timestamp_timeout_ms
            readings = logs.read(lambda log: final(log, ms, patience_ms))
        else:
            readings = logs.read(now)
        if self._cursors is not None:
            return self._initial(self._cursors.start(readings))
        numbers = {one.log: start_number(one, start) for one in readings}
        for one in readings:
            one.check_reached(numbers[one.log])
        known = max((deleted_to(one, start, None) for one in readings), default=0)
        trims = {name: number for one in readings for name, number in known_trims(one, start).items()}
        found = StreamOffset(0, self._selection.key, known, trims=trims)
        return self._initial(found.moved({one.log: one.position(numbers[one.log]) for one in readings}))

    def _initial(self, offset: StreamOffset) -> dict[str, Any]:
        return dataclasses.replace(self._signed(offset), is_initial=True).to_json()

    def _signed(self, offset: StreamOffset) -> StreamOffset:
        """Return the offset with two more fields: the id of the cluster, and the subscription of the stream."""
        return dataclasses.replace(offset, cluster=self._client().cluster.id, subscription=self._options.subscription)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        return default_limit(options.max_rows_per_trigger, options.max_bytes_per_trigger, options.min_rows_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        readings = Logs(self._client(), self._selection).read(now)
        self._target = {one.log: one.before_lost(one.cut) for one in readings}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch. It has whole transactions up to the cut, within the limits, and does not cross a
        seal. The end is never below the start. The call of an idle stream waits for a wake-up, for at most a tenth of a second.
        """
        given = self._checked_offset(start)
        if self._following is not None:
            self._following.rest()
        at = self._client().cluster.clock.monotonic()
        readings = self._unreported = self._newest()
        self._unplanned = at, readings
        offset = given.first_end()
        for one in readings:
            one.check_reached(offset.number(one.log))
        if self._cursors is not None:
            self._cursors.join(readings)
            if not self._cursors.check_added(readings, offset):
                self._reached = given
                return given.to_json()
        offset = self._without_gone_logs(offset, readings)
        _measure(readings)
        self._reached = offset
        ranges = self._unread_ranges(offset, readings)
        note_lag(self._client().cluster.figures, self._options, ranges)
        if not ranges:
            return offset.to_json()  # Spark would run an empty batch if the result did not equal the start
        if self._following is not None:
            self._following.news()
        if self._waits(ranges, at, limit):
            return offset.to_json()
        topics = [topic for one in readings for topic in one.topics]
        check_schema(self._client(), topics, self._columns, streaming=True, ignore_new=self._ignores_new())
        ends = limited(ranges, **self._limits(limit))
        moved = {one.log: one.reading.position(ends[one.log]) for one in ranges if ends[one.log] > one.start}
        waiting = self._options.min_rows_per_trigger is not None
        if waiting and any(True for one in ranges for _ in one.reading.weights(one.start, ends[one.log])):
            self._last_rows = at
        began = offset.began if given.is_initial else None
        self._reached = dataclasses.replace(self._with_acks_and_trims(offset, readings, ranges), began=began).moved(moved)
        return self._reached.to_json()

    def _waits(self, ranges: Sequence[LogRange], at: float, limit: ReadLimit) -> bool:
        """Return whether the next micro-batch waits for more rows (`minOffsetsPerTrigger`). `Trigger.AvailableNow` and
        `Trigger.Once` read what there is, since no later trigger would read the rest.
        """
        options = self._options
        if options.min_rows_per_trigger is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        unread = (weight for one in ranges for weight in one.reading.weights(one.start, one.end))
        waited = None if self._last_rows is None else at - self._last_rows
        return waits(unread, min_rows=options.min_rows_per_trigger, waited=waited, patience=options.max_trigger_delay)

    def _without_gone_logs(self, offset: StreamOffset, readings: Sequence[Reading]) -> StreamOffset:
        """Return the offset with positions only in logs that are read now. Raises DataLoss if a log with unread rows is gone."""
        offset = offset.as_segments(_migrated(readings, offset))
        fail = self._options.fail_on_data_loss
        gone = Logs(self._client(), self._selection).gone(offset.positions, readings, fail=fail)
        return dataclasses.replace(offset.without(gone), read=self._selection.key)

    def _unread_ranges(self, offset: StreamOffset, readings: Sequence[Reading]) -> list[LogRange]:
        """Return a range of each log that has changed after the offset."""
        found = []
        for one in readings:
            begin = offset.number(one.log)
            end = one.last_change(begin)
            if self._target is not None:
                end = min(end, self._target.get(one.log, 0))
            if end > begin:
                found.append(LogRange(one, begin, end))
        if any(one.reading.successor is not None for one in found):
            return [one for one in found if one.log != LOG]  # a migrated topic is read to its end before its successor
        return found

    def _limits(self, limit: ReadLimit) -> dict[str, int | None]:
        if isinstance(limit, ReadAllAvailable):
            return {"max_rows": None, "max_bytes": None}
        return {"max_rows": self._options.max_rows_per_trigger, "max_bytes": self._options.max_bytes_per_trigger}

    def _with_acks_and_trims(self, offset: StreamOffset, readings: Sequence[Reading], ranges: Sequence[LogRange]) -> StreamOffset:
        """Return the offset with two fields for the next batch: the numbers up to which rows are acknowledged, and the trims of
        each log that the stream reads for the first time.
        """
        cursors = self._cursors
        acked_to = acked_when_planned(self._client(), offset) if cursors is None else cursors.acked_now(readings, offset)
        after = dataclasses.replace(offset, acked_to=acked_to).after(offset.log, _migrated(readings, offset))
        trims = dict(after.trims)
        for one in ranges:
            if one.log not in offset.numbers():
                trims |= known_trims(one.reading, Earliest())
        return self._signed(dataclasses.replace(after, trims=trims))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offset for the query's progress. The result equals the end of the last batch if the stream has read
        everything. Spark calls this method right after `latestOffset`, so the first call reports the readings of that one.
        """
        reached, readings = self._reached, self._unreported or self._newest()
        self._unreported = None
        if self._cursors is not None:
            self._cursors.join(readings)
        lasts = {one.log: one.last_change(reached.number(one.log)) for one in readings}
        places = {one.log: one.position(lasts[one.log]) for one in readings if lasts[one.log] > reached.number(one.log)}
        newest = dataclasses.replace(reached, read=self._selection.key).moved(places)
        if self._cursors is None:
            return newest.to_json()
        left = self._cursors.lag(readings, reached)
        return newest.to_json() | ({"lag": dataclasses.asdict(left)} if left.rows else {})

    @traced("plan")
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks for the range from `start` to `end`, when it is first planned or in a replay. Every plan of a range has
        the same rows. Raises OffsetOutOfRange or DataLoss if rows are missing.

        A replay reads the topics that the end of the batch names. Topics that were added since then start at the end of this batch.
        Spark gives a new initial offset as `start` at each plan of the first batch. This offset may have changed since the first
        plan, so the batch starts at the initial offset that its end records.
        """
        to = self._checked_offset(end)
        offset = to.start_of_batch(self._checked_offset(start))
        starts, ends = offset.numbers(), to.numbers()
        if not any(number > starts.get(log, 0) for log, number in ends.items()):
            # An older version of txnsegment planned this first batch. The end of the batch records no start, and the end does not
            # lie above the new initial offset.
            return []
        client, fail = self._client(), self._options.fail_on_data_loss
        planned = planned_selection(end, self._selection)
        logs = Logs(client, planned)
        readings = self._just_read(planned, ends) or logs.to(starts, ends, fail=fail)
        offset = offset.as_segments(_migrated(readings, offset))
        done = offset.done()
        ranges = [LogRange(one, starts.get(one.log, 0), ends[one.log], done) for one in readings]
        if fail:
            # If an older version of txnsegment planned the first batch, `offset` is a new initial offset. Only the end of the batch
            # shows which deletions were known when it was planned.
            known = min(offset.deleted_to, max(to.log, to.deleted_to))
            for one in ranges:
                check_deletions(one, known, to.trims)
                check_trims(one, to.trims)
        left_out = dict(done)
        for reading in readings:
            for name, rows in hidden(reading, to.trims, fail_on_data_loss=fail or self._options.subscription is not None).items():
                left_out[name] = union(left_out.get(name, NONE), rows)
        topics = logs.topics(readings)
        if planned.key == self._selection.key:
            check_schema(client, topics, self._columns, streaming=True, ignore_new=self._ignores_new())
        else:
            check_replay(client, topics, self._columns)
        found = tasks([dataclasses.replace(one, done=left_out) for one in ranges], self._options, self._columns)
        note_planned(client.cluster.figures, found)
        return found

    def _just_read(self, planned: Selection, ends: Mapping[str, int]) -> tuple[Reading, ...] | None:
        """Return the readings of the `latestOffset` right before this plan, if they reach the given ends. So the plan of a new
        batch reads no log again. A batch of persistent topics, and a replay, are planned from new readings.
        """
        unplanned, self._unplanned = self._unplanned, None
        if unplanned is None or planned.key != self._selection.key or ends.keys() != {LOG}:
            return None
        at, readings = unplanned
        if self._client().cluster.clock.monotonic() - at > MOST_SECONDS or [one.log for one in readings] != [LOG]:
            return None
        return readings if readings[0].cut >= ends[LOG] else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return TaskReader().read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the rows of the batch that ends at `end`, if the stream has a subscription. Spark's checkpoint decides where
        the stream continues, and the cursors only follow the checkpoint. Idempotent.

        Raises AckConflict if a transaction claims rows of this batch, or if the subscription was moved back, or deleted and created
        again. Raises SubscriptionNotFound if it was deleted.
        """
        if self._cursors is not None:
            self._cursors.commit(offset_of(end), self._newest())

    def wait(self, seconds: float) -> None:
        """Wait until a commit may have brought new rows, at most `seconds`."""
        if self._following is not None:
            self._following.wait(seconds)

    def stop(self) -> None:
        """Stop tailing. The client stays open, because all queries of the process share it."""
        if self._following is not None:
            self._following.close()
        self._client().cluster.figures.unread(*named(self._options))

    def _checked_offset(self, found: dict[str, Any]) -> StreamOffset:
        """Return an offset of Spark as an object. Raises an error if the offset belongs to another cluster or to other topics."""
        offset = offset_of(found)
        self._client().cluster.check_is_mine(offset.cluster)
        same_topics(offset, self._selection, self._options.topics_changed)
        return offset

    def _ignores_new(self) -> bool:
        return self._columns.pinned or self._options.schema_change == "ignoreNewColumns"


def _measure(readings: Sequence[Reading]) -> None:
    for reading in readings:
        for topic in reading.topics:
            metrics.READ_LAG.labels(topic=str(topic.name)).set(reading.end_of_log - reading.cut)


def _migrated(readings: Sequence[Reading], offset: StreamOffset) -> dict[str, int]:
    """Return the migrated persistent topics that are read as segments of successors. The number of each topic is the highest
    possible id of its ledgers at or below the offset.
    """
    return {name: ledger for one in readings for name, ledger in one.migrated(offset.number(one.log)).items()}
