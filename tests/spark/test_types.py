"""Rows of every type, also nested, go through the sink. The source, `scan` and a stream return the same rows, type by type."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ledgers.schema import quoted
from tests.spark.conftest import METADATA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Deployment

# For each column: two SQL expressions, which are its values in the first and the second row. `rows_of` adds a row of nulls.
PLAIN = {
    "yes": ("true", "false"),
    "tiny": ("cast(-128 as tinyint)", "cast(127 as tinyint)"),
    "small": ("cast(-32768 as smallint)", "cast(32767 as smallint)"),
    "int": ("-2147483648", "2147483647"),
    "big": ("-9223372036854775808", "9223372036854775807"),
    "float": ("cast('-Infinity' as float)", "cast(1.1 as float)"),
    "double": ("cast('Infinity' as double)", "-0.1D"),
    "dec_small": ("cast(-99.99 as decimal(4,2))", "cast(0.01 as decimal(4,2))"),
    "dec_mid": ("cast(-99999999999999.9999 as decimal(18,4))", "cast(1 as decimal(18,4))"),
    "dec_big": ("cast(99999999999999999999999999999999999999 as decimal(38,0))", "cast(-1 as decimal(38,0))"),
    "dec_frac": ("cast(0.00000000000000000000000000000000000001 as decimal(38,38))", "cast(0 as decimal(38,38))"),
    "text": ("'żółć 🦆'", "''"),
    "bin": ("x'00ff'", "x''"),
    "date": ("date'0001-01-01'", "date'9999-12-31'"),
    "ts": ("timestamp'1900-01-01 00:00:00.000001 UTC'", "timestamp'9999-12-30 23:59:59.999999 UTC'"),
    "ts_dst": ("timestamp'2026-10-25 00:30:00 UTC'", "timestamp'2026-10-25 01:30:00 UTC'"),
    "ntz": ("timestamp_ntz'1900-01-01 00:00:00.000001'", "timestamp_ntz'2026-03-29 02:30:00'"),
    "d2s": ("interval '-10 20:30:40.123456' day to second", "interval '0 00:00:00' day to second"),
    "d": ("interval '3' day", "interval '-3' day"),
    "h2m": ("interval '11:12' hour to minute", "interval '-11:12' hour to minute"),
    "var": ("""parse_json('{"a":[1,"x",null,1.5],"b":{"c":true}}')""", "parse_json('1')"),
    "with.dot": ("1", "2"),
    "with space": ("1", "2"),
    "with`tick": ("1", "2"),
    "with/slash=x": ("1", "2"),
    "_metadata": ("1", "2"),
    "__file": ("1", "2"),
    "__row": ("1", "2"),
    "__ledger": ("1", "2"),
}
NESTED = {
    "arr": ("array(1, null, 3)", "array()"),
    "arr_arr": ("array(array('a', null), null)", "array(array())"),
    "map": ("map('k', timestamp'2026-01-01 12:00:00 UTC', 'l', null)", "map()"),
    "map_int": ("map(1, array(1.5D))", "map(2, null)"),
    "struct": ("named_struct('a.b', 1, 'c', null)", "named_struct('a.b', 2, 'c', 'x')"),
    "deep": (
        "array(map('k', named_struct('ts', timestamp'2026-01-01 00:00:00 UTC', 'd', 1.5BD, 'i', interval '1' day)))",
        "array(map('k', null), null)",
    ),
    "vars": ("array(parse_json('[1]'), null)", "null"),
    "a": ("named_struct('b', 1)", "named_struct('b', 2)"),
    "a.b": ("'dotted'", "'column'"),
}
ALL = {**PLAIN, **NESTED}


def rows_of(spark: SparkSession, columns: dict[str, tuple[str, str]]) -> DataFrame:
    """Return three rows: the first values, the second values, and nulls."""
    one = spark.range(0, 3, 1, 1)
    made = [
        F.expr(f"case id when 0 then {first} when 1 then {second} end").alias(name) for name, (first, second) in columns.items()
    ]
    return one.select(F.col("id").cast("int").alias("row"), *made)


def comparable(df: DataFrame, names: list[str]) -> list[tuple[object, ...]]:
    """Return the sorted rows as text that is different for different values. Spark itself cannot compare variants and maps."""
    columns = [
        F.to_json(F.struct(F.col(quoted(n)).alias("v")), {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"}) for n in names
    ]
    kinds = [F.typeof(F.col(quoted(n))) for n in names]
    return sorted(tuple(row) for row in df.select(*columns, *kinds).collect())


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Set session settings, and restore them at the end. `_` in a name means `.`."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@pytest.mark.parametrize(
    ("write_zone", "read_zone", "large"),
    [("UTC", "UTC", "false"), ("Asia/Kathmandu", "America/St_Johns", "true"), ("Europe/Berlin", "Europe/Berlin", "false")],
)
def test_every_type_comes_back_by_every_way(here: Deployment, write_zone: str, read_zone: str, large: str) -> None:
    settings = {"spark_sql_execution_arrow_useLargeVarTypes": large}
    names = ["row", *ALL]
    with conf(here.spark, spark_sql_session_timeZone=write_zone, **settings):
        df = rows_of(here.spark, ALL)
        here.write(df)
    with conf(here.spark, spark_sql_session_timeZone=read_zone, **settings):
        wanted = comparable(df, names)
        source, native = here.read(), here.scan()
        assert source.schema == native.schema
        assert [(f.name, f.dataType.simpleString()) for f in source.schema] == [
            (f.name, f.dataType.simpleString()) for f in df.schema
        ]
        assert comparable(source, names) == wanted
        assert comparable(native, names) == wanted
        columns = [*names, *METADATA]
        with_metadata = here.read(includeMetadata=True), here.scan(includeMetadata=True)
        assert with_metadata[0].schema == with_metadata[1].schema
        found = [comparable(one, columns) for one in with_metadata]
        assert found[0] == found[1]
        streamed: list[list[tuple[object, ...]]] = []
        query = (
            here.stream(startingOffsets="earliest", includeMetadata=True)
            .writeStream.option("checkpointLocation", str(here.folder / "checkpoint"))
            .foreachBatch(lambda rows, _: streamed.append(comparable(rows, columns)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert streamed == [found[0]]


def test_single_columns_with_odd_names_or_nested_types_come_back(here: Deployment) -> None:
    """The source finds a column in a file by its Parquet column indexes. The columns here could be confused: their names have a
    dot, a backtick or a name that Spark uses itself, or they are nested and have several Parquet columns.
    """
    here.write(rows_of(here.spark, ALL))
    for name in ("a", "a.b", "with.dot", "with`tick", "_metadata", "map_int", "deep", "vars"):
        source = here.read(columns=json.dumps([name]))
        assert source.columns == [name]
        assert comparable(source, [name]) == comparable(here.scan(columns=[name]), [name])


def test_not_null_inputs_are_nullable_in_the_topic(here: Deployment) -> None:
    df = here.spark.sql("select id, 1 one, 'x' text, array(1) arr, map('k', 1) m, named_struct('f', id) s from range(3)")
    assert not any(f.nullable for f in df.schema)
    here.write(df)
    here.write(here.spark.sql("select cast(null as bigint) id, array(cast(null as int)) arr, map('k', cast(null as int)) m"))
    for found in (here.read(), here.scan()):
        assert all(f.nullable for f in found.schema)
        assert found.schema["arr"].dataType.containsNull
        assert found.schema["m"].dataType.valueContainsNull
        assert found.where("id is null").collect()[0].asDict(recursive=True) == {
            "id": None, "one": None, "text": None, "arr": [None], "m": {"k": None}, "s": None,
        }  # fmt: skip
        assert found.count() == 4


def test_char_and_varchar_columns_are_strings(here: Deployment) -> None:
    spark = here.spark
    spark.sql("create table chars (c char(5), v varchar(5), n int) using parquet")
    try:
        spark.sql("insert into chars values ('a', 'b', 1)")
        here.write(spark.table("chars"))
        here.write(spark.sql("select 'abcdefgh' c, 'abcdefgh' v, 2 n"))
        for found in (here.read(), here.scan()):
            assert [tuple(r) for r in found.orderBy("n").collect()] == [("a    ", "b", 1), ("abcdefgh", "abcdefgh", 2)]
    finally:
        spark.sql("drop table chars")


REFUSED = {
    "void": ("select 1 a, null nothing", "nothing", "void", "cast"),
    "void in a struct": ("select named_struct('deep', null) s", "s.deep", "void", "cast"),
    "void in an array": ("select array(null) s", "s.element", "void", "cast"),
    "year-month interval": ("select interval '1' year y", "y", "interval year", "months"),
    "time": ("select time'12:00:00' t", "t", "time", "string"),
    "names that differ by case": ("select 1 a, 2 A", "A", "case", "Rename"),
    "nested names that differ by case": ("select named_struct('x', 1, 'X', 2) s", "s.X", "case", "Rename"),
    "a metadata column": ("select 1 a, 'x' __messageId", "__messageId", "metadata column", "Rename"),
    "a metadata column by case": ("select 1 a, 'x' __TXNID", "__TXNID", "metadata column", "Rename"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_types_are_refused_before_a_row_is_staged(here: Deployment, case: str) -> None:
    query, *said = REFUSED[case]
    with pytest.raises(PySparkException) as caught:
        here.write(here.spark.sql(query))
    assert "SchemaError" in str(caught.value)
    for words in said:
        assert words in str(caught.value)
    assert here.files() == []


def test_calendar_intervals_are_refused_by_spark_itself(here: Deployment) -> None:
    with pytest.raises(PySparkException, match='Cannot use "INTERVAL" type'):
        here.write(here.spark.sql("select make_interval(1,1,1,1,1,1,1) y"))
    assert here.files() == []


def test_a_stream_refuses_unsupported_types_too(here: Deployment) -> None:
    df = here.spark.readStream.format("rate").load().selectExpr("value", "interval '1' year y")
    with pytest.raises(PySparkException) as caught:  # noqa: PT012
        query = (
            df.writeStream.format("txnsegment")
            .option("serviceUrl", here.url)
            .option("checkpointLocation", str(here.folder / "checkpoint"))
            .start("t")
        )
        here.queries.append(query)
        query.awaitTermination(60)
    assert "SchemaError" in str(caught.value)
    assert "y" in str(caught.value)
    assert here.files() == []
