"""The stream reader that Spark sees. One object in one long-lived process serves a query: the live log stays in its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from metadata.client import Client, shared_client
from metadata.transaction_buffer import Reading
from spark_txn_source.following import Following
from spark_txn_source.offsets import StreamOffset, offset_of, planned_selection, same_topics
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import (
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
from spark_txn_source.tasks import read_task
from spark_txn_source.topics import columns_given, full_schema, selected, topics_now


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One `spark.readStream.format("txnsegment").load(...)`: offsets are numbers of the log, micro-batches whole transactions."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = ReadOptions.parse(options, streaming=True)
        self._selection = selected(self._options.selection)
        client = self._client()
        self._columns = columns_given(full_schema(client, topics_now(client, self._options.selection)), self._options, schema)
        self._target: int | None = None
        self._reached = StreamOffset(0, self._options.selection.key)
        self._following: Following | None = None

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
        number = start_number(reading, self._options.start)
        within_log(number, reading)
        known = deleted_to(reading, self._options.start, self._options.end)
        return self._at(number, known, known_trims(reading, self._options.start)).to_json()

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
        self._reached = self._at(begin, offset.deleted_to, offset.trims)
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
        self._reached = self._at(number, offset.deleted_to, offset.still())
        return self._reached.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the progress shows as the newest there is: equal to the end of the last batch once the stream has all of it."""
        reached = self._reached
        return self._at(
            max(reached.log, self.follow().read().last_change(reached.log)), reached.deleted_to, reached.trims
        ).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a GIVEN range, the first time or as a replay: the same rows for ever. Raises OffsetOutOfRange or DataLoss rather
        than fewer.

        A replay reads the topics that the batch's end names: topics added since start where the stream stands, which is there.
        """
        offset = self._start(start)
        to = self._start(end)
        begin, last = offset.log, to.log
        if begin == last:
            return []
        client = self._client()
        planned = planned_selection(end, self._options.selection)
        reading = client.buffer.read_to(selected(planned), last)
        if self._options.fail_on_data_loss:
            # Spark asks for the initial offset anew when it replays the first batch: only the end says what was known then.
            check_deletions(reading, begin, last, min(offset.deleted_to, max(last, to.deleted_to)))
            check_trims(reading, begin, last, to.trims)
        if planned.key == self._options.selection.key:
            check_schema(client, reading, self._columns, streaming=True, ignore_new=self._ignores_new())
        else:
            check_replay(client, reading, self._columns)
        return tasks(reading, self._options, self._columns, begin, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint keeps the progress; there is nothing to move here without a subscription."""

    def stop(self) -> None:
        """The client is shared by the process's queries and stays."""
        if self._following is not None:
            self._following.close()

    def _start(self, found: dict[str, Any]) -> StreamOffset:
        offset = offset_of(found)
        same_topics(offset, self._options.selection, self._options.topics_changed)
        return offset

    def _at(self, number: int, known: int, trims: Mapping[str, int]) -> StreamOffset:
        return StreamOffset(number, self._options.selection.key, known, trims)

    def _ignores_new(self) -> bool:
        return self._options.schema_change == "ignoreNewColumns"

    def _measure(self, reading: Reading) -> None:
        for topic in reading.topics:
            metrics.READ_LAG.labels(topic=str(topic.name)).set(reading.end_of_log - reading.cut)
