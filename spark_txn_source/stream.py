"""The stream reader that Spark sees. One object in one long-lived process serves a query: the live log stays in its memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

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

from metadata import metrics, transitions
from metadata.acks import up_to
from metadata.backlog import Lag, first_pending, lag, measure, total
from metadata.client import Client, shared_client
from metadata.errors import SubscriptionExists
from metadata.row_ranges import before, end_of, minus, texts, union
from metadata.transaction_buffer import Reading
from spark_txn_source.following import Following
from spark_txn_source.offsets import StreamOffset, offset_of, planned_selection, same_topics
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import (
    acknowledged,
    check_cursors,
    check_deletions,
    check_replay,
    check_schema,
    check_trims,
    deleted_to,
    known_trims,
    start_number,
    tasks,
    within_log,
)
from spark_txn_source.selection import Earliest, Pattern
from spark_txn_source.tasks import read_task
from spark_txn_source.topics import columns_wanted, selected


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One `spark.readStream.format("txnsegment").load(...)`: offsets are numbers of the log, micro-batches whole transactions."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = ReadOptions.parse(options, streaming=True)
        self._selection = selected(self._options.selection)
        client = self._client()
        self._columns = columns_wanted(client, self._options, schema)
        self._target: int | None = None
        self._reached = StreamOffset(0, self._options.selection.key)
        self._following: Following | None = None
        self._joined: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles the reader to its tasks, which read files and follow nothing."""
        return self.__dict__ | {"_following": None}

    def follow(self) -> Following:
        """What this query knows of its topics; made when first asked for, since tasks never ask."""
        if self._following is None:
            self._following = Following(self._client(), self._selection)
        return self._following

    def _client(self) -> Client:
        return shared_client(self._options.service_url.text)

    def initialOffset(self) -> dict[str, Any]:
        reading = self._client().buffer.read(self._selection)
        if self._options.subscription is not None:
            return self._at_cursor(reading, self._options.subscription).to_json()
        number = start_number(reading, self._options.start)
        within_log(number, reading)
        known = deleted_to(reading, self._options.start, self._options.end)
        trims = known_trims(reading, self._options.start)
        return StreamOffset(number, self._options.selection.key, known, trims=trims).to_json()

    def _at_cursor(self, reading: Reading, subscription: str) -> StreamOffset:
        """Before the first row that is not acknowledged; with what is acknowledged beyond it."""
        self._join(reading, subscription)
        done = acknowledged(self._client(), reading, subscription)
        number = first_pending(reading, done, reading.cut)
        beyond = {segment: minus(rows, before(end_of(number))) for segment, rows in done.items()}
        acked = tuple((segment, tuple(texts(rows))) for segment, rows in sorted(beyond.items()) if rows)
        if self._options.fail_on_data_loss:
            check_cursors(reading, done, subscription)
        known = deleted_to(reading, Earliest(), self._options.end)
        trims = known_trims(reading, self._options.start, cursors=True)
        return StreamOffset(number, self._options.selection.key, known, acked, trims)

    def _join(self, reading: Reading, subscription: str) -> None:
        """Of a pattern: topics that this query meets for the first time get the subscription, at their first row."""
        names = {str(topic.name): topic.name for topic in reading.topics}
        new = names.keys() - self._joined
        self._joined |= new
        if isinstance(self._options.selection, Pattern):
            for name in sorted(new):
                with suppress(SubscriptionExists):  # another query beside us has just made it
                    self._client().subscriptions.create(names[name], subscription, at=0)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._client().buffer.read(self._selection).cut

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch: whole transactions up to cut, limits and next seal; never below the start."""
        offset = self._start(start)
        begin = offset.log
        reading = self.follow().read()
        within_log(begin, reading)
        self._measure(reading)
        if self._options.subscription is not None:
            self._join(reading, self._options.subscription)
        self._reached = self._given(offset, begin)
        end = max(begin, reading.last_change(begin))
        if self._target is not None:
            end = max(begin, min(end, self._target))
        if end == begin:
            return self._reached.to_json()
        check_schema(self._client(), reading, self._columns, streaming=True, ignore_new=self._ignores_new())
        unlimited = isinstance(limit, ReadAllAvailable)
        number = transitions.limited(
            reading.weights(begin, end),
            end,
            max_rows=None if unlimited else self._options.max_rows_per_trigger,
            max_bytes=None if unlimited else self._options.max_bytes_per_trigger,
            seals=reading.seals(begin, end),
        )
        self._reached = self._given(offset.after(begin), number)
        return self._reached.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the progress shows as the newest there is: equal to the end of the last batch once the stream has all of it."""
        reached, reading = self._reached, self.follow().read()
        newest = self._given(reached, max(reached.log, reading.last_change(reached.log)))
        if self._options.subscription is None:
            return newest.to_json()
        left = self._lag(reading, self._options.subscription)
        return newest.to_json() | ({"lag": dataclasses.asdict(left)} if left.rows else {})

    def _lag(self, reading: Reading, subscription: str) -> Lag:
        """What this query has still to get for its subscription: what it has read already counts as done, though the cursor follows
        only with the next batch."""
        done = acknowledged(self._client(), reading, subscription)
        read = before(end_of(self._reached.log))
        lags = {s.name: lag(reading, s, union(done[s.name], read), reading.cut) for s in reading.segments}
        for topic in reading.topics:
            measure(str(topic.name), subscription, total({s: lags[s] for s in topic.segments() if s in lags}))
        return total(lags)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a GIVEN range, the first time or as a replay: the same rows for ever. Raises OffsetOutOfRange or DataLoss rather
        than fewer.

        A replay reads the topics that the batch's end names: topics added since start where the stream stands, which is there.
        """
        offset = self._start(start)
        to = self._start(end)
        begin, last = offset.log, to.log
        if begin >= last:  # (above: somebody else has acknowledged all of the first batch before it was replayed)
            return []
        client = self._client()
        planned = planned_selection(end, self._options.selection)
        reading = client.buffer.read_to(selected(planned), last)
        if self._options.fail_on_data_loss:
            # Spark asks for the initial offset anew when it replays the first batch: only the end says what was known then.
            check_deletions(reading, begin, last, min(offset.deleted_to, max(last, to.deleted_to)))
            check_trims(reading, begin, last, to.trims, offset.done())
        if planned.key == self._options.selection.key:
            check_schema(client, reading, self._columns, streaming=True, ignore_new=self._ignores_new())
        else:
            check_replay(client, reading, self._columns)
        return tasks(reading, self._options, self._columns, begin, last, offset.done())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint keeps the progress; a subscription's cursors follow it. Idempotent. Raises AckConflict (a transaction
        of somebody else claims rows of this batch), SubscriptionNotFound (it was deleted).
        """
        subscription = self._options.subscription
        if subscription is not None:
            boundary = end_of(offset_of(end).log)
            segments = self.follow().read().segments
            self._client().coordinator.acks.advance([up_to(s.name, subscription, boundary) for s in segments])

    def stop(self) -> None:
        """The client is shared by the process's queries and stays."""
        if self._following is not None:
            self._following.close()

    def _start(self, found: dict[str, Any]) -> StreamOffset:
        offset = offset_of(found)
        same_topics(offset, self._options.selection, self._options.topics_changed)
        return offset

    def _given(self, offset: StreamOffset, number: int) -> StreamOffset:
        """At a number, with what a batch before it has to know."""
        return dataclasses.replace(offset, log=number, read=self._options.selection.key)

    def _ignores_new(self) -> bool:
        return self._columns.pinned or self._options.schema_change == "ignoreNewColumns"

    def _measure(self, reading: Reading) -> None:
        for topic in reading.topics:
            metrics.READ_LAG.labels(topic=str(topic.name)).set(reading.end_of_log - reading.cut)
