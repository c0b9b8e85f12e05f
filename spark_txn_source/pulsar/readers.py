"""Chooses the reader of a read from Pulsar: for one topic, or for several topics."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.several import SeveralBatchReader
from spark_txn_source.pulsar.several_streams import SeveralStreamReader
from spark_txn_source.pulsar.stream import StreamReader


def batch_reader(options: dict[str, str], schema: StructType) -> DataSourceReader:
    found = PulsarReadOptions.parse(options, streaming=False)
    return SeveralBatchReader(found, schema) if found.several else BatchReader(options, schema)


def stream_reader(options: dict[str, str], schema: StructType) -> DataSourceStreamReader:
    found = PulsarReadOptions.parse(options, streaming=True)
    return SeveralStreamReader(found, schema) if found.several else StreamReader(options, schema)
