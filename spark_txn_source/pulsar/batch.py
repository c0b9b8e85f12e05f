"""The batch reader of Pulsar topics. It plans once, and reads each segment from the start of the read up to the segment's cut, or
up to the end that the options give. In the list of tasks the parents of a segment come before the segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from metadata.common.errors import DataLoss
from metadata.common.workers import tells_errors
from metadata.records.row_ranges import FIRST, NONE, Rows
from pulsar_protocol.cut import ONCE_PATIENCE_SECONDS, Cut
from pulsar_protocol.layout import EARLIEST, Layout, Position
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.succession import families
from pulsar_protocol.whole_cuts import WholeCuts
from spark_txn_source.pulsar.columns import Part, part_of
from spark_txn_source.pulsar.dividing import divide
from spark_txn_source.pulsar.option_table import At, Place
from spark_txn_source.pulsar.places import Places
from spark_txn_source.pulsar.tasks import PulsarTask, read_task, tasks
from spark_txn_source.pulsar.topics import layout, shared_client
from spark_txn_source.pulsar.watermarks import recorded_cuts


def ends_of(
    end: Place | int,
    places: Places,
    whole: WholeCuts,
    found: Layout,
    starts: Mapping[str, Position],
    ended: frozenset[str],
    cuts: Mapping[str, Cut],
) -> dict[str, Position]:
    """Return the end of a batch in each segment. `end`: the end that the options give. `starts`, `ended`, `cuts`: see
    `WholeCuts.newest`. Raises OffsetOutOfRange.
    """
    if isinstance(end, At):
        return places.ends(end, cuts)
    limited = places.until(end, cuts) if isinstance(end, int) else cuts
    return dict(whole.newest(found, starts, ended, limited).positions)


def _begins(hidden: Mapping[str, Rows], segment: str) -> Position:
    """Return the position before the ledger in which the rows of a segment begin that `txn.read` reads from its beginning. The
    positions before this ledger are among its `hidden` rows. EARLIEST: they are not.
    """
    first = next(iter(hidden.get(segment, NONE)), None)
    return EARLIEST if first is None or first[0] != FIRST else Position(first[1].ledger_id, -1)


@tells_errors
class BatchReader(DataSourceReader):
    """The reader of one `spark.read.format("txnsegment").load(...)` from Pulsar."""

    def __init__(self, options: dict[str, str], schema: StructType, part: Part | None = None) -> None:
        """`part`: the options and columns of this topic, if it is one of several topics that are read."""
        self._options, self._columns = part or part_of(options, schema, streaming=False)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        return divide(shared_client(options.url), self.undivided(), options.min_partitions, options.max_partition_bytes)

    def undivided(self) -> list[PulsarTask]:
        """Return one task for each segment that has rows to read."""
        options = self._options
        if options.acknowledged is not None:
            return self._given()
        client = shared_client(options.url)
        sent = SentLog(client, options.topic)
        if options.end == "latest" and not isinstance(options.start, int):
            sent.skip_settled()
        found = layout(client, options.topic)
        with recorded_cuts(options.metadata_url) as recorded:
            places = Places(client, options.topic, recorded, ONCE_PATIENCE_SECONDS)
            cuts = places.cuts(found.segments.values())
            if isinstance(options.end, At):
                cuts = places.raised(cuts, options.end)
        whole = WholeCuts(sent, lambda: layout(client, options.topic))
        starts = places.starts(options.start, cuts)
        if isinstance(options.start, At):
            places.check_reached(starts, cuts)
        elif options.start != "earliest":
            starts = whole.starts(found, starts)
        ends = ends_of(options.end, places, whole, found, starts, frozenset(), cuts)
        if options.fail_on_data_loss:
            places.check_kept({name: starts[name] for name, end in ends.items() if end > starts.get(name, EARLIEST)})
        return self._tasks(found, starts, ends)

    def _given(self) -> list[PulsarTask]:
        """Return the tasks of a read of `txn.read`, whose positions are fixed. So every plan of it has the same rows. Raises
        DataLoss if some of them are gone.
        """
        options = self._options
        assert isinstance(options.start, At)
        assert isinstance(options.end, At)
        client, starts, ends = shared_client(options.url), dict(options.start.segments), dict(options.end.segments)
        found = layout(client, options.topic)
        if options.fail_on_data_loss:
            if gone := sorted(ends.keys() - {one.name for one in found.segments.values()}):
                raise DataLoss(
                    f"{gone[0]} was deleted before its rows were read.",
                    advice="Nothing but the commit of the transaction lets the broker delete it. Did somebody delete the "
                    "subscription, or the topic? Run the transaction again.",
                )
            begins = {name: starts.get(name, _begins(options.acknowledged or {}, name)) for name in ends}
            Places(client, options.topic).check_kept(begins)
        return self._tasks(found, starts, ends)

    def _tasks(self, found: Layout, starts: dict[str, Position], ends: Mapping[str, Position]) -> list[PulsarTask]:
        options = self._options
        order = [name for family in families(found, ends) for name in family]
        made = tasks(
            options.url,
            options.topic,
            starts,
            {name: ends[name] for name in order},
            self._columns,
            fail_on_loss=options.fail_on_data_loss,
        )
        return [one.without((options.acknowledged or {}).get(one.segment, NONE)) for one in made]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)
