"""Tests of `with cluster.transaction() as txn` in Spark: several writes and the acks of their input are committed as a whole."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from metadata.common.errors import SchemaError
from metadata.records.names import topic_name
from metadata.records.row_ranges import texts
from metadata.rules.acks import done
from pyspark_txnsegment import DefaultSource
from spark_txn_sink.writer import BatchWriter, Messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tests.spark.conftest import Deployment
    from txnsegment import SparkTransaction

BIG, SMALL = "topic://acme/sales/big", "topic://acme/audit/small"


def ids(here: Deployment, topic: str) -> list[int]:
    return sorted(row["id"] for row in here.read(topic).collect())


def write(txn: SparkTransaction, df: DataFrame, topic: str, **options: object) -> None:
    df.write.format("txnsegment").mode("append").options(**txn.options, **options).save(topic)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def cursors(here: Deployment) -> list[list[str]]:
    found = here.cluster.client.subscriptions.cursors(here.cluster.client.topics.get(topic_name("in")), "etl")
    return [texts(done(cursor)) for cursor in found.values()]


def test_consume_transform_produce(here: Deployment) -> None:
    here.cluster.topics.create("in", schema="id bigint")
    here.cluster.subscriptions.create("in", "etl")
    here.append("in", rows(*range(8)))
    with here.cluster.consumer("in", "etl") as consumer:
        consumer.ack([message for message in consumer.messages(timeout=0) if message.value["id"] in (2, 3)])
    last = here.append("in", rows(8, 9))
    with here.cluster.transaction(app="etl", version=1) as txn:
        given = txn.read(here.spark, "in", subscription="etl", minPartitions=2)
        here.append("in", rows(10, 11))  # these rows are committed after the read, so the transaction does not have them
        broken = given.select(F.when(F.col("id") < 8, F.col("id")).otherwise(F.raise_error(F.lit("broken"))).alias("id"))
        with pytest.raises(PySparkException, match="broken"):
            write(txn, broken, BIG)
        write(txn, given.where("id >= 5"), BIG, segments=2, keyColumn="id")
        write(txn, given.where("id < 5"), SMALL)
        with pytest.raises(PySparkException, match="txnStaging and txnVersion"):
            write(txn, given, SMALL, txnVersion=1)
        assert all(t.state == "COMMITTED" for t in here.cluster.transactions.list())
        assert ids(here, SMALL) == []
    committed = txn.commit()
    assert (ids(here, BIG), ids(here, SMALL)) == ([5, 6, 7, 8, 9], [0, 1, 4])
    assert (committed.rows, here.cluster.transactions.get(committed.txn_id or "").commit) == (8, committed.number)
    assert here.cluster.subscriptions.describe("in", "etl").lag.rows == 2
    assert cursors(here) == [[f"0:0..{last}:0"]]


def test_a_micro_batch_is_acknowledged_with_its_output(here: Deployment) -> None:
    here.cluster.topics.create("in", schema="id bigint")
    here.cluster.subscriptions.create("in", "etl")
    for number in range(3):
        here.append("in", rows(*range(10 * number, 10 * number + 10)))
    runs: list[tuple[int, bool]] = []

    def halves(batch: DataFrame, version: int) -> None:
        with here.cluster.transaction(app="halves", version=version) as txn:
            txn.acknowledge_rows(batch, subscription="etl")
            write(txn, batch.where("id % 10 < 5").select("id"), BIG)
            write(txn, batch.where("id % 10 >= 5").select("id"), SMALL)
        runs.append((version, txn.commit().skipped))
        # the program repeats the version, as after a crash before Spark's commit record
        with here.cluster.transaction(app="halves", version=version) as again:
            again.acknowledge_rows(batch, subscription="etl")
            write(again, batch.select("id"), BIG)
        runs.append((version, again.commit().skipped))

    source = here.stream("in", startingOffsets="earliest", includeMetadata="true", maxRowsPerTrigger=10)
    query = source.writeStream.foreachBatch(halves).option("checkpointLocation", str(here.folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert runs == [(version, again) for version in range(3) for again in (False, True)]
    assert ids(here, BIG) == [n for n in range(30) if n % 10 < 5]
    assert ids(here, SMALL) == [n for n in range(30) if n % 10 >= 5]
    assert here.cluster.subscriptions.describe("in", "etl").lag.rows == 0
    assert len(cursors(here)[0]) == 1
    with here.cluster.transaction() as txn, pytest.raises(SchemaError, match="includeMetadata=true"):
        txn.acknowledge_rows(here.read("in"), subscription="etl")
    some = here.append("in", rows(*range(100, 120)))
    with here.cluster.transaction() as txn:
        odd = here.read("in", startingOffsets=f'{{"log":{some - 1}}}', includeMetadata="true").where("id % 2 = 1 and id < 110")
        txn.acknowledge_rows(odd, subscription="etl")
    assert here.cluster.subscriptions.describe("in", "etl").lag.rows == 15


def test_a_failed_write_with_a_published_manifest_does_not_count(here: Deployment) -> None:
    """The committing process dies after it has published its manifest, and Spark's abort fails as well. The program gets an error
    and repeats the write. Only the repetition is committed.
    """

    class Dying(BatchWriter):
        def commit(self, messages: Messages) -> None:
            super().commit(messages)
            os.kill(os.getpid(), signal.SIGKILL)

        def abort(self, messages: Messages) -> None:
            raise RuntimeError("the storage is away")

    class DyingSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
            return Dying(dict(self.options), schema, overwrite)

    here.spark.dataSource.register(DyingSource)
    given = here.spark.range(3)
    with here.cluster.transaction() as txn:
        write(txn, given, SMALL)
        with pytest.raises(Py4JJavaError, match="Writing job failed"):
            given.write.format("dying").mode("append").options(**txn.options).save(BIG)
        left = [path.name for path in (here.folder / "cluster" / "ledgers" / "staging").iterdir()]
        assert sum(name.endswith(".manifest") for name in left) == 2
        assert not any(name.endswith(".withdrawn") for name in left)
        write(txn, given, BIG)
    assert (ids(here, BIG), ids(here, SMALL)) == ([0, 1, 2], [0, 1, 2])
    assert txn.commit().rows == 6
