"""Chooses the readers for a kind of cluster by the scheme of `serviceUrl`. The modules of each kind are imported only when they are
needed, because imports in Spark's processes take a large part of the time of a small read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metadata.common.service import text_given
from pulsar_protocol.schemes import is_pulsar

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


def columns(options: dict[str, str]) -> StructType:
    """Return the columns of a read for which the user gives no schema."""
    if is_pulsar(text_given(options)):
        from spark_txn_source.pulsar.columns import columns_now as pulsar_columns_now

        return pulsar_columns_now(options)
    from metadata.client.client import shared_client
    from spark_txn_source.columns import columns_now
    from spark_txn_source.current_names import with_current_names
    from spark_txn_source.options import ReadOptions

    found = ReadOptions.parse_common(options)
    client = shared_client(found.service_url.text)
    return columns_now(client, with_current_names(client, found)).output


def batch_reader(options: dict[str, str], schema: StructType) -> DataSourceReader:
    if is_pulsar(text_given(options)):
        from spark_txn_source.pulsar.readers import batch_reader as pulsar_batch_reader

        return pulsar_batch_reader(options, schema)
    from spark_txn_source.batch import BatchReader

    return BatchReader(options, schema)


def stream_reader(options: dict[str, str], schema: StructType) -> DataSourceStreamReader:
    if is_pulsar(text_given(options)):
        from spark_txn_source.pulsar.readers import stream_reader as pulsar_stream_reader

        return pulsar_stream_reader(options, schema)
    from spark_txn_source.task_reader import TaskReader, only_pickled

    if only_pickled():
        return TaskReader()
    from spark_txn_source.stream import StreamReader

    return StreamReader(options, schema)
