"""The batch reader of Pulsar topics. It plans once: each segment is read from the start up to its cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_protocol.layout import EARLIEST
from pulsar_protocol.sent_log import SentLog
from spark_txn_source.pulsar.columns import columns_wanted
from spark_txn_source.pulsar.dividing import divide
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.places import Places, whole
from spark_txn_source.pulsar.tasks import read_task, tasks
from spark_txn_source.pulsar.topics import layout, shared_client


class BatchReader(DataSourceReader):
    """The reader of one `spark.read.format("txnsegment").load(...)` from Pulsar."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = PulsarReadOptions.parse(options, streaming=False)
        self._columns = columns_wanted(shared_client(self._options.url), self._options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        client = shared_client(options.url)
        places = Places(client, options.topic)
        cuts = whole(SentLog(client, options.topic), places.cuts(layout(client, options.topic).segments.values()))
        starts, ends = places.starts(options.start, cuts), places.ends(options.end, cuts)
        if options.fail_on_data_loss:
            places.check_kept({name: starts[name] for name, end in ends.items() if end > starts.get(name, EARLIEST)})
        found = tasks(options.url, options.topic, starts, ends, self._columns, fail_on_loss=options.fail_on_data_loss)
        return divide(client, found, options.min_partitions, options.max_partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)
