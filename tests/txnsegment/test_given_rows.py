"""Tests that `append` and `Producer.write` take rows of every kind that Python programs have, each row once and with its type."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from metadata.common.errors import SchemaError, TxnSegmentError
from tests.support.rows import rows
from txnsegment import Cluster, connect

ROWS = [{"k": "a", "n": 1, "x": 1.5}, {"k": "b", "n": 2, "x": None}]
TABLE = pa.Table.from_pylist(ROWS)


class Stream:
    """An object of another library that has nothing but the Arrow C interface for streams."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Array:
    """The same with the interface for one batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


GIVEN: dict[str, Callable[[], Any]] = {
    "dicts": lambda: ROWS,
    "tuple of dicts": lambda: tuple(ROWS),
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "iterable": lambda: iter([TABLE.slice(0, 1), TABLE.slice(1)]),
    "iterable of frames": lambda: iter([pl.DataFrame(ROWS[:1]), pl.DataFrame(ROWS[1:], schema={"k": str, "n": int, "x": float})]),
    "pandas": lambda: pd.DataFrame({"k": ["a", "b"], "n": [1, 2], "x": [1.5, np.nan]}),
    "pandas of Arrow": lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(ROWS),
    "duckdb": lambda: duckdb.sql(
        "select * from (values ('a', 1::bigint, 1.5::double), ('b', 2::bigint, null)) as t(k, n, x) order by n"
    ),
    "stream": lambda: Stream(TABLE),
    "array": Array,
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN.keys())
def test_rows_of_every_kind_are_appended_once(cluster: Cluster, given: Callable[[], Any]) -> None:
    with cluster.begin() as txn:
        txn.append("t", given())
        txn.commit()
    assert rows(cluster, "t") == ROWS
    cluster.producer("t").write(given())
    assert rows(cluster, "t") == [*ROWS, *ROWS]
    schema = cluster.topics.describe("t").schema
    assert schema is not None
    assert schema.simpleString() == "struct<k:string,n:bigint,x:double>"


def test_types_of_pandas_and_polars_become_types_of_spark(cluster: Cluster) -> None:
    day = datetime.datetime(2026, 1, 2, 3, 4, 5)
    frames = {
        "pandas": pd.DataFrame(
            {"c": pd.Categorical(["x"]), "t": [pd.Timestamp(day)], "s": pd.array(["y"], dtype="string"), "b": [True]}
        ),
        "polars": pl.DataFrame({"c": pl.Series(["x"], dtype=pl.Categorical), "t": [day], "s": ["y"], "b": [True], "l": [[1, 2]]}),
    }
    for name, frame in frames.items():
        with cluster.begin() as txn:
            txn.append(name, frame)
            txn.commit()
    expected = {"c": "x", "t": day, "s": "y", "b": True}
    assert rows(cluster, "pandas") == [expected]
    assert rows(cluster, "polars") == [expected | {"l": [1, 2]}]


def test_an_index_of_pandas_that_numbers_the_rows_is_no_column(cluster: Cluster) -> None:
    frame = pd.DataFrame({"n": [1, 2, 3]})
    with cluster.begin() as txn:
        txn.append("t", frame[frame["n"] > 1])
        txn.commit()
    assert rows(cluster, "t") == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize("index", [["some"], pd.to_datetime(["2026-11-28"]), pd.MultiIndex.from_tuples([(1, 2)])])
def test_an_index_of_pandas_with_other_values_is_refused(cluster: Cluster, index: Any) -> None:
    with cluster.begin() as txn:
        with pytest.raises(SchemaError, match="index with values such as") as told:
            txn.append("t", pd.DataFrame({"n": [4]}, index=index))
        assert "reset_index" in told.value.advice


@pytest.mark.parametrize("given", [pd.DataFrame, pa.Table.from_pylist, list])
def test_a_column_of_nulls_takes_the_type_of_the_topic(cluster: Cluster, given: Callable[[Any], Any]) -> None:
    """Values that are all None have no type in Python. The topic knows the type of its column."""
    cluster.topics.create("t", schema="k string, n bigint")
    with cluster.begin() as txn:
        txn.append("t", given([{"k": "a", "n": None}, {"k": "b", "n": None}]))
        txn.commit()
    with cluster.producer("t") as producer:
        producer.send({"k": "c", "n": None, "new": None})
    assert rows(cluster, "t") == [{"k": "a", "n": None}, {"k": "b", "n": None}, {"k": "c", "n": None}]


def test_an_index_of_pandas_with_a_name_is_refused(cluster: Cluster) -> None:
    sums = pd.DataFrame({"k": ["a", "a"], "n": [1, 2]}).groupby("k").sum()
    with cluster.begin() as txn:
        with pytest.raises(SchemaError, match="has the index k, which is not a column") as told:
            txn.append("t", sums)
        assert "reset_index" in told.value.advice
        txn.append("t", sums.reset_index())
        txn.commit()
    assert rows(cluster, "t") == [{"k": "a", "n": 3}]


def test_a_later_batch_may_have_values_in_a_column_that_began_without_a_type(cluster: Cluster) -> None:
    """The part has the columns of the first batch. A new column has no place in it, and its values must not be dropped."""
    batches = [pa.RecordBatch.from_pylist([{"k": "a", "n": None}]), pa.RecordBatch.from_pylist([{"k": "b", "n": 1}])]
    cluster.topics.create("t", schema="k string, n bigint")
    with cluster.begin() as txn:
        with pytest.raises(SchemaError, match="column n"):
            txn.append("new", iter(batches))
        txn.append("t", iter(batches))
        txn.append("t", batches[::-1])
        txn.commit()
    given = [{"k": "a", "n": None}, {"k": "b", "n": 1}]
    assert rows(cluster, "t") == [*given, *given[::-1]]


def test_a_column_of_nulls_does_not_hide_a_column_of_the_same_name(cluster: Cluster) -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.nulls(1)], names=["n", "n"])
    cluster.topics.create("t", schema="n bigint")
    with cluster.begin() as txn, pytest.raises(SchemaError, match="n"):
        txn.append("t", twice)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "pandas of mixed types": (lambda: pd.DataFrame({"ok": [1, 2], "bad": ["x", 1]}), "column bad of the DataFrame"),
    "pandas of levels": (lambda: pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "several levels"),
    "pandas of periods": (lambda: pd.DataFrame({"p": pd.period_range("2026", periods=1)}), "column p"),
    "polars of unsigned": (lambda: pl.DataFrame({"u": pl.Series([1], dtype=pl.UInt64)}), "column u has the Arrow type uint64"),
    "polars of times": (lambda: pl.DataFrame({"t": [datetime.time(1)]}), "column t"),
    "polars column": (lambda: pl.Series([1]), "Series is no table"),
    "polars query": (lambda: pl.LazyFrame({"n": [1]}), "not LazyFrame"),
    "pandas column": (lambda: pd.Series([1]), "not int in an iterable"),
    "duckdb of intervals": (lambda: duckdb.sql("select interval 1 month as i"), "column i"),
    "dicts of mixed types": (lambda: [{"ok": 1, "bad": "x"}, {"ok": 2, "bad": 1}], "column 'bad'"),
    "dicts without columns": (lambda: [{}], "Rows without columns"),
    "generator of dicts": (lambda: iter(ROWS), "not dict in an iterable"),
    "dicts and tables": (lambda: [ROWS[0], TABLE], "not dict in an iterable"),
    "dict": (lambda: ROWS[0], "not dict"),
}


@pytest.mark.parametrize(("given", "says"), BAD.values(), ids=BAD.keys())
def test_rows_that_no_topic_keeps_are_refused_with_their_column(cluster: Cluster, given: Callable[[], Any], says: str) -> None:
    with cluster.begin() as txn:
        with pytest.raises(SchemaError, match=says):
            txn.append("t", given())
        txn.append("u", TABLE)
        txn.commit()
    assert [topic.name for topic in cluster.topics.list()] == ["topic://public/default/u"]


def test_a_stream_that_fails_leaves_no_row(cluster: Cluster) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise ConnectionError("the source is away")

    with cluster.begin() as txn:
        with pytest.raises(OSError, match="the source is away"):
            txn.append("t", pa.RecordBatchReader.from_batches(TABLE.schema, failing()))
        txn.append("t", TABLE.slice(1))
        txn.commit()
    assert rows(cluster, "t") == ROWS[1:]


def test_a_stream_is_never_in_memory_as_a_whole(cluster: Cluster) -> None:
    """The stream has 200 MB. Only one batch of it is alive at a time, when it is written and when it is read."""
    made, most = 0, 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal made, most
        for i in range(100):
            made += 1
            most = max(most, pa.total_allocated_bytes() - before)
            yield pa.record_batch({"n": pa.array(np.random.default_rng(i).integers(0, 2**60, 250_000))})

    before = pa.total_allocated_bytes()
    with cluster.begin() as txn:
        txn.append("t", pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches()))
        assert txn.commit().rows == 25_000_000
    assert made == 100
    assert most < 100_000_000
    most = read = 0
    for batch in cluster.topics.read("t"):
        read += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert read == 25_000_000
    assert most < 50_000_000


def test_waiting_rows_of_a_producer_come_before_a_frame(url: str) -> None:
    with connect(url) as cluster, cluster.producer("t") as producer:
        producer.send({"n": 0})
        producer.write(pl.DataFrame({"n": [1]}))
        assert [row["n"] for row in rows(cluster, "t")] == [0, 1]


DAY, NAIVE = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 5, 6)


@pytest.mark.parametrize(
    "given", [[DAY, NAIVE], [NAIVE, NAIVE.replace(tzinfo=datetime.UTC)], [NAIVE.replace(tzinfo=datetime.UTC), NAIVE]]
)
def test_dates_and_times_or_times_with_and_without_a_zone_are_not_mixed(cluster: Cluster, given: list[Any]) -> None:
    with cluster.begin() as txn, pytest.raises(SchemaError, match="the column 'a' are not of one type"):
        txn.append("t", [{"a": value} for value in given])


@pytest.mark.parametrize(
    "given",
    [
        [[DAY, NAIVE]],
        [[DAY], [NAIVE]],
        [{"at": DAY}, None, {"at": NAIVE}],
        [[{"at": NAIVE}, {}], [{"at": NAIVE.replace(tzinfo=datetime.UTC)}]],
        [[pd.Timestamp("2026-01-01T00:00:00.000000001")]],
        [pd.Timedelta(1, "ns")],
    ],
)
def test_times_inside_lists_and_structs_are_not_changed_either(cluster: Cluster, given: list[Any]) -> None:
    with cluster.begin() as txn, pytest.raises(SchemaError, match="the column 'a' are not of one type"):
        txn.append("t", [{"a": value} for value in given])


def test_a_row_whose_column_has_no_text_as_its_name_is_refused(cluster: Cluster) -> None:
    with cluster.begin() as txn, pytest.raises(SchemaError, match="the name of the column 1 is no text"):
        txn.append("t", [{1: "x"}])


def test_a_column_of_nulls_does_not_take_the_default_of_a_registered_schema(cluster: Cluster) -> None:
    """A column that is missing takes the default of its field. A column that is given has the values that are given."""
    fields = [{"name": "k", "type": "string"}, {"name": "n", "type": ["int", "null"], "default": 7}]
    cluster.topics.create("t")
    cluster.topics.set_schema("t", {"type": "record", "name": "r", "fields": fields})
    with cluster.begin() as txn:
        txn.append("t", [{"k": "a", "n": None}])
        txn.append("t", [{"k": "b", "n": None}, {"k": "c", "n": 1}])
        txn.append("t", [{"k": "d"}])
        txn.commit()
    with cluster.consumer("t", "s", start="earliest", value_format="avro") as consumer:
        values = [message.value["value"] for message in consumer.messages(timeout=0)]
    assert values == [b"\x02a\x02", b"\x02b\x02", b"\x02c\x00\x02", b"\x02d\x00\x0e"], "null, null, 1 and the default 7"
    cluster.topics.create("strict")
    cluster.topics.set_schema(
        "strict", {"type": "record", "name": "r", "fields": [fields[0], {"name": "n", "type": "int", "default": 7}]}
    )
    with cluster.begin() as txn, pytest.raises(SchemaError, match="the column n is null"):
        txn.append("strict", [{"k": "a", "n": None}])


# --- columns and types that the topic does not have -----------------------------------------------------------------


@pytest.fixture
def narrow(cluster: Cluster) -> Cluster:
    """A cluster with a topic `t` whose columns are narrower than Python's numbers."""
    cluster.topics.create("t", schema="n int, x float, s struct<a: array<smallint>>")
    return cluster


def test_numbers_of_dicts_take_the_types_of_the_topic(narrow: Cluster) -> None:
    given = {"n": 1, "x": 0.1, "s": {"a": [2, None]}}
    with narrow.begin() as txn:
        txn.append("t", [given])
        txn.append("t", [{"n": 3, "x": 4}])
        txn.commit()
    with narrow.producer("t") as producer:
        producer.send({"n": 5})
    assert [(row["n"], row["x"]) for row in rows(narrow, "t")] == [(1, pytest.approx(0.1)), (3, 4.0), (5, None)]
    assert [version.version for version in narrow.topics.schemas("t")] == [0]


@pytest.mark.parametrize(
    ("row", "change"),
    [
        ({"n": 2**31}, "n is int and would be bigint"),
        ({"x": 1e300}, "x is float and would be double"),
        ({"s": {"a": [2**15]}}, "s.a is array<smallint> and would be"),
        ({"n": 1, "more": "y"}, "the column more .string. is new"),
    ],
)
def test_rows_change_a_topic_only_if_they_are_asked_to(narrow: Cluster, row: dict[str, Any], change: str) -> None:
    with narrow.begin() as txn, pytest.raises(SchemaError, match=f"would change topic://public/default/t for good: .*{change}"):
        txn.append("t", [row])
    with narrow.producer("t") as producer:
        producer.send(row)
        with pytest.raises(SchemaError, match="merge_schema=True"):
            producer.flush()
        producer.discard()
    assert [version.version for version in narrow.topics.schemas("t")] == [0]
    with narrow.producer("t", merge_schema=True) as producer:
        producer.send(row)
    with narrow.transaction() as both:
        both.append("t", [{**row, "last": True}], merge_schema=True)
        both.append("t", [{"last": False}])  # an append before this one has added the column
    assert [found.get("last") for found in rows(narrow, "t")] == [None, True, False]


def test_rows_of_a_transaction_do_not_change_a_topic_that_was_made_again_meanwhile(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint, old string")
    with cluster.begin() as txn:
        txn.append("t", [{"n": 1, "old": "x"}])
        cluster.topics.delete("t")
        cluster.topics.create("t", schema="n bigint")
        with pytest.raises(TxnSegmentError):
            txn.commit()
        txn.abort()
    found = cluster.topics.schema("t")
    assert found is not None
    assert found.columns.simpleString() == "struct<n:bigint>"


def test_nanoseconds_are_not_cut_off(cluster: Cluster) -> None:
    fine = pd.Timestamp("2026-01-01T00:00:00.000000001")
    with cluster.begin() as txn:
        with pytest.raises(SchemaError, match="has nanoseconds, and topics keep microseconds"):
            txn.append("t", [{"a": None}, {"a": fine}])
        with pytest.raises(SchemaError, match=r"would lose data.*Round the values to microseconds"):
            txn.append("t", pd.DataFrame({"a": [fine]}))
        txn.append("t", [{"a": fine.floor("us")}])
        txn.commit()
    assert rows(cluster, "t") == [{"a": datetime.datetime(2026, 1, 1)}]
