"""The batch reader of Pulsar topics. It plans once, and reads each segment from the start of the read up to the segment's cut, or
up to the end that the options give. In the list of tasks the parents of a segment come before the segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_protocol.layout import EARLIEST
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.succession import families
from pulsar_protocol.whole_cuts import WholeCuts
from spark_txn_source.pulsar.columns import Part, part_of
from spark_txn_source.pulsar.dividing import divide
from spark_txn_source.pulsar.option_table import At
from spark_txn_source.pulsar.places import Places
from spark_txn_source.pulsar.tasks import PulsarTask, read_task, tasks
from spark_txn_source.pulsar.topics import layout, shared_client
from spark_txn_source.pulsar.watermarks import recorded_cuts


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
        client = shared_client(options.url)
        sent = SentLog(client, options.topic)
        if options.end == "latest" and not isinstance(options.start, int):
            sent.skip_settled()
        found = layout(client, options.topic)
        with recorded_cuts(options.metadata_url) as recorded:
            places = Places(client, options.topic, recorded)
            cuts = places.cuts(found.segments.values())
        whole = WholeCuts(sent, lambda: layout(client, options.topic))
        starts = places.starts(options.start, cuts)
        if isinstance(options.start, At):
            places.check_reached(starts, cuts)
        elif options.start != "earliest":
            starts = whole.starts(found, starts)
        if isinstance(options.end, At):
            ends = places.ends(options.end, cuts)
        else:
            limited = places.until(options.end, cuts) if isinstance(options.end, int) else cuts
            ends = dict(whole.newest(found, starts, frozenset(), limited).positions)
        if options.fail_on_data_loss:
            places.check_kept({name: starts[name] for name, end in ends.items() if end > starts.get(name, EARLIEST)})
        order = [name for family in families(found, ends) for name in family]
        return tasks(
            options.url,
            options.topic,
            starts,
            {name: ends[name] for name in order},
            self._columns,
            fail_on_loss=options.fail_on_data_loss,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)
