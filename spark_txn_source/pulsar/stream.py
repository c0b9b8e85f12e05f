"""The stream reader of Pulsar topics. Spark keeps one reader object in one process for the whole life of a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from metadata.common.errors import OptionError
from metadata.common.workers import tells_errors
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import ONCE_PATIENCE_SECONDS, Cut
from pulsar_protocol.layout import EARLIEST, Layout, Position, Segment
from pulsar_protocol.owned_names import has_ack_log
from pulsar_protocol.rest import admin_url
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.subscription import Subscription, all_but
from pulsar_protocol.succession import ended_at, families, readable, unread
from pulsar_protocol.whole_cuts import WholeCuts
from spark_txn_source.pulsar.columns import Part, part_of
from spark_txn_source.pulsar.dividing import divide
from spark_txn_source.pulsar.holding import Holding
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.option_table import At
from spark_txn_source.pulsar.places import Places
from spark_txn_source.pulsar.planning import FirstEntry, limited, moved, without_gone
from spark_txn_source.pulsar.tasks import OneAfterAnother, PulsarTask, read_task, tasks
from spark_txn_source.pulsar.topics import layout, shared_client
from spark_txn_source.pulsar.watermarks import BrokerRecords, RecordedCuts
from spark_txn_source.read_limits import default_limit


@tells_errors
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one `spark.readStream.format("txnsegment").load(...)` from Pulsar. A micro-batch ends at or below the cut of
    each segment, so it has decided entries only. A transaction of txnsegment's writers is in a micro-batch as a whole or not at
    all. A segment is read after its parents.
    """

    def __init__(self, options: dict[str, str], schema: StructType, part: Part | None = None) -> None:
        """`part`: the options and columns of this topic, if it is one of several topics that are read."""
        self._options, self._columns = part or part_of(options, schema, streaming=True)
        self._cuts: dict[str, Cut] = {}
        """The newest known cut of each segment."""
        self._target: Mapping[str, Cut] | None = None
        """The cuts up to which `Trigger.AvailableNow` reads. None for other triggers."""
        self._newest: dict[str, Any] | None = None
        self._whole_cuts: WholeCuts | None = None
        self._acknowledged: dict[str, Position] = {}
        self.ended: frozenset[str] = frozenset()
        """The segments that had ended at the start of the last plan. If nothing was to read, its end does not name them."""
        self._ended_at: dict[str, Position] = {}
        """The positions at which the segments of `ended` had ended. A broker may delete such a segment before a plan has rows."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what only the planning needs. Spark pickles the reader for its tasks."""
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_holding", "_recorded")}
        return kept | {"_whole_cuts": None, "_cuts": {}, "_target": None}

    def _whole(self, read: Mapping[str, Position]) -> WholeCuts:
        """Return the object that finds cuts which split no transaction. It keeps the records that it has read of the log of
        txnsegment's writers. `read`: see `SentLog`; only the first call uses it.
        """
        if self._whole_cuts is None:
            self._whole_cuts = WholeCuts(SentLog(self._client(), self._options.topic, read), self._layout)
        return self._whole_cuts

    @cached_property
    def _holding(self) -> Holding:
        """The subscription that keeps unread entries from retention."""
        return Holding(self._options.subscription, self._subscription)

    def _subscription(self, name: str) -> Subscription:
        """Return the subscription of a name. Raises OptionError if its rows are acknowledged by other means. Its cursors
        follow those. If the stream moved the cursors, the broker could delete rows that are not acknowledged.
        """
        client, topic = self._client(), self._options.topic
        if has_ack_log(client, topic, name):
            raise OptionError(
                f"The option subscription cannot be {name!r} for {topic}: cluster.consumer, or txn.read and txn.acknowledge_rows, "
                "acknowledge the rows of this subscription.",
                advice="Give the stream another name, or subscription=auto. txn.acknowledge_rows in foreachBatch needs no option "
                "subscription.",
            )
        return Subscription(client, topic, name, admin_url())

    @cached_property
    def _recorded(self) -> RecordedCuts | None:
        """Return the object that finds cuts by the brokers' records; None if the option `metadataUrl` is not given."""
        url = self._options.metadata_url
        return None if url is None else RecordedCuts(BrokerRecords(url.hosts, url.path))

    def _client(self) -> PulsarClient:
        return shared_client(self._options.url)

    def _places(self) -> Places:
        return Places(self._client(), self._options.topic, self._recorded)

    def _layout(self) -> Layout:
        return layout(self._client(), self._options.topic)

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new checkpoint. Spark calls this method for each plan of the first batch, until the batch is done.
        The end of the first batch records the initial offset from which the batch was planned.
        """
        start, found = self._options.start, self._layout()
        segments: dict[str, Position] = {}
        ended: frozenset[str] = frozenset()
        sent: dict[str, Position] | None = None
        if start != "earliest":
            # `_whole` is not used here. A query that is restarted in its first batch continues at an older offset, and then
            # `_whole` must have the older records that this offset needs.
            whole = WholeCuts(SentLog(self._client(), self._options.topic), self._layout)
            if start == "latest":
                whole.sent.skip_settled()
            cuts = self._cuts_of(found.segments.values(), {})
            segments = self._places().starts(start, cuts)
            if not isinstance(start, At):
                segments = whole.starts(found, segments)
                sent = whole.sent.needed_after(segments)
            ended = ended_at(found, frozenset(), segments, cuts)
        offset = PulsarOffset(self._options.topic, found.epoch, segments, ended, is_initial=True, sent=sent)
        return self._holding.named(offset).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        places = Places(self._client(), self._options.topic, self._recorded, ONCE_PATIENCE_SECONDS)
        self._target = places.cuts(self._layout().segments.values())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch. The end equals the start if there is nothing to read. Raises DataLoss."""
        options, found = self._options, self._layout()
        given = PulsarOffset.of_json(start)
        given.check_topic(options.topic)
        given = replace(given, ended=given.ended | self._known_ended(given))
        offset = self._holding.named(without_gone(given, found, fail_on_data_loss=options.fail_on_data_loss))
        if not given.is_initial or not self._holding.is_auto:
            self._holding.hold(given, [one.name for one in unread(found, offset.ended)])
        listed = [one for one in unread(found, offset.ended) if self._target is None or one.name in self._target]
        if self._target is None:
            cuts = self._cuts_of(listed, offset.segments)
            self._places().check_reached(offset.segments, cuts)
        else:
            cuts = {one.name: self._target[one.name] for one in listed}
        whole = self._whole(offset.sent or {})
        whole.sent.forget_to(offset.segments, offset.ended)
        known = whole.sent.incomplete
        newest = whole.newest(found, offset.segments, offset.ended, cuts)
        if whole.sent.incomplete and not known:
            # Records are gone whose transactions may lie above the cuts, which were found before. Later cuts have all of them.
            if self._target is not None:
                self.prepareForTriggerAvailableNow()
            return self.latestOffset(start, limit)
        self.ended = newest.ended
        at = {one.name: offset.segments.get(one.name, EARLIEST) for one in found.segments.values()}
        self._ended_at |= {name: at[name] for name in newest.ended}
        ends = {one.name: newest.positions[one.name] for one in readable(found, newest.ended)}
        ends = {name: end for name, end in ends.items() if end > at[name]}
        if not ends:
            self._newest = start
            return start
        if options.fail_on_data_loss:
            self._places().check_kept({name: at[name] for name in ends})
        self._newest = self._moved(found, offset, newest.positions, newest.ended, cuts).to_json()
        if not isinstance(limit, ReadAllAvailable) and (options.max_rows_per_trigger or options.max_bytes_per_trigger):
            firsts = {name: FirstEntry(*one) for name, one in self._places().first_after({name: at[name] for name in ends}).items()}
            ends = limited(ends, firsts, options.max_rows_per_trigger, options.max_bytes_per_trigger)
        least = {name: place for name, place in {**at, **ends}.items() if name in newest.positions}
        chosen = whole.limited(newest, least)
        sent = whole.sent.needed_after(at | chosen, newest.ended)
        return replace(self._moved(found, offset, chosen, newest.ended, cuts), sent=sent).to_json()

    def _known_ended(self, offset: PulsarOffset) -> frozenset[str]:
        """Return the segments of the offset that an earlier plan has found to have ended at the same position."""
        return frozenset(name for name, place in offset.segments.items() if self._ended_at.get(name) == place)

    def _moved(
        self, found: Layout, offset: PulsarOffset, ends: Mapping[str, Position], ended: frozenset[str], cuts: Mapping[str, Cut]
    ) -> PulsarOffset:
        """Return the offset, moved on to the positions `ends`. A position that is not above the offset's position in the same
        segment is ignored. `ended`: the segments that are known to have been read to their end.
        """
        further = {name: end for name, end in ends.items() if end > offset.segments.get(name, EARLIEST)}
        return moved(offset, further, ended_at(found, ended, {**offset.segments, **further}, cuts))

    def _cuts_of(self, segments: Iterable[Segment], positions: Mapping[str, Position]) -> dict[str, Cut]:
        """Return the cuts of segments. The search in a segment begins at its newest known cut, or at its position in `positions` if
        that is higher. A cut that is known to be final is not searched again.
        """
        floors, listed, final = dict(positions), [], {}
        for one in segments:
            known = self._cuts.get(one.name)
            if known is not None and known.is_final:
                final[one.name] = known
                continue
            listed.append(one)
            if known is not None:
                floors[one.name] = max(floors.get(one.name, EARLIEST), known.position)
        found = self._places().cuts(listed, floors)
        self._cuts |= found
        return final | found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the offset that the last micro-batch could have reached without limits, for the query's progress."""
        return self._newest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks for the range from `start` to `end`, when it is first planned or in a replay. Every plan of a range has
        the same rows. Raises DataLoss if retention has removed some of them.
        """
        options = self._options
        alone, together = self.undivided(start, end)
        return [*together, *divide(self._client(), alone, options.min_partitions, options.max_partition_bytes)]

    def hold(self, end: dict[str, Any]) -> None:
        """Let the subscription hold the entries that are unread at `end`, an offset that Spark has written into the checkpoint."""
        offset = PulsarOffset.of_json(end)
        if not self._holding.holds(offset):
            self._holding.hold(offset, [one.name for one in unread(self._layout(), offset.ended)])

    def undivided(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[list[PulsarTask], list[OneAfterAnother]]:
        """Return the tasks for the range in two lists, before they are divided (see `_grouped`). Raises DataLoss."""
        options = self._options
        begin, to = PulsarOffset.of_json(start), PulsarOffset.of_json(end)
        to.check_topic(options.topic)
        self.hold(end)
        starts = dict(begin.segments if to.began is None or not begin.is_initial else to.began)
        ends = dict(to.segments)
        found = tasks(options.url, options.topic, starts, ends, self._columns, fail_on_loss=options.fail_on_data_loss)
        if options.fail_on_data_loss:
            self._places().check_kept({one.segment: one.after for one in found})
        return self._grouped(found)

    def _grouped(self, found: Sequence[PulsarTask]) -> tuple[list[PulsarTask], list[OneAfterAnother]]:
        """Return two lists of tasks. The first list has a task for each segment that has no ancestor or descendant in this batch. A
        task of the second list reads several segments that are ancestors and descendants of each other, so that rows of a key stay
        in order.
        """
        if len(found) < 2:
            return list(found), []
        by_name = {one.segment: one for one in found}
        groups = [[by_name[name] for name in family] for family in families(self._layout(), by_name)]
        return [one for one, *more in groups if not more], [OneAfterAnother(group) for group in groups if len(group) > 1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the entries of the batch that ends at `end`, if the stream has a subscription. Spark's checkpoint decides
        where the stream continues, and the cursors only follow the checkpoint. Idempotent.
        """
        if self._options.subscription is None:
            return
        offset = PulsarOffset.of_json(end)
        names = {one.name for one in self._layout().segments.values()}
        places = {name: self._done(name, place, offset) for name, place in offset.segments.items() if name in names}
        moved_on = {name: place for name, place in places.items() if place > self._acknowledged.get(name, EARLIEST)}
        self._holding.acknowledge(offset, moved_on)
        self._acknowledged |= moved_on

    def _done(self, name: str, position: Position, offset: PulsarOffset) -> Position:
        """Return the last entry of a segment that may be acknowledged. If the segment was read to its end, this is the last entry
        of the segment, which may belong to an aborted transaction. Otherwise it is the one before the last entry that was read: so
        the broker keeps the ledger of the last one, and the segment, while the stream may go on there (`Places.check_kept`).
        """
        if name not in offset.ended:
            return all_but(position)
        known = self._cuts.get(name)
        return position if known is None else max(position, known.last)

    def stop(self) -> None:
        """Close the consumers of the subscription, and the connection to ZooKeeper. The client stays open, because all queries of
        the process share it.
        """
        self._holding.close()
        if (recorded := self.__dict__.get("_recorded")) is not None:
            recorded.close()
