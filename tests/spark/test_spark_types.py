"""A value of every type that a topic supports goes from Spark through Arrow into a part. Read back through Arrow, as by the source,
and by Spark's own Parquet reader, as by `scan`, the value is the same.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ledgers.arrow import arrow_schema, conform
from ledgers.model import Part
from ledgers.parts import PartWriter, read_part
from ledgers.schema import check_writable, nullable
from ledgers.storage import LedgerStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROW = """
    true as b, cast(1 as tinyint) as i8, cast(2 as smallint) as i16, 3 as i32, cast(4 as bigint) as i64,
    cast(1.5 as float) as f, 2.5d as d, double('nan') as nan, cast(12.34 as decimal(9,2)) as d9,
    cast(-12.34 as decimal(18,4)) as d18, cast(123456789012345678901234567890.12345678 as decimal(38,8)) as d38,
    'grün' as s, cast('c' as char(3)) as ch, cast('v' as varchar(3)) as vc, X'00ff' as bin,
    date'2020-01-02' as day, date'1500-01-02' as old_day, timestamp'1500-01-02 03:04:05.123456' as old_ts,
    timestamp'2020-01-02 03:04:05.123456' as ts, timestamp_ntz'2020-01-02 03:04:05.123456' as ntz,
    interval '-1 2:03:04.5' day to second as took, interval '5' hour as hours, parse_json('{"a":[1,"x"]}') as v,
    array(1, null) as arr, map('k', timestamp'2020-01-01 00:00:00') as m, named_struct('a', 1, 'b.c', 'z') as st,
    7 as `st.a`, 8 as `with space`,
    array(named_struct('v', parse_json('1'), 'i', interval '3' day, 'n', timestamp_ntz'2020-01-02 03:04:05')) as deep,
    map('q', array(cast(1.1 as decimal(20,3)))) as mm, map(1, interval '1' second) as mi,
    array(named_struct('v', cast(null as variant)), null, named_struct('v', parse_json('2'))) as null_v,
    array(array(map(named_struct('k', 1), X'01'))) as weird
"""


def batches(df: DataFrame) -> list[pa.RecordBatch]:
    """Return the Arrow batches that Spark passes to a Python worker."""

    def pack(stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as out:
                out.write_batch(batch)
            yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()])], names=["ipc"])

    rows = df.mapInArrow(pack, "ipc binary").collect()
    return [batch for row in rows for batch in pa.ipc.open_stream(bytes(row[0]))]


def unpack(spark: SparkSession, found: list[pa.RecordBatch], schema: StructType) -> DataFrame:
    """Return the DataFrame that Spark makes of the Arrow batches of a Python worker."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found[0].schema) as out:
        for batch in found:
            out.write_batch(batch)
    text = base64.b64encode(sink.getvalue().to_pybytes()).decode()

    def give(stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in stream:
            continue
        yield from pa.ipc.open_stream(base64.b64decode(text))

    return spark.range(0, 1, 1, 1).mapInArrow(give, schema)


def staged(folder: Path, struct: StructType, found: list[pa.RecordBatch]) -> tuple[LedgerStorage, Part]:
    storage = LedgerStorage(str(folder))
    storage.create()
    schema = arrow_schema(struct)
    writer = PartWriter(storage, "t", schema, 0, staging_id="s")
    for batch in found:
        writer.write(conform(batch, schema))
    part = writer.close()
    assert part is not None
    return storage, part


@pytest.mark.parametrize(("zone", "large"), [("America/Los_Angeles", "false"), ("UTC", "true")])
def test_every_type_comes_back_both_ways(spark: SparkSession, tmp_path: Path, zone: str, large: str) -> None:
    settings = {
        "spark.sql.session.timeZone": zone,
        "spark.sql.execution.arrow.useLargeVarTypes": large,
    }
    before = {key: spark.conf.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        full = spark.sql(f"select {ROW}")
        names = [f"`{name}`" for name in full.columns]
        df = full.union(full.selectExpr(*(f"if(i32 < 0, {name}, null) as {name}" for name in names)))
        struct = nullable(df.schema)
        check_writable(struct)
        storage, part = staged(tmp_path, struct, batches(df.coalesce(1)))
        expected = [str(row) for row in df.collect()]
        native = spark.read.schema(struct).parquet(storage.spark_uri(part.path))
        assert sorted(str(row) for row in native.collect()) == sorted(expected)
        assert storage.relative(native.select("_metadata.file_path").first()[0]) == part.path
        schema = arrow_schema(struct)
        found = [conform(entry.batch, schema) for entry in read_part(storage, part)]
        assert all(batch.schema.equals(schema) for batch in found)
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "false")
        assert sorted(str(row) for row in unpack(spark, found, struct).collect()) == sorted(expected)
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def test_a_part_of_an_older_schema_reads_the_same_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    old = spark.sql(
        """select cast(1 as tinyint) as a, cast(2 as smallint) as b, 3 as c,
        cast(1.5 as float) as f, cast(1.25 as decimal(9,2)) as d,
        cast(1.25 as decimal(18,2)) as e, named_struct('x', 1) as s, array(named_struct('x', cast(1 as tinyint))) as l,
        map(1, cast(2.5 as float)) as m, interval '3' day as i"""
    )
    wide = spark.sql(
        """select 1L as c, 2L as a, 3L as b, 1.5d as f, cast(1.25 as decimal(20,5)) as d, cast(1.25 as decimal(30,2)) as e,
        named_struct('y', 'q', 'x', 1L) as s, array(named_struct('x', 1L, 'y', true)) as l, map(1L, 2.5d) as m,
        interval '3 00:00:01' day to second as i, 'new' as n"""
    )
    storage, part = staged(tmp_path, nullable(old.schema), batches(old))
    struct = nullable(wide.schema)
    schema = arrow_schema(struct)
    arrow = [conform(entry.batch, schema) for entry in read_part(storage, part, columns=struct.names)]
    native = spark.read.schema(struct).parquet(storage.spark_uri(part.path)).collect()
    assert [str(row) for row in unpack(spark, arrow, struct).collect()] == [str(row) for row in native]
    assert (native[0].c, native[0].d.as_tuple().exponent, native[0].s.x, native[0].s.y, native[0].n) == (3, -5, 1, None, None)
