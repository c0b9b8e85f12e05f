"""The door: Spark looks for a module `pyspark_*` with a class `DefaultSource`, so `format("txnsegment")` just works."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from metadata.client import shared_client
from spark_txn_sink.writer import BatchWriter, StreamWriter
from spark_txn_source.batch import BatchReader
from spark_txn_source.options import ReadOptions
from spark_txn_source.stream import StreamReader
from spark_txn_source.topics import columns_of, full_schema, topics_now


class DefaultSource(DataSource):
    """`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `.format("txnsegment")`."""

    @classmethod
    def name(cls) -> str:
        return "txnsegment"

    def schema(self) -> StructType:
        options = ReadOptions.parse_common(self.options)
        client = shared_client(options.service_url.text)
        return columns_of(full_schema(client, topics_now(client, options.selection)), options).output

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(dict(self.options), schema, overwrite)
