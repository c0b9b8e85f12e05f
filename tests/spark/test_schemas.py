"""The source and `scan` agree: projections, user schemas, topics that get columns, and several topics read as one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from metadata.common.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.spark.conftest import Deployment


def rows(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(r) for r in df.collect()), key=repr)


def both(here: Deployment, topic: str | list[str] | None = "t", **options: object) -> list[tuple[object, ...]]:
    """Return the rows of the source. Check that `scan` returns the same rows."""
    source, native = here.read(topic, **options), here.scan(topic, **options)
    assert source.schema == native.schema
    found = rows(source)
    assert rows(native) == found
    return found


def test_columns_project_in_their_order(here: Deployment) -> None:
    here.cluster.topics.create("t")
    here.append("t", table(a=[1], b=["x"], c=[2.5]))
    assert both(here, columns="c, a") == [(2.5, 1)]
    found = both(here, columns="b", includeMetadata="true")
    assert found[0][:3] == ("x", "topic://public/default/t", "segment://public/default/t/0000-ffff-0")
    for read in (here.read, here.scan):
        with pytest.raises((PySparkException, SchemaError), match=r"There is no column B\. Did you mean b\?"):
            read(columns="B")


def table(**columns: object) -> pa.Table:
    return pa.table(columns)


def test_a_user_schema_may_subset_reorder_and_widen(here: Deployment) -> None:
    here.write(here.spark.sql("select 1 a, 'x' b, named_struct('x', 1, 'y', 'z') s, array(named_struct('k', 1, 'l', 2)) arr"))
    here.write(here.spark.sql("select 2 a, cast(null as string) b, 'q' c"), mergeSchema="true")
    assert rows(here.read(schema="c string, a bigint")) == [("q", 2), (None, 1)]
    assert rows(here.read(schema="s struct<y:string>, a int")) == [(None, 2), (("z",), 1)]
    assert rows(here.read(schema="s struct<y:string,x:bigint>, arr array<struct<l:int>>")) == [(None, None), (("z", 1), [(2,)])]
    strict = StructType([StructField("a", IntegerType(), nullable=False)])
    assert rows(here.read(schema=strict)) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ("nme string", {}, ["SchemaError", "no column nme", "Did you mean name?"]),
        ("id int", {}, ["SchemaError", "id is bigint", "cannot be read as int"]),
        ("name bigint", {}, ["SchemaError", "name is string", "bigint"]),
        ("s struct<z:int>", {}, ["SchemaError", "no column s.z"]),
        ("id bigint, __topic string", {}, ["SchemaError", "__topic", "includeMetadata"]),
        ("id bigint, __topic int", {"includeMetadata": "true"}, ["SchemaError", "__topic", "string", "int"]),
        ("id bigint", {"columns": "name"}, ["OptionError", "columns", "name", "id"]),
    ],
)
def test_an_impossible_user_schema_is_refused(here: Deployment, schema: str, options: dict[str, str], words: list[str]) -> None:
    here.cluster.topics.create("t", schema="id bigint, name string, s struct<x:int>")
    with pytest.raises(PySparkException) as caught:
        here.read(schema=schema, **options).collect()
    for word in words:
        assert word in str(caught.value)


def test_not_null_in_a_user_schema_is_checked(here: Deployment) -> None:
    here.cluster.topics.create("t")
    here.append("t", table(a=pa.array([1, None], pa.int32())))
    with pytest.raises(PySparkException, match="The column a holds nulls, but may not"):
        here.read(schema=StructType([StructField("a", IntegerType(), nullable=False)])).collect()


def test_a_topic_without_a_schema_reads_with_a_given_one(here: Deployment) -> None:
    here.cluster.topics.create("t")
    with pytest.raises(PySparkException, match="have no schema yet"):
        here.read()
    with pytest.raises(SchemaError, match="have no schema yet"):
        here.scan()
    schema = StructType([StructField("a", LongType())])
    assert here.read(schema=schema).collect() == []
    waiting = here.stream(schema=schema, startingOffsets="earliest")
    assert here.drain(waiting) == []
    here.append("t", table(a=pa.array([7], pa.int32())))
    assert [[tuple(r) for r in batch] for batch in here.drain(waiting)] == [[(7,)]]


def test_an_empty_topic_and_a_topic_without_rows(here: Deployment) -> None:
    here.write(here.spark.range(5).limit(0))
    assert both(here) == []
    assert both(here, includeMetadata="true") == []
    assert here.read().count() == here.scan().count() == 0
    assert here.files() == []


def test_a_stray_column_does_not_grow_a_topic(here: Deployment) -> None:
    """A batch and a stream are refused before a row is written. The write may ask for it, or the topic may be set to grow."""
    here.write(here.spark.sql("select 1 a, named_struct('x', 1) s"))
    stray = here.spark.sql("select 5000000000 a, named_struct('x', 2, 'y', 'z') s, true `select`")
    told = (
        r"SchemaError: This write would change topic://public/default/t for good: the column a is int and would be bigint; "
        r"the column s\.y \(string\) is new; the column select \(boolean\) is new\. "
        r"To let this write change it, give it mergeSchema=true.*"
        r"txnsegment topics schema topic://public/default/t --compatibility none"
    )
    files = here.files()
    with pytest.raises(PySparkException, match=told):
        here.write(stray)
    here.write(stray, "from")
    query = here.stream("from", startingOffsets="earliest").writeStream.format("txnsegment").option("serviceUrl", here.url)
    query = query.option("checkpointLocation", str(here.folder / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(PySparkException, match=told):
        query.start("t").awaitTermination()
    assert [name for name in here.files() if "/t/" in name] == files
    assert here.read().schema == StructType.fromDDL("a int, s struct<x:int>")
    here.cluster.topics.set_compatibility("t", "none")
    query.start("t").awaitTermination()
    assert here.read().schema == StructType.fromDDL("a bigint, s struct<x:int,y:string>, `select` boolean")
    assert here.read().count() == 2


def test_a_topic_grows_and_widens(here: Deployment) -> None:
    here.write(
        here.spark.sql("select cast(1 as tinyint) i, cast(1.5 as float) f, 1.25BD d, named_struct('x', cast(1 as smallint)) s")
    )
    grow = {"mergeSchema": "true"}
    here.write(here.spark.sql("select cast(300 as int) i, cast(2.5 as double) f, 12345.678BD d, 'new' n"), **grow)
    here.write(here.spark.sql("select cast(9000000000 as bigint) i, named_struct('x', 70000, 'y', 'deep') s, array(1) arr"), **grow)
    wanted = "i bigint, f double, d decimal(8,3), s struct<x:int,y:string>, n string, arr array<int>"
    assert here.read().schema == StructType.fromDDL(wanted)
    found = both(here)
    assert [r[0] for r in sorted(found, key=lambda r: int(str(r[0])))] == [1, 300, 9000000000]
    one = next(r for r in found if r[0] == 1)
    assert one[1:] == (1.5, pytest.approx(one[2]), (1, None), None, None)
    assert str(one[2]) == "1.250"
    assert next(r for r in found if r[0] == 300)[3:] == (None, "new", None)
    # a type narrower than the topic's is accepted
    here.write(here.spark.sql("select cast(2 as tinyint) i"))
    assert both(here, columns="i")[-1] == (9000000000,)
    assert len(both(here)) == 4
    batches = here.drain(here.stream(startingOffsets="earliest"))
    assert sorted((tuple(r) for b in batches for r in b), key=repr) == both(here)


@pytest.mark.parametrize(
    ("query", "column", "types"),
    [
        ("select 'x' id", "id", ("string", "bigint")),
        ("select 1.5D id", "id", ("double", "bigint")),
        ("select 1 id, 2 name", "name", ("int", "string")),
        ("select 1 id, named_struct('x', 'y') s", "s.x", ("string", "int")),
        ("select 1 id, array(date'2026-01-01') arr", "arr.element", ("date", "timestamp")),
        ("select 1 id, 1 NAME", "NAME", ("case", "name")),
        ("select 1 id, 1e0BD * 99999999999999999999999999999999999999 d", "d", ("decimal", "decimal(38,20)")),
    ],
)
def test_a_write_that_does_not_fit(here: Deployment, query: str, column: str, types: tuple[str, str]) -> None:
    here.cluster.topics.create("t", schema="id bigint, name string, s struct<x:int>, arr array<timestamp>, d decimal(38,20)")
    with pytest.raises(PySparkException) as caught:
        here.write(here.spark.sql(query))
    for word in ("SchemaError", column, *types):
        assert word in str(caught.value)
    assert here.files() == []
    assert [f.name for f in here.read().schema] == ["id", "name", "s", "arr", "d"]


def test_several_topics_are_a_union_by_name(here: Deployment) -> None:
    topics = here.cluster.topics
    topics.create("a", segments=2, schema="id int, x string")
    topics.create("b", schema="y double, id bigint")
    topics.create("topic://other/ns/a", schema="id int")
    here.append("a", table(id=pa.array([1], pa.int32()), x=["one"]))
    here.append("b", table(y=[0.5], id=[2**40]))
    here.append("topic://other/ns/a", table(id=pa.array([3], pa.int32())))
    wanted = [(1, "one", None), (2**40, None, 0.5)]
    for options in ({"topics": "a, b"}, {"topicsPattern": "topic://public/default/[ab]"}):
        found = both(here, None, **options)
        assert sorted(found, key=lambda r: int(str(r[0]))) == wanted
    assert rows(here.read(["a", "b"])) == rows(here.scan(["a", "b"]))
    everything = both(here, None, topicsPattern=".*", includeMetadata="true")
    names = {"topic://public/default/a", "topic://public/default/b", "topic://other/ns/a"}
    assert {r[3] for r in everything} == names
    assert len(everything) == 3


def test_topics_that_conflict(here: Deployment) -> None:
    here.cluster.topics.create("a", schema="id int")
    here.cluster.topics.create("b", schema="id string")
    with pytest.raises(
        PySparkException, match=r"The column id is int in topic://public/default/a, but string in topic://public/default/b"
    ):
        here.read(["a", "b"])
    with pytest.raises(SchemaError, match="id is int in"):
        here.scan(["a", "b"])
    assert rows(here.read("b")) == []


def test_one_segment_alone(here: Deployment) -> None:
    here.write(here.spark.range(100), segments=4, keyColumn="id")
    names = [s.name for s in here.cluster.topics.describe("t").segments]
    found = [both(here, name) for name in names]
    assert all(found)
    assert sorted(r for some in found for r in some) == [(i,) for i in range(100)]
    assert rows(here.read(names[:2])) == sorted(found[0] + found[1], key=repr)
    for read in (here.read, here.scan):
        with pytest.raises((PySparkException, OptionError), match="There is no segment segment://public/default/t/0000-7fff-9"):
            read("segment://public/default/t/0000-7fff-9").collect()


def test_a_batch_plans_once_and_grows_are_seen_by_the_next_load(here: Deployment) -> None:
    here.cluster.topics.create("t")
    here.append("t", table(a=pa.array([1], pa.int32())))
    df = here.read()
    here.append("t", table(a=pa.array([2], pa.int32()), b=["new"]))
    assert rows(df) in ([(1,)], [(1,), (2,)])
    assert both(here) == [(1, None), (2, "new")]


def test_offsets_bound_a_batch(here: Deployment) -> None:
    here.cluster.topics.create("t")
    numbers = [here.append("t", table(n=[i])) for i in range(4)]
    at = [json.dumps({"log": n}) for n in numbers]
    assert both(here, startingOffsets=at[0], endingOffsets=at[2]) == [(1,), (2,)]
    assert both(here, startingOffsets="latest") == []
    assert both(here, endingOffsets=at[0]) == [(0,)]
    assert both(here, startingOffsets=at[3], endingOffsets=at[3]) == []
    uncommitted = here.read(isolationLevel="read_uncommitted", endingOffsets=at[1])
    assert rows(uncommitted) == [(0,), (1,)]
    published = [r[0] for r in here.read(includeMetadata="true", columns="n").selectExpr("unix_millis(__publishTime)").collect()]
    assert published == sorted(published)
    here.cluster.client.sweeper.sweep()
    assert both(here, startingOffsets=at[0], endingOffsets=at[2]) == [(1,), (2,)]
    assert len(both(here, startingTimestamp=published[0])) == 4
    assert len(both(here, startingTimestamp=published[3] + 1)) == 0
    assert len(both(here, endingTimestamp=published[0] - 1)) == 0
    assert len(both(here, endingTimestamp=published[3])) == 4


def test_partitions_by_size_and_number(here: Deployment) -> None:
    here.cluster.topics.create("t", segments=4, key="k", schema="k int, pad string")
    for i in range(3):
        here.append("t", table(k=pa.array(range(i * 400, i * 400 + 400), pa.int32()), pad=[str(n) * 20 for n in range(400)]))
    assert here.read().rdd.getNumPartitions() == 1
    assert here.read(minPartitions="7").rdd.getNumPartitions() >= 7
    assert here.read(maxPartitionBytes="1b").rdd.getNumPartitions() == 12
    for options in ({}, {"minPartitions": "7"}, {"maxPartitionBytes": "1b"}, {"maxPartitionBytes": "20k"}):
        assert sorted(r[0] for r in here.read(**options, columns="k").collect()) == list(range(1200))


def test_text_widths_are_strings(here: Deployment) -> None:
    schema = StructType([StructField("s", StringType()), StructField("n", IntegerType())])
    here.write(here.spark.createDataFrame([("x", 1)], schema))
    assert both(here) == [("x", 1)]
