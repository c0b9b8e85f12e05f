"""The stream reader of Pulsar topics. Spark keeps one reader object in one process for the whole life of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Cut
from pulsar_protocol.layout import EARLIEST, Layout, Position, Segment
from pulsar_protocol.sent_log import SentLog
from pulsar_protocol.subscription import Subscription
from spark_txn_source.pulsar.columns import columns_wanted
from spark_txn_source.pulsar.dividing import divide
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.places import Places, whole
from spark_txn_source.pulsar.planning import FirstEntry, limited, moved, read_to_end, readable, without_gone
from spark_txn_source.pulsar.tasks import read_task, tasks
from spark_txn_source.pulsar.topics import layout, shared_client


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one `spark.readStream.format("txnsegment").load(...)` from Pulsar. A micro-batch ends at or below the cut of
    each segment, so it has decided entries only. It has each transaction of txnsegment's writers as a whole. A segment is read
    after its parents.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = PulsarReadOptions.parse(options, streaming=True)
        self._columns = columns_wanted(self._client(), self._options, schema)
        self._cuts: dict[str, Cut] = {}
        """The newest known cut of each segment."""
        self._target: Mapping[str, Cut] | None = None
        """The cuts up to which `Trigger.AvailableNow` reads. None for other triggers."""
        self._newest: dict[str, Any] | None = None
        self._sent_log: SentLog | None = None
        self._acknowledged: dict[str, Position] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what only the planning needs. Spark pickles the reader for its tasks."""
        kept = {name: value for name, value in self.__dict__.items() if name != "_subscription"}
        return kept | {"_sent_log": None, "_cuts": {}, "_target": None}

    @property
    def _sent(self) -> SentLog:
        if self._sent_log is None:
            self._sent_log = SentLog(self._client(), self._options.topic)
        return self._sent_log

    @cached_property
    def _subscription(self) -> Subscription | None:
        """The subscription that keeps unread entries from retention, or None if the option is not given."""
        name = self._options.subscription
        return None if name is None else Subscription(self._client(), self._options.topic, name)

    def _client(self) -> PulsarClient:
        return shared_client(self._options.url)

    def _places(self) -> Places:
        return Places(self._client(), self._options.topic)

    def _layout(self) -> Layout:
        return layout(self._client(), self._options.topic)

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new checkpoint. Spark calls this method for each plan of the first batch, until the batch is done.
        The end of the first batch records the result from which the batch was planned.
        """
        start, found = self._options.start, self._layout()
        segments: dict[str, Position] = {}
        ended: frozenset[str] = frozenset()
        if start != "earliest":
            cuts = self._cuts_of(found.segments.values(), {})
            segments = self._places().starts(start, whole(self._sent, cuts))
            by_name = {one.name: one for one in found.segments.values()}
            ended = frozenset(name for name, place in segments.items() if read_to_end(by_name[name], place, cuts[name]))
        return PulsarOffset(self._options.topic, found.epoch, segments, ended, is_initial=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._places().cuts(self._layout().segments.values())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch. It equals the start if there is nothing to read. Raises DataLoss."""
        options, found = self._options, self._layout()
        given = PulsarOffset.of_json(start)
        given.check_topic(options.topic)
        offset = without_gone(given, found, fail_on_data_loss=options.fail_on_data_loss)
        self._sent.forget_to(offset.segments)
        if self._subscription is not None:
            self._subscription.hold([one.name for one in found.segments.values() if one.name not in offset.ended])
        ends, ended = self._unread(found, offset)
        if not ends:
            self._newest = start
            return start
        if options.fail_on_data_loss:
            self._places().check_kept({name: offset.segments.get(name, EARLIEST) for name in ends})
        newest = moved(offset, ends, ended)
        self._newest = newest.to_json()
        if isinstance(limit, ReadAllAvailable) or (options.max_rows_per_trigger, options.max_bytes_per_trigger) == (None, None):
            chosen = ends
        else:
            starts = {name: offset.segments.get(name, EARLIEST) for name in ends}
            firsts = {name: FirstEntry(*one) for name, one in self._places().first_after(starts).items()}
            some = limited(ends, firsts, options.max_rows_per_trigger, options.max_bytes_per_trigger)
            chosen = self._sent.limited(some, ends)
        complete = {one.name for one in found.segments.values() if one.name in chosen and self._ends(one, chosen[one.name])}
        return moved(offset, chosen, ended | complete).to_json()

    def _unread(self, found: Layout, offset: PulsarOffset) -> tuple[dict[str, Position], frozenset[str]]:
        """Return the end of each segment that has unread entries and may be read now, and the segments that have ended. A segment
        that turns out to have ended lets its children be read at once. The ends split no transaction of txnsegment's writers.
        Segments that may not be read yet count with the position up to which they were read.
        """
        ended = offset.ended
        while True:
            segments = [one for one in readable(found, ended) if self._target is None or one.name in self._target]
            cuts = self._target if self._target is not None else self._cuts_of(segments, offset.segments)
            at = {one.name: offset.segments.get(one.name, EARLIEST) for one in segments}
            more = {one.name for one in segments if read_to_end(one, at[one.name], cuts[one.name])}
            if not more:
                positions = {one.name: offset.segments.get(one.name, EARLIEST) for one in found.segments.values()}
                ends = self._sent.whole(positions | {name: cuts[name].position for name in at})
                return {name: ends[name] for name, place in at.items() if ends[name] > place}, ended
            ended |= more

    def _cuts_of(self, segments: Any, positions: Mapping[str, Position]) -> dict[str, Cut]:
        """Return the cuts of segments. Searches begin at what is known already."""
        listed: list[Segment] = list(segments)
        floors = dict(positions)
        for one in listed:
            if one.name in self._cuts:
                floors[one.name] = max(floors.get(one.name, EARLIEST), self._cuts[one.name].position)
        found = self._places().cuts(listed, floors)
        self._cuts |= found
        return found

    def _ends(self, segment: Segment, end: Position) -> bool:
        cuts = self._cuts if self._target is None else self._target
        return read_to_end(segment, end, cuts[segment.name])

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the offset that the last plan could have reached without limits, for the query's progress."""
        return self._newest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks for the range from `start` to `end`, when it is first planned or in a replay. Every plan of a range has
        the same rows. Raises DataLoss if retention has removed some of them.
        """
        options = self._options
        begin, to = PulsarOffset.of_json(start), PulsarOffset.of_json(end)
        to.check_topic(options.topic)
        starts = dict(begin.segments if to.began is None or not begin.is_initial else to.began)
        ends = dict(to.segments)
        found = tasks(options.url, options.topic, starts, ends, self._columns, fail_on_loss=options.fail_on_data_loss)
        if options.fail_on_data_loss:
            self._places().check_kept({one.segment: one.after for one in found})
        return divide(self._client(), found, options.min_partitions, options.max_partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the entries of the batch that ends at `end`, if the stream has a subscription. The progress of the stream is
        in Spark's checkpoint, and the cursors follow it. Idempotent.
        """
        if self._subscription is None:
            return
        offset, names = PulsarOffset.of_json(end), {one.name for one in self._layout().segments.values()}
        places = {name: self._done(name, place, offset) for name, place in offset.segments.items() if name in names}
        moved_on = {name: place for name, place in places.items() if place > self._acknowledged.get(name, EARLIEST)}
        self._subscription.acknowledge(moved_on)
        self._acknowledged |= moved_on

    def _done(self, name: str, position: Position, offset: PulsarOffset) -> Position:
        """Return the last entry that is done. In a segment that has ended, these are also the entries of aborted transactions."""
        known = self._cuts.get(name)
        return max(position, known.last) if known is not None and name in offset.ended else position

    def stop(self) -> None:
        """End the consumers of the subscription. The client stays open, because all queries of the process share it."""
        if self._subscription is not None:
            self._subscription.close()
