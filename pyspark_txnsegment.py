"""Spark's entry point to txnsegment. Spark looks for modules named `pyspark_*` and registers the class `DefaultSource` of each, so
`format("txnsegment")` works without a registration by the user.

Spark looks in Python processes that start in the folder of the user's program. A file there can have the name of one of
txnsegment's packages. So this module imports nothing of txnsegment when it is loaded: Spark would then report that there is no such
format. The first use looks for such files, and names them.

Each method imports only what it needs. Spark loads this module in two new processes for every read and write, and the imports take
a large part of the time of a small read or write (`python -m benchmarks throughput`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

Result = TypeVar("Result")
_PACKAGES: Final = ("ledgers", "metadata", "pulsar_protocol", "spark_txn_sink", "spark_txn_source")


def check_packages() -> None:
    """Raise ImportError if Python would import another file in place of one of txnsegment's packages. Such a file is not run."""
    here = Path(__file__).parent
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        place = None if found is None or found.origin is None else Path(found.origin)
        if place is None or not {place.parents[1], place.resolve().parents[1]} & {here, here.resolve()}:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # `metadata.common.workers` says why, and cannot be imported here
            taken = "no file with code" if place is None else place.parent if place.name == "__init__.py" else place
            raise ImportError(
                f"txnsegment cannot use its package {here / package}: for the name {package} Python finds {taken}. "
                "Rename it, or start your program in another folder: Spark's Python processes look first in the folder of the "
                f"start, {Path.cwd()}."
            )


def _told(call: Callable[[], Result]) -> Result:
    """Return the result of `call`. An error of txnsegment reaches the user without its traceback."""
    if "metadata.common.workers" not in sys.modules:
        check_packages()
    from metadata.common.workers import spare_imports, telling

    spare_imports()  # the collections during the imports of `call` then skip the objects of pyspark and pyarrow
    with telling():
        found = call()
    spare_imports()
    return found


class DefaultSource(DataSource):
    """`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `.format("txnsegment")`."""

    @classmethod
    def name(cls) -> str:
        return "txnsegment"

    def schema(self) -> StructType:
        def found() -> StructType:
            from spark_txn_source.providers import columns

            return columns(self._given("read"))

        return _told(found)

    def reader(self, schema: StructType) -> DataSourceReader:
        def found() -> DataSourceReader:
            from spark_txn_source.providers import batch_reader

            return batch_reader(self._given("read"), schema)

        return _told(found)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        def found() -> DataSourceStreamReader:
            from spark_txn_source.providers import stream_reader

            return stream_reader(self._given("read"), schema)

        return _told(found)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        def found() -> DataSourceWriter:
            from spark_txn_sink.providers import batch_writer

            return batch_writer(self._given("write"), schema, overwrite)

        return _told(found)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        def found() -> DataSourceStreamWriter:
            from spark_txn_sink.providers import stream_writer

            return stream_writer(self._given("write"), schema, overwrite)

        return _told(found)

    def _given(self, way: Literal["read", "write"]) -> dict[str, str]:
        """Return the options. Raises OptionError if Spark creates or uses a table of its catalogue."""
        options = dict(self.options)
        if not options or any(name.lower() == "provider" or name.lower().startswith("option.") for name in options):
            from metadata.common.spark_tables import of_a_table

            raise of_a_table(options, way)
        return options
