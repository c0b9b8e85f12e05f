"""Tests of the sink in Spark: modes, applications and versions, keys, segments, compression, entries, SQL, order."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from metadata.common.errors import OptionError, VersionConflict
from metadata.records.names import key_hash
from txnsegment import repartition_by_segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.spark.conftest import Deployment


def ids(df: DataFrame) -> list[int]:
    return sorted(row["id"] for row in df.collect())


def refused(*words: str):  # type: ignore[no-untyped-def]
    """Expect a PySparkException whose text has all these words."""
    return pytest.raises(PySparkException, check=lambda error: all(word in str(error) for word in words))


def test_a_worker_that_has_written_skips_imported_modules_in_its_garbage_collections(here: Deployment) -> None:
    def skipped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = len([*batches]) and gc.get_freeze_count()
        yield pa.record_batch({"count": pa.array([count], pa.int64())})

    here.write(here.spark.range(8, numPartitions=1))
    found = here.spark.range(64, numPartitions=32).mapInArrow(skipped, "count long").collect()
    assert max(row["count"] for row in found) > 10_000  # Spark gives tasks to all idle workers in turn; one of them has written


# --- modes and SQL ------------------------------------------------------------------------------------------------


def test_overwrite_and_complete_are_refused(here: Deployment) -> None:
    df = here.spark.range(3)
    with refused("OptionError", "Overwrite mode", 'mode("append")'):
        df.write.format("txnsegment").option("serviceUrl", here.url).mode("overwrite").save("t")
    with refused("Append"):
        df.write.format("txnsegment").option("serviceUrl", here.url).save("t")
    counts = here.spark.readStream.format("rate").load().groupBy("value").count()
    query = (
        counts.writeStream.format("txnsegment")
        .outputMode("complete")
        .option("serviceUrl", here.url)
        .option("checkpointLocation", str(here.folder / "checkpoint"))
        .start("t")
    )
    here.queries.append(query)
    with refused("OptionError", "complete output mode", 'outputMode("append")'):
        query.awaitTermination(60)
    assert here.files() == []


def test_sql_views_read_and_take_inserts(here: Deployment) -> None:
    here.write(here.spark.range(3))
    here.spark.sql(f"create or replace temporary view v using txnsegment options (serviceUrl '{here.url}', topic 't')")
    assert ids(here.spark.sql("select * from v where id > 0")) == [1, 2]
    here.spark.sql("insert into v select id + 10 from range(2)")
    assert ids(here.read()) == [0, 1, 2, 10, 11]
    with refused("OptionError", "Overwrite mode"):
        here.spark.sql("insert overwrite v select id from range(2)")
    here.spark.catalog.dropTempView("v")


def test_sql_tables_are_refused_with_advice(here: Deployment) -> None:
    spark = here.spark
    here.write(spark.range(3))
    try:
        with refused("OptionError", "CREATE TEMPORARY VIEW"):
            spark.sql(f"create table no_table using txnsegment options (serviceUrl '{here.url}', topic 't')")
        spark.sql(f"create table a_table (id bigint) using txnsegment options (serviceUrl '{here.url}', topic 't')")
        with refused("OptionError", "CREATE TEMPORARY VIEW"):
            spark.table("a_table").collect()
        with refused("OptionError", "CREATE TEMPORARY VIEW"):
            spark.sql("insert into a_table values (1)")
    finally:
        spark.sql("drop table if exists a_table")
    assert ids(here.read()) == [0, 1, 2]


# --- exactly once -------------------------------------------------------------------------------------------------


def test_foreach_batch_with_two_topics(here: Deployment) -> None:
    """Both writes of a batch have the same application and version, as Delta allows. The topics differ, so each write commits once.
    When Spark repeats the batch, no row is written twice.
    """
    here.write(here.spark.range(30), "in")
    runs: list[int] = []

    def write(rows: DataFrame, batch: int) -> None:
        runs.append(batch)
        for topic in ("even", "odd"):
            some = rows.where(f"id % 2 = {int(topic == 'odd')}")
            here.write(some, topic, txnAppId="app", txnVersion=str(batch))
            if topic == "even" and len(runs) == 1:
                raise RuntimeError("the driver stumbles between the two writes")

    def run() -> None:
        query = (
            here.stream("in", startingOffsets="earliest")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(here.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(PySparkException, match="stumbles"):
        run()
    assert (ids(here.read("even")), here.cluster.topics.list(".*odd")) == (list(range(0, 30, 2)), [])
    run()
    assert runs == [0, 0]
    assert ids(here.read("even")) == list(range(0, 30, 2))
    assert ids(here.read("odd")) == list(range(1, 30, 2))


def test_a_new_checkpoint_under_an_old_application_is_an_error_in_foreach_batch(here: Deployment) -> None:
    """Batch 0 of a new checkpoint does not repeat the committed batch 0 of the old checkpoint, so it raises an error. The test does
    this for a write, for a transaction of writes, and for a transaction that reads.
    """
    here.cluster.topics.create("in", schema="id bigint")
    here.append("in", pa.table({"id": pa.array([0], pa.int64())}))
    here.cluster.subscriptions.create("in", "s")
    here.spark.range(3).write.parquet(str(here.folder / "source"))
    refusals: list[str] = []

    def plain(rows: DataFrame, batch: int) -> None:
        here.write(rows, "a", txnAppId="plain", txnVersion=batch)

    def together(rows: DataFrame, batch: int) -> None:
        with here.cluster.transaction(app="together", version=batch) as txn:
            rows.write.format("txnsegment").mode("append").options(**txn.options).save("b")

    def acknowledging(rows: DataFrame, batch: int) -> None:
        with here.cluster.transaction(app="acknowledging", version=batch) as txn:
            txn.read(here.spark, "in", subscription="s")

    def write(rows: DataFrame, batch: int) -> None:
        for form in (plain, together, acknowledging):
            try:
                form(rows, batch)
            except (VersionConflict, PySparkException) as error:
                refusals.append(str(error))

    def run(checkpoint: str) -> str:
        source = here.spark.readStream.schema("id bigint").parquet(str(here.folder / "source"))
        query = source.writeStream.foreachBatch(write).option("checkpointLocation", str(here.folder / checkpoint))
        started = query.trigger(availableNow=True).start()
        started.awaitTermination()
        return str(started.id)

    first = run("first")
    for file in (here.folder / "first" / "commits").iterdir():
        file.unlink()
    assert run("first") == first, "the same query repeats its batch 0"
    assert refusals == []
    second = run("second")
    assert len(refusals) == 3
    assert all(f"Version 0 of query {second} is not above 0 of query {first}" in said for said in refusals)
    assert ids(here.read("a")) == ids(here.read("b")) == [0, 1, 2]


def test_a_repeated_batch_token_is_skipped(here: Deployment) -> None:
    df = here.spark.range(3)
    for _ in range(2):
        here.write(df, txnAppId="app", txnVersion="7")
    assert ids(here.read()) == [0, 1, 2]
    with refused("VersionConflict", "6", "7"):
        here.write(df, txnAppId="app", txnVersion="6")
    here.write(df.limit(0), txnAppId="app", txnVersion="8")
    with refused("VersionConflict"):
        here.write(df, txnAppId="app", txnVersion="7")
    here.write(df, txnAppId="app", txnVersion="9")
    here.write(df)
    assert len(ids(here.read())) == 9


# --- keys, segments, order ----------------------------------------------------------------------------------------


def test_rows_find_their_segment_by_their_key(here: Deployment) -> None:
    spark = here.spark
    keys = {
        "text": spark.range(200).select(F.concat(F.lit("ż"), "id").alias("k")),
        "binary": spark.range(200).select(F.encode(F.col("id").cast("string"), "UTF-8").alias("k")),
        "int": spark.range(-100, 100).select(F.col("id").cast("int").alias("k")),
    }
    for topic, df in keys.items():
        here.write(df, topic, keyColumn="k", segments="5")
        for row in here.read(topic, includeMetadata="true").collect():
            key = row["k"]
            raw = bytes(key) if isinstance(key, bytearray | bytes) else str(key).encode()
            start, end = row["__segment"].rsplit("/", 1)[1].split("-")[:2]
            assert int(start, 16) <= key_hash(raw) <= int(end, 16)


def test_the_key_is_kept_with_the_topic(here: Deployment) -> None:
    df = here.spark.range(50).withColumn("k", F.col("id") % 7)
    here.write(df, keyColumn="k", segments="4")
    here.write(df)
    found = here.read(includeMetadata="true").select("k", "__segment").distinct().collect()
    assert len(found) == 7
    with refused("OptionError", "'id'", "'k'"):
        here.write(df, keyColumn="id")
    with refused("OptionError", "'k'", "not a column"):
        here.write(df.drop("k"))
    assert here.cluster.topics.describe("t").key == "k"


def test_a_key_may_come_later_and_be_null(here: Deployment) -> None:
    df = here.spark.range(50).withColumn("k", F.when(F.col("id") % 2 == 0, F.col("id").cast("string")))
    here.write(df, segments="4")
    assert here.cluster.topics.describe("t").key is None
    here.write(df, keyColumn="k")
    assert here.cluster.topics.describe("t").key == "k"
    assert len(ids(here.read())) == 100


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("x", ("'x'", "double", "cannot be a key")),
        ("K", ("'K'", "Did you mean k?")),
        ("s", ("'s'", "struct")),
        ("nope", ("'nope'",)),
    ],
)
def test_impossible_keys_are_refused(here: Deployment, key: str, words: tuple[str, ...]) -> None:
    df = here.spark.sql("select 1.5D x, 'a' k, named_struct('f', 1) s")
    with refused("OptionError", *words):
        here.write(df, keyColumn=key)
    assert here.files() == []
    assert here.cluster.topics.list() == []


def test_topics_are_made_on_first_write_or_not(here: Deployment) -> None:
    df = here.spark.range(3)
    with refused("TopicNotFound", "topic://public/default/t"):
        here.write(df, autoCreate="false")
    here.write(df, segments="3")
    here.write(df, segments="7", autoCreate="false")
    assert len(here.cluster.topics.describe("t").segments) == 3


def test_repartition_by_segment_leaves_one_part_for_each(here: Deployment) -> None:
    df = here.spark.range(0, 4000, 1, 8).withColumn("k`.", F.col("id").cast("string"))
    here.write(df.limit(0), keyColumn="k`.", segments="4")
    here.write(repartition_by_segment(df, "t", serviceUrl=here.url))
    assert len(here.files()) == 4
    assert ids(here.read()) == ids(here.scan()) == list(range(4000))
    new = repartition_by_segment(df, "u", serviceUrl=here.url, keyColumn="k`.", segments=3)
    here.write(new, "u", keyColumn="k`.", segments="3")
    assert len(here.files()) == 7
    with pytest.raises(OptionError, match="not a column"):
        repartition_by_segment(df.drop("k`."), "t", serviceUrl=here.url)


def test_rows_of_one_task_keep_their_order(here: Deployment) -> None:
    df = here.spark.range(0, 60_000, 1, 1).withColumn("k", F.col("id") % 97)
    here.write(df, keyColumn="k", segments="4", entryRows="5000")
    last: dict[str, int] = {}
    for segment, id_ in here.read(includeMetadata="true").select("__segment", "id").toLocalIterator():
        assert last.get(segment, -1) < id_
        last[segment] = id_
    assert len(last) == 4
    assert here.read().count() == 60_000


# --- files --------------------------------------------------------------------------------------------------------


def test_compression_and_entries(here: Deployment) -> None:
    df = here.spark.range(0, 10_000, 1, 1).withColumn("text", F.repeat(F.lit("abc"), 20))
    said = {"zstd": "ZSTD", "lz4": "LZ4", "snappy": "SNAPPY", "none": "UNCOMPRESSED"}
    for compression, name in said.items():
        here.write(df, compression, compression=compression, entryRows="3000")
        (part,) = [f for f in here.files() if f"/{compression}/" in f]
        metadata = pq.read_metadata(here.folder / part)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        assert {g.column(c).compression for g in groups for c in range(2)} == {name}
        assert sum(g.num_rows for g in groups) == 10_000
        assert max(g.num_rows for g in groups) <= 3000
        assert here.read(compression).count() == here.scan(compression).count() == 10_000
    here.write(df, "small", entryBytes="64k")
    (part,) = [f for f in here.files() if "/small/" in f]
    assert pq.read_metadata(here.folder / part).num_row_groups >= 10
    positions = here.read("small", includeMetadata="true").select("__messageId").collect()
    native = here.scan("small", includeMetadata="true").select("__messageId").collect()
    assert Counter(positions) == Counter(native)
    assert len(set(positions)) == 10_000


def test_empty_writes_create_topics_without_files(here: Deployment) -> None:
    empty = here.spark.range(0)
    here.write(empty, "empty", segments="2", keyColumn="id")
    here.write(empty, "empty")
    assert here.read("empty").collect() == []
    assert here.files() == []
    with refused("SchemaError", "no column"):
        here.write(here.spark.range(3).select(), "u")
    query = (
        here.stream("empty", startingOffsets="earliest")
        .writeStream.format("txnsegment")
        .option("serviceUrl", here.url)
        .option("checkpointLocation", str(here.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start("copy")
    )
    query.awaitTermination()
    assert here.read("copy").collect() == []
