"""A scan with a filter returns exactly the rows of a scan without it that Spark's own filter keeps, and opens few parts."""

from __future__ import annotations

import datetime
import logging
import math
import random
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from spark_txn_source.catalyst import conditions
from tests.spark.conftest import Deployment

COLUMNS = (
    "k string, id bigint, small tinyint, at timestamp, local timestamp_ntz, day date, price decimal(12,2), f float, d double, "
    "raw binary, flag boolean, word string, pair struct<a:int>, tags array<string>"
)
FILTERS = [
    "k = 'key-7'",
    "k in ('key-1', 'key-2', null)",
    "k <=> 'key-3'",
    "k <=> null",
    "k is null",
    "k is not null and k <> 'key-5'",
    "k like 'key-1%'",
    "k > 'key-4' and k <= 'key-6'",
    "id between 40 and 55",
    "id > 4000000000 or id = 3",
    "not (id > 20)",
    "id in (1,2,3,4,5,6,7,8,9,10,11,12,13)",
    "id = 17.0",
    "small < -1",
    "at >= '1970-01-01 02:00:00' and at < timestamp'1970-01-01 03:00:00'",
    "local < '1970-01-01 00:00:00'",
    "day = date'1970-01-05'",
    "day > '1970-01-10'",
    "price >= 10.05",
    "price = 7",
    "price = 7.004",
    "f = 0.1",
    "f = cast(0.1 as float)",
    "f > cast('Infinity' as float)",
    "f = cast('NaN' as float)",
    "f <> cast(0.5 as float)",
    "d > 1e300",
    "d = 0.0",
    "d <> 0.0",
    "d < cast('NaN' as double)",
    "raw = X'FF'",
    "raw > X'80'",
    "flag",
    "not flag",
    "flag = true or id = 3",
    "word like 'https://example.org/a/very/long/path/that/is/shared/by/all/of/them/2%'",
    "word >= 'https://example.org/a/very/long/path/that/is/shared/by/all/of/them/30'",
    "word = 'ü'",
    "word < 'a'",
    "pair.a = 3",
    "pair is null",
    "size(tags) = 2 and id < 30",
    "true",
    "false",
    "cast(null as boolean)",
    "id = 1 and id = 2",
    "at < current_timestamp()",
    "at < 'now'",
    "50 <= id and 60 > id",
    "'key-7' = k",
    "rand() >= 0 and id < 10",
    "__publishTime >= timestamp'2020-01-01' and id < 12",
    "__publishTime < timestamp'2020-01-01'",
    "__segment like '%/0000-%'",
    "__txnId is null",
    "__messageId like '%:0:0'",
]


def rows(first: int, seed: int, count: int = 10) -> pa.Table:
    r = random.Random(seed)
    ids = list(range(first, first + count))
    shared = "https://example.org/a/very/long/path/that/is/shared/by/all/of/them/"

    def some(values: list[Any]) -> list[Any]:
        return [r.choice([None, *values]) for _ in ids] if seed % 5 else [values[0]] * count

    hour = 3_600_000_000
    columns: dict[str, pa.Array | list[Any]] = {
        "k": some([f"key-{n}" for n in range(12)]),
        "id": ids,
        "small": pa.array(some([-3, -1, 0, 5]), pa.int8()),
        "at": pa.array([first * hour // 10 + i for i in range(count)], pa.timestamp("us", tz="UTC")),
        "local": pa.array(some([-1, 0, 5]), pa.timestamp("us")),
        "day": [datetime.date(1970, 1, 1) + datetime.timedelta(days=first // 10)] * count,
        "price": pa.array(some([Decimal("7.00"), Decimal("10.05"), Decimal("-3.10")]), pa.decimal128(12, 2)),
        "f": pa.array(some([0.1, 0.5, math.nan, math.inf]), pa.float32()),
        "d": some([0.0, -0.0, 1e301, math.nan]) if seed % 2 else [0.0, -0.0] * (count // 2),
        "raw": some([b"\xff", b"", b"\x80", b"ab"]),
        "flag": some([True, False]),
        "word": some([shared + str(n) for n in range(40)]) if seed % 3 else some(["ü", "a", "Z", ""]),
        "pair": pa.array(some([{"a": 3}, {"a": None}]), pa.struct([("a", pa.int32())])),
        "tags": pa.array(some([["x", "y"], []]), pa.list_(pa.string())),
    }
    return pa.table(columns)


def check(here: Deployment, filters: list[str], *, metadata: bool) -> None:
    """Compare the rows of each filter. Filters on metadata columns need a scan that has them. One scan without a filter evaluates
    all filters as columns, so nothing of that scan can be skipped by them. One job collects the rows of all scans with a filter.
    """
    filters = [where for where in filters if metadata or "__" not in where]
    keeps = [F.expr(where).alias(f"keeps{i}") for i, where in enumerate(filters)]
    judged = here.scan(includeMetadata=metadata).select(F.struct("*").alias("row"), *keeps).collect()
    scans = [here.scan(includeMetadata=metadata, where=where) for where in filters]
    numbered = [one.select(F.lit(i).alias("number"), F.struct("*").alias("row")) for i, one in enumerate(scans)]
    found = reduce(DataFrame.union, numbered).coalesce(2).collect()
    for i, where in enumerate(filters):
        kept = sorted(str(one.row) for one in judged if one[f"keeps{i}"])
        assert sorted(str(one.row) for one in found if one.number == i) == kept, where


@pytest.fixture
def filled(here: Deployment) -> Deployment:
    here.cluster.topics.create("t", segments=2, key="k", schema=COLUMNS)
    for seed in range(8):
        here.append("t", rows(seed * 10, seed))
    return here


def test_a_filter_gives_the_rows_that_spark_keeps(filled: Deployment) -> None:
    check(filled, FILTERS, metadata=False)
    check(filled, [*FILTERS[::12], *(where for where in FILTERS if "__" in where)], metadata=True)


def test_a_filter_gives_the_same_rows_after_splits_schema_growth_folding_compaction_and_trimming(filled: Deployment) -> None:
    cluster = filled.cluster
    cluster.topics.split("t", 0)
    filled.append("t", rows(80, 20))
    grown = rows(90, 21).append_column("added", pa.array([3] * 5 + [None] * 5, pa.int64()))
    grown = grown.set_column(grown.column_names.index("small"), "small", pa.array([300] * 10, pa.int32()))
    filled.append("t", grown)
    filters = [*FILTERS[::5], "added = 3", "added is null", "small = 300", "small < 5"]
    of_metadata = [where for where in FILTERS if "__" in where]
    check(filled, [*filters[:4], *of_metadata], metadata=True)
    check(filled, filters[4:], metadata=False)
    cluster.sweep()
    cluster.compact("t")
    filled.append("t", rows(100, 22))
    check(filled, filters[::2], metadata=False)
    check(filled, [*filters[1::8], *of_metadata], metadata=True)
    cluster.sweep()
    cluster.compact("t")
    check(filled, filters[::4], metadata=False)
    assert not cluster.verify("t").damaged


def test_a_filter_by_time_or_key_opens_few_parts(filled: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    def opened(where: Any) -> int:
        caplog.clear()
        with caplog.at_level(logging.INFO, "txnsegment.skipping"):
            filled.scan(where=where)
        skipped, total = (int(word) for word in caplog.messages[-1].split() if word.isdigit())
        return total - skipped

    assert opened("at >= timestamp'1970-01-01 02:00:00Z' and at < timestamp'1970-01-01 03:00:00Z'") <= 2
    assert opened(F.col("id") == 33) <= 2, "each segment has a part of these ten rows"
    assert opened("k = 'nobody'") <= 1
    assert opened("id < 0") == 0
    assert opened("id >= 0") >= 12
    filled.cluster.sweep()
    assert opened("id = 33") <= 2, "index snapshots keep the statistics"


def test_a_skipped_part_is_not_opened_at_all(filled: Deployment) -> None:
    """A scan does not notice that a part which it skips is gone, and a scan that needs it does."""
    from ledgers.errors import CorruptPart
    from metadata.client.logs import log_of

    client = filled.cluster.client
    reading = log_of(client, "topic://public/default/t").now()
    gone = next(
        part for s in reading.segments for found in s.ledgers(0, reading.cut) for part in found.parts if found.id == reading.cut
    )
    client.cluster.storage.delete(gone.path)
    assert filled.scan(where="id < 10").count() == 10
    with pytest.raises(CorruptPart):
        filled.scan(where="id > 70")


@pytest.mark.parametrize(
    "where",
    ["timestamp 'now'", 'timestamp "now"', 'timestamp " Today"', r"timestamp '\u006eow'", r"timestamp '\156ow'", "now()"],
)
def test_a_filter_that_names_the_time_of_its_evaluation_leaves_out_nothing(here: Deployment, where: str) -> None:
    """The filter is evaluated after the read was planned, so the time of the plan says nothing about its rows."""
    columns = StructType([StructField("at", TimestampType())])
    for filtered in (f"at <= {where}", F.expr(f"at <= {where}")):
        assert conditions(here.spark, filtered, columns) == []


def test_a_filter_that_spark_refuses_is_an_error(filled: Deployment) -> None:
    with pytest.raises(AnalysisException):
        filled.scan(where="nothing = 3")
    filled.cluster.topics.create("empty", schema="n bigint")
    assert filled.scan("empty", where="n = 3").count() == 0
    with pytest.raises(AnalysisException):
        filled.scan("empty", where="nothing = 3")


def test_a_data_frame_that_is_read_twice_gives_all_rows_with_filter_pushdown_on(filled: Deployment) -> None:
    """Spark 4.3 keeps the plan that a `pushFilters` of a Python source made, for every later use of the DataFrame. So the source
    has none: with one that leaves parts out, the second and third of these reads would lose rows.
    """
    filled.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows_of = filled.read()
        assert len(rows_of.where("id = 3").collect()) == 1
        assert len(rows_of.collect()) == 80
        assert len(rows_of.where("id = 3").union(rows_of).collect()) == 81
    finally:
        filled.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_filter_after_the_scan_keeps_nan(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's Parquet reader skips by the bounds in footers. Arrow's bounds, which older parts have, leave NaN out."""
    here.cluster.topics.create("t", schema="d double, f float, pair struct<d:double>")
    kinds = [pa.float64(), pa.float32(), pa.struct([("d", pa.float64())])]
    values: list[list[Any]] = [[1.0, math.nan], [1.0, math.nan], [{"d": 1.0}, {"d": math.nan}]]
    table = pa.table([pa.array(v, kind) for v, kind in zip(values, kinds, strict=True)], ["d", "f", "pair"])
    here.append("t", table)
    filters = ["d > 5", "f >= cast(5 as float)", "pair.d > 5", "d = cast('NaN' as double)", "d <> 1"]
    assert [here.scan().where(where).count() for where in filters] == [1] * len(filters)
    with monkeypatch.context() as older:
        older.setattr("ledgers.part_writer.with_footer_statistics", lambda schema: True)
        older.setattr("ledgers.part_writer.Gathering.encoded", lambda *_: None)
        here.append("t", table)
    assert [here.scan().where(where).count() for where in filters] == [2] * len(filters)


def test_sparks_own_writes_have_statistics_too(here: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    here.write(here.spark.range(100).repartition(4), segments=2, keyColumn="id")
    with caplog.at_level(logging.INFO, "txnsegment.skipping"):
        assert here.scan(where="id = 1000").count() == 0
        assert "skipped 8 of 8 parts" in caplog.text
    assert here.scan(where="id = 42").count() == 1
