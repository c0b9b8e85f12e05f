"""Spark reads and writes `persistent://` topics: batches, exactly-once streams over restarts, and topics of both transaction models
in one read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from metadata.common.errors import OptionError
from metadata.records.names import persistent_name
from txnsegment import repartition_by_segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.spark.conftest import Deployment

X, Y = "persistent://public/default/x", "persistent://public/default/y"


def numbers(df: DataFrame) -> list[int]:
    return sorted(row["n"] for row in df.collect())


def rows(here: Deployment, first: int, end: int) -> DataFrame:
    return here.spark.range(first, end).selectExpr("id AS n")


def test_batches_and_scans_read_both_models(here: Deployment) -> None:
    """The source, and `scan` with Spark's own Parquet reader, return the same rows. A repeated version is written once. A read of
    both models has the union of their columns.
    """
    here.write(rows(here, 0, 10), X)
    for _ in range(2):
        here.write(rows(here, 10, 20).selectExpr("n", "'a' AS more"), X, txnAppId="etl", txnVersion="7", mergeSchema="true")
    here.write(rows(here, 20, 30), "t", segments="2")
    assert numbers(here.read(X)) == list(range(20))
    assert here.read(X).where("more = 'a'").count() == 10
    both = here.read(["t", X], includeMetadata="true")
    assert {(r["__topic"], r["c"]) for r in both.groupBy("__topic").count().withColumnRenamed("count", "c").collect()} == {
        (X, 20),
        ("topic://public/default/t", 10),
    }
    positions = {(r["n"], r["__messageId"], r["__txnId"]) for r in both.collect()}
    assert {(r["n"], r["__messageId"], r["__txnId"]) for r in here.scan(["t", X], includeMetadata="true").collect()} == positions
    assert here.cluster.client.instream.topics.properties(persistent_name(X))["__contains_txn_messages"] == "true"


def test_a_stream_from_one_persistent_topic_to_another_is_exactly_once(here: Deployment) -> None:
    """The stream restarts, and Spark repeats a micro-batch for which it has no commit record. The transaction log shows the commit,
    so the repetition is skipped.
    """

    def run() -> None:
        query = (
            here.stream(X, startingOffsets="earliest", maxRowsPerTrigger="10")
            .writeStream.format("txnsegment")
            .option("serviceUrl", here.url)
            .option("checkpointLocation", str(here.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(Y)
        )
        here.queries.append(query)
        query.awaitTermination()

    for first in (0, 10):
        here.write(rows(here, first, first + 10), X)
    run()
    assert numbers(here.read(Y)) == list(range(20))
    here.write(rows(here, 20, 30), X)
    run()
    assert numbers(here.read(Y)) == list(range(30))
    commits = here.folder / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert numbers(here.read(Y)) == list(range(30)), "the version was committed"
    offsets = [json.loads(line) for line in (here.folder / "checkpoint" / "offsets" / last.name).read_text().splitlines()[1:]]
    assert X in offsets[-1]
    assert offsets[-1]["log"] == 0


def test_a_stream_reads_both_models(here: Deployment) -> None:
    here.cluster.topics.create("t", schema="n bigint")
    here.append("t", pa.table({"n": pa.array([1], pa.int64())}))
    here.write(rows(here, 2, 3), X)
    source = here.stream(None, topicsPattern=".*/(t|x)", startingOffsets="earliest")
    assert [sorted(r["n"] for r in batch) for batch in here.drain(source)] == [[1, 2]]
    here.append("t", pa.table({"n": pa.array([3], pa.int64())}))
    here.write(rows(here, 4, 5), X)
    assert [sorted(r["n"] for r in batch) for batch in here.drain(source)] == [[3, 4]]


def test_a_persistent_topic_has_one_log(here: Deployment) -> None:
    with pytest.raises(PySparkException, match="The option keyColumn is given, but persistent://public/default/x"):
        here.write(rows(here, 0, 1), X, keyColumn="n")
    assert here.cluster.client.instream.topics.find(persistent_name(X)) is None


def test_rows_are_repartitioned_for_the_topic_behind_a_name(here: Deployment) -> None:
    """Rows are repartitioned by the segments of a migrated topic's successor, or of the topic that the write will create. The rows
    of a persistent topic get one partition.
    """
    cluster, new = here.cluster, "persistent://public/new/a"

    def partitions(topic: str, **options: object) -> int:
        found = repartition_by_segment(rows(here, 0, 8), topic, serviceUrl=here.url, **options)
        return int(found._jdf.queryExecution().analyzed().numPartitions())

    cluster.topics.create(X, schema="n bigint")
    assert partitions(X) == partitions(Y) == partitions(new) == 1
    cluster.topics.set_model("namespace://public/new", "metadata")
    cluster.topics.migrate(X, "y", segments=4)
    assert partitions(X) == partitions("y") == partitions(X, keyColumn="n") == 4
    assert partitions(new, segments=3) == partitions(new, segments=3, keyColumn="n") == 3
    with pytest.raises(OptionError, match=f"option segments is given, but {Y} is a persistent"):
        partitions(Y, segments=3)


def test_a_transaction_never_spans_both_models(here: Deployment) -> None:
    """The sink refuses the second write, to a topic of the other model, before it stages a row. The test then aborts the
    transaction.
    """
    here.cluster.topics.create("t", schema="n bigint")
    here.write(rows(here, 0, 1), X)
    for first, second in (("t", X), (X, "t")):
        txn = here.cluster.transaction()
        write = rows(here, 1, 2).write.format("txnsegment").mode("append").options(**txn.options)
        write.save(first)
        before = here.files()
        with pytest.raises(PySparkException, match="one transaction never spans both"):
            write.save(second)
        assert here.files() == before
        txn.abort()
    assert numbers(here.read(["t", X])) == [0]


def test_a_transaction_takes_rows_from_one_persistent_topic_to_others(here: Deployment) -> None:
    """The rows that the transaction reads are acknowledged when it commits, and only then. Rows can also be acknowledged by their
    metadata columns.
    """
    cluster = here.cluster
    here.write(rows(here, 0, 10), X)
    cluster.subscriptions.create(X, "etl")
    with cluster.transaction() as txn:
        txn.read(here.spark, X, subscription="etl").write.format("txnsegment").mode("append").options(**txn.options).save(Y)
        txn.abort()
    assert cluster.subscriptions.describe(X, "etl").lag.rows == 10
    with cluster.transaction(app="etl", version=1) as txn:
        found = txn.read(here.spark, X, subscription="etl")
        found.where("n < 5").write.format("txnsegment").mode("append").options(**txn.options).save(Y)
        txn.append(X, pa.table({"n": [100]}))
    assert numbers(here.read(Y)) == [0, 1, 2, 3, 4]
    assert cluster.subscriptions.describe(X, "etl").lag.rows == 1
    with cluster.transaction() as txn:
        txn.acknowledge_rows(here.read(X, includeMetadata="true").where("n = 100"), subscription="etl")
    assert cluster.subscriptions.describe(X, "etl").lag.rows == 0
