"""The baseline for txnsegment's source and sink: a bare Python data source that only writes Parquet files, or yields the rows of
given files. Like txnsegment, it exchanges rows with Spark as Arrow data, and uses the same Parquet settings, fsync and page
checksums when it writes. It has no topics, transactions or checks: it verifies no checksum when it reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from benchmarks.trivial import NoopStreamWriter

ENTRY_BYTES = 16 << 20


class BareSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> str:
        return str(self.options["schema"])

    def reader(self, schema: StructType) -> DataSourceReader:
        files = self.options["files"].split(",")
        return BareReader(files, int(self.options.get("tasks", len(files))))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BareWriter(self.options["folder"], self.options.get("compression", "zstd"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return NoopStreamWriter()


class BareReader(DataSourceReader):
    """By default this reader has one task for each file. txnsegment's source has the same number of tasks, if the parts have about
    128 MB. The two numbers must be equal, because Spark needs some 20 ms for each task, and the benchmark compares only the time of
    reading.
    """

    def __init__(self, files: list[str], tasks: int) -> None:
        self.groups = [files[i::tasks] for i in range(tasks)]

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(group) for group in self.groups if group]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for path in partition.value:
            with pa.OSFile(path) as stream:
                file = pq.ParquetFile(stream, pre_buffer=False)
                for group in range(file.num_row_groups):
                    yield from file.iter_batches(10_000, row_groups=[group], use_threads=False)


class BareWriter(DataSourceArrowWriter):
    def __init__(self, folder: str, compression: str) -> None:
        self.folder, self.compression = folder, compression

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        path = os.path.join(self.folder, f"{uuid4().hex}.parquet")  # noqa: PTH118
        gathered: list[pa.RecordBatch] = []
        size = 0
        writer = None
        with pa.OSFile(path, "wb") as stream:
            for batch in iterator:
                if writer is None:
                    writer = pq.ParquetWriter(
                        stream, batch.schema, compression=self.compression, use_dictionary=False, write_page_checksum=True
                    )
                if size + batch.nbytes > ENTRY_BYTES:
                    writer.write_table(pa.Table.from_batches(gathered))
                    gathered, size = [], 0
                gathered.append(batch)
                size += batch.nbytes
            if writer is not None:
                writer.write_table(pa.Table.from_batches(gathered))
                writer.close()
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
