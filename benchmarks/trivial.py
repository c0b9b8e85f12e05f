"""The floor of a start: a Python data source that needs no module but pyspark's and pyarrow, and does next to nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

SCHEMA = "id bigint, k string"


def rows(count: int) -> pa.RecordBatch:
    """Return so many rows of `SCHEMA`."""
    columns = [pa.array(range(count), pa.int64()), pa.array([f"key-{number % 100}" for number in range(count)])]
    return pa.RecordBatch.from_arrays(columns, ["id", "k"])


class TrivialSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TrivialReader(int(self.options["rows"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return NoopStreamWriter()


class TrivialReader(DataSourceStreamReader):
    """Has so many rows in its first micro-batch, read by one task. No rows come after them."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"read": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"read": self.rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["read"])] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield rows(partition.value)


class NoopStreamWriter(DataSourceStreamArrowWriter):
    """Drops the rows of a micro-batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        return
