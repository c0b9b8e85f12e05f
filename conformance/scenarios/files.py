"""The input of the streaming job: one Parquet file for each batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from conformance.input_files import lay_down
from conformance.scenarios.driver import SCHEMA, batch_of
from conformance.scenarios.history import written


def add_batches(folder: Path, first: int, count: int) -> None:
    """Write the files of batches `first` to `first + count - 1`."""
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(first, first + count):
        lay_down(folder, batch, pa.Table.from_batches([batch_of(written(batch))]))


def streamed(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a streaming DataFrame of the batches, in order. Each micro-batch has one batch. One task reads it, and two tasks write
    it. The two tasks get different keys, and the rows of each key keep their order.
    """
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder)).repartition(2, "key")
