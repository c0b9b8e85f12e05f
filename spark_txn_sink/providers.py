"""Chooses the writers for a kind of cluster by the scheme of `serviceUrl`. The modules of each kind are imported only when they are
needed, because imports in Spark's processes take a large part of the time of a small write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from metadata.common.service import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

PULSAR: Final = ("pulsar", "pulsar+ssl")


def scheme_of(options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
    """Return the scheme of the service URL, in lower case; empty if no URL is given."""
    given = {name.lower(): text for name, text in options.items()}.get("serviceurl") or environment.get(VARIABLE, "")
    return given.strip().partition("://")[0].lower()


def batch_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    if scheme_of(options) in PULSAR:
        from spark_txn_sink.pulsar.writer import BatchWriter as PulsarBatchWriter

        return PulsarBatchWriter(options, schema, overwrite)
    from spark_txn_sink.writer import BatchWriter

    return BatchWriter(options, schema, overwrite)


def stream_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    if scheme_of(options) in PULSAR:
        from spark_txn_sink.pulsar.writer import StreamWriter as PulsarStreamWriter

        return PulsarStreamWriter(options, schema, overwrite)
    from spark_txn_sink.writer import StreamWriter

    return StreamWriter(options, schema, overwrite)
