"""The rows that the writers write, and the ids of these rows in the history.

One batch is one transaction. A row has the columns `batch`, `seq`, `of` and `key`. `batch`: the number of its batch, from 0 for
each writer. `seq`: the row's place among all rows of its writer. `of`: how many rows its batch has. The rows of one key are written
in the order of `seq`.

All writers get the same input. Each writer puts its name into the column `writer` and before each key, so that several writers can
write to one topic.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import concat, lit
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from conformance.history.format import Row
from conformance.input_files import lay_down

ROWS = 200
"""The number of rows of one batch."""
KEYS = 29
"""The number of keys. It does not divide ROWS, so the rows of a key have different places in different batches."""
SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("seq", LongType()),
        StructField("batch", LongType()),
        StructField("of", IntegerType()),
    ]
)
WRITTEN = StructType([*SCHEMA.fields, StructField("writer", StringType())])
"""The schema of the topics."""
COLUMNS = ("key", "seq", "__topic", "__segment", "__messageId", "__txnId")
"""The columns that a reader must select, so that its rows can be recorded in the history (`rows_of`)."""
_ARROW = pa.schema([("key", pa.string()), ("seq", pa.int64()), ("batch", pa.int64()), ("of", pa.int32())])


def marked(rows: DataFrame, writer: str) -> DataFrame:
    """Return the rows of the input as this writer writes them, with the schema `WRITTEN`."""
    return rows.withColumn("key", concat(lit(f"{writer}-"), "key")).withColumn("writer", lit(writer))


def written(batch: int, writer: str) -> list[tuple[str, int]]:
    """Return (key, seq) of the rows of one batch of a writer, in the order in which they are written."""
    return [(f"{writer}-{key}", seq) for key, seq in _rows(batch)]


def _rows(batch: int) -> list[tuple[str, int]]:
    return [(f"key-{seq % KEYS}", seq) for seq in range(batch * ROWS, (batch + 1) * ROWS)]


def identity(topic: str, key: str, seq: int) -> str:
    """Return the id of a row in the history."""
    return f"{topic}#{key}#{seq}"


def rows_of(found: pa.Table) -> tuple[Row, ...]:
    """Convert the rows of a read to rows of a history. `found` has the columns `COLUMNS`."""
    rows = []
    for row in found.to_pylist():
        ledger, entry, index = map(int, row["__messageId"].split(":"))
        name = identity(row["__topic"], row["key"], row["seq"])
        rows.append(Row(name, row["__segment"], (ledger, entry, index), row["key"], row["__txnId"]))
    return tuple(rows)


def table(batch: int) -> pa.Table:
    """Return the rows of one batch."""
    keys, numbers = zip(*_rows(batch), strict=True)
    columns = [pa.array(keys), pa.array(numbers), pa.array([batch] * ROWS), pa.array([ROWS] * ROWS, pa.int32())]
    return pa.Table.from_arrays(columns, schema=_ARROW)


def add_file(folder: Path, batch: int) -> None:
    """Write the input file of a batch."""
    lay_down(folder, batch, table(batch))
