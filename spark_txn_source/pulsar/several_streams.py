"""The stream reader of several Pulsar topics. It makes a stream reader for each topic, as for a stream of this topic alone. Each
topic has an offset of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from metadata.common.errors import DataLoss
from metadata.common.workers import tells_errors
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import TopicMissing
from spark_txn_source.pulsar.columns import Part, parts_of
from spark_txn_source.pulsar.dividing import divide
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.selection import TopicsPattern, topics_now
from spark_txn_source.pulsar.several import in_parallel, of_topic, parts
from spark_txn_source.pulsar.several_offsets import SeveralOffset, read_in
from spark_txn_source.pulsar.stream import StreamReader
from spark_txn_source.pulsar.tasks import OneAfterAnother, PulsarTask, read_task
from spark_txn_source.pulsar.topics import shared_client
from spark_txn_source.read_limits import default_limit


@tells_errors
class SeveralStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream from several topics. Each topic gets an equal share of the limits of a micro-batch."""

    def __init__(self, options: PulsarReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        client = self._client()
        columns = parts_of(client, options, topics_now(client, options.selection), schema)
        self._readers = {topic: self._reader(part) for topic, part in parts(client, options, columns).items()}
        self._target: tuple[str, ...] | None = None
        """The topics that `Trigger.AvailableNow` reads. None for other triggers."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the readers of the topics, which only the planning needs. Spark pickles this object for its tasks."""
        return {**self.__dict__, "_readers": {}}

    def _client(self) -> PulsarClient:
        return shared_client(self._options.url)

    def _reader(self, part: Part) -> StreamReader:
        return StreamReader({}, self._schema, part)

    def _of(self, topic: str) -> StreamReader:
        """Return the reader of a topic. Make a reader for a topic that was added, and for a topic that only the checkpoint has."""
        if topic not in self._readers:
            options = self._options
            columns = parts_of(self._client(), options, [*self._readers, topic], self._schema)[topic]
            self._readers[topic] = self._reader(Part(of_topic(options, topic, len(self._readers) + 1), columns))
        return self._readers[topic]

    def _offset(self, topics: dict[str, dict[str, Any]]) -> SeveralOffset:
        selection = self._options.selection
        return SeveralOffset(topics, selection.regex if isinstance(selection, TopicsPattern) else None)

    def _topics(self, start: SeveralOffset) -> tuple[str, ...]:
        """Return the topics that are read now. Raises DataLoss, with `failOnDataLoss`, if a topic of the pattern was deleted."""
        selection = self._options.selection
        if isinstance(selection, tuple):
            return selection
        found = self._matching(selection) if self._target is None else self._target
        gone = sorted(name for name in start.topics if selection.compiled.fullmatch(name) and name not in found)
        if gone and self._options.fail_on_data_loss:
            raise DataLoss(
                f"{gone[0]} was deleted. It may have had rows that were not read.",
                advice="Start a new checkpoint, or set failOnDataLoss=false.",
            )
        return found

    def _matching(self, pattern: TopicsPattern) -> tuple[str, ...]:
        try:
            return topics_now(self._client(), pattern)
        except TopicMissing:
            return ()

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new checkpoint."""
        return self._offset(in_parallel(self._readers, lambda topic: self._readers[topic].initialOffset())).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = tuple(self._readers)
        in_parallel(self._readers, lambda topic: self._readers[topic].prepareForTriggerAvailableNow())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch. The end equals the start if there is nothing to read. Raises OptionError if the
        query reads other topics than its checkpoint, without `topicsChanged=continue`. Raises DataLoss if rows were removed before
        the stream read them.
        """
        offset = SeveralOffset.of_json(start)
        offset.check_selection(self._options.selection, self._options.topics_changed)
        topics = self._topics(offset)
        for gone in self._readers.keys() - {*topics}:
            self._readers.pop(gone).stop()
        readers = {topic: self._of(topic) for topic in topics}
        found = in_parallel(topics, lambda topic: readers[topic].latestOffset(offset.of(topic), limit))
        kept = {topic: end for topic, end in found.items() if topic in offset.topics or end != offset.of(topic)}
        if kept == offset.topics:
            return start
        return self._offset(kept).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the offset that the last micro-batch could have reached without limits, for the query's progress."""
        found = {topic: one.reportLatestOffset() for topic, one in self._readers.items()}
        known = {topic: offset for topic, offset in found.items() if offset is not None}
        return self._offset(known).to_json() if known else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks for the range from `start` to `end`, when it is first planned or in a replay. Raises DataLoss."""
        ends = SeveralOffset.of_json(end)
        ranges = read_in(SeveralOffset.of_json(start), ends)
        options, alone, together = self._options, list[PulsarTask](), list[OneAfterAnother]()
        for topic in sorted(ranges.keys() | (ends.topics.keys() & self._readers.keys())):
            try:
                self._of(topic).hold(ends.topics[topic])
                more_alone, more_together = self._of(topic).undivided(*ranges[topic]) if topic in ranges else ([], [])
            except TopicMissing:  # with failOnDataLoss=false the other topics are still read
                if options.fail_on_data_loss:
                    raise
                continue
            alone += more_alone
            together += more_together
        return [*together, *divide(self._client(), alone, options.min_partitions, options.max_partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the entries of the batch that ends at `end`, if the stream has a subscription. Idempotent."""
        topics = SeveralOffset.of_json(end).topics
        for topic, offset in topics.items():
            if topic in self._readers and not PulsarOffset.of_json(offset).is_initial:
                self._readers[topic].commit(offset)

    def stop(self) -> None:
        """Stop the readers of all topics."""
        for one in self._readers.values():
            one.stop()
