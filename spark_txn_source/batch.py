"""The batch reader of Spark's DataSource API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from metadata.client.client import Client, shared_client
from metadata.common.tracing import note, traced
from metadata.common.workers import tells_errors
from spark_txn_source.columns import columns_wanted
from spark_txn_source.current_names import with_current_names
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import read_batch, tasks
from spark_txn_source.schema_checks import check_schema
from spark_txn_source.task_reader import TaskReader


@tells_errors
class BatchReader(DataSourceReader):
    """The reader of one `spark.read.format("txnsegment").load(...)`. It plans once and reads all visible rows from the start up to
    the cut.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = ReadOptions.parse(options, streaming=False)
        client = self._client()
        self._options = with_current_names(client, self._options)
        self._columns = columns_wanted(client, self._options, schema)

    def __reduce__(self) -> tuple[type[TaskReader], tuple[()]]:
        """Spark pickles the reader for its tasks, which only read files."""
        return TaskReader, ()

    def _client(self) -> Client:
        return shared_client(self._options.service_url.text)

    @traced("plan")
    def partitions(self) -> Sequence[InputPartition]:
        client = self._client()
        ranges = read_batch(client, self._options)
        topics = [topic for one in ranges for topic in one.reading.topics]
        check_schema(client, topics, self._columns, streaming=False, ignore_new=True)
        found = tasks(ranges, self._options, self._columns)
        note(tasks=len(found))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return TaskReader().read(partition)
