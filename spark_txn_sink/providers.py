"""Chooses the writers for a kind of cluster by the scheme of `serviceUrl`. The modules of each kind are imported only when they are
needed, because imports in Spark's processes take a large part of the time of a small write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metadata.common.service import text_given
from pulsar_protocol.schemes import is_pulsar

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


def batch_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    if is_pulsar(text_given(options)):
        from spark_txn_sink.pulsar.writer import BatchWriter as PulsarBatchWriter

        return PulsarBatchWriter(options, schema, overwrite)
    from spark_txn_sink.writer import BatchWriter

    return BatchWriter(options, schema, overwrite)


def stream_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    if is_pulsar(text_given(options)):
        from spark_txn_sink.pulsar.writer import StreamWriter as PulsarStreamWriter

        return PulsarStreamWriter(options, schema, overwrite)
    from spark_txn_sink.writer import StreamWriter

    return StreamWriter(options, schema, overwrite)
