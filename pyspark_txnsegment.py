"""Spark's entry point to txnsegment. Spark looks for modules named `pyspark_*` and registers the class `DefaultSource` of each, so
`format("txnsegment")` works without a registration by the user.

Each method imports only what it needs. Spark loads this module in two new processes for every read and write, and the imports take
a large part of the time of a small read or write (`python -m benchmarks throughput`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from metadata.common.errors import OptionError, TxnSegmentError
from metadata.common.worker_memory import spare_imports

spare_imports()  # the collections during txnsegment's own imports then skip the objects of pyspark and pyarrow

Result = TypeVar("Result")


def _told(call: Callable[[], Result]) -> Result:
    """Return the result of `call`. If `call` raises an error of txnsegment, raise this error without its traceback, because Spark
    puts the whole traceback in front of the message. The traceback is logged at the level DEBUG.
    """
    try:
        found = call()
        spare_imports()
        return found
    except TxnSegmentError as error:
        logging.getLogger("txnsegment").debug("refused", exc_info=True)
        raise error.with_traceback(None) from None


class DefaultSource(DataSource):
    """`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `.format("txnsegment")`."""

    @classmethod
    def name(cls) -> str:
        return "txnsegment"

    def schema(self) -> StructType:
        from spark_txn_source.providers import columns

        return _told(lambda: columns(self._given()))

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_txn_source.providers import batch_reader

        return _told(lambda: batch_reader(self._given(), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_txn_source.providers import stream_reader

        return _told(lambda: stream_reader(self._given(), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_txn_sink.providers import batch_writer

        return _told(lambda: batch_writer(self._given(), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_txn_sink.providers import stream_writer

        return _told(lambda: stream_writer(self._given(), schema, overwrite))

    def _given(self) -> dict[str, str]:
        """Return the options. Raises OptionError if Spark creates or uses a table of its catalogue. Spark passes `option.x` beside
        `x` when it creates such a table, and passes no option when it uses one.
        """
        options = dict(self.options)
        if not options or any(name.lower().startswith("option.") for name in options):
            raise OptionError(
                "No option reached txnsegment, or those of a SQL table: CREATE TABLE and saveAsTable forget the options on use, "
                "so a topic cannot be a table of Spark's catalogue.",
                advice="Write CREATE TEMPORARY VIEW v USING txnsegment OPTIONS (serviceUrl '...', topic '...'), which can also be "
                "inserted into, or give the topic to load(name), save(name) or start(name).",
            )
        return options
