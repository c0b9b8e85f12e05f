"""Fixtures of the Spark tests: a cluster for each test, and short calls to write and read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from txnsegment import connect, scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

    from txnsegment import Cluster

METADATA = ("__topic", "__segment", "__messageId", "__publishTime", "__txnId")


class Deployment:
    """An embedded cluster under a folder, a Spark session that reads and writes it, and a connection without Spark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.url = f"file://{folder}/cluster"
        self._cluster: Cluster | None = None
        self.queries: list[StreamingQuery] = []

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = connect(self.url)
        return self._cluster

    def write(self, df: DataFrame, topic: str = "t", **options: Any) -> None:
        df.write.format("txnsegment").option("serviceUrl", self.url).options(**options).mode("append").save(topic)

    def append(self, topic: str, *batches: Any) -> int:
        """Commit one transaction without Spark, which is fast. Return the number of its registration."""
        with self.cluster.begin() as txn:
            for batch in batches:
                txn.append(topic, batch, merge_schema=True)
            number = txn.commit().number
        assert number is not None
        return number

    def read(self, topic: str | list[str] | None = "t", schema: StructType | str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.read.format("txnsegment").option("serviceUrl", self.url).options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load() if topic is None else reader.load(topic)

    def scan(self, topic: str | list[str] | None = "t", **options: Any) -> DataFrame:
        return scan(self.spark, topic, serviceUrl=self.url, **options)

    def stream(self, topic: str | list[str] | None = "t", schema: StructType | None = None, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("txnsegment").option("serviceUrl", self.url).options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        if isinstance(topic, list):
            reader = reader.option("topics", json.dumps(topic))
            topic = None
        return reader.load() if topic is None else reader.load(topic)

    def start(self, df: DataFrame, checkpoint: str, batches: list[list[Row]]) -> StreamingQuery:
        """Run a query over the available rows, and append the rows of each micro-batch to `batches`. The query is stopped at the
        end of the test.
        """

        def keep(rows: DataFrame, batch: int) -> None:
            batches.append(rows.collect())

        query = (
            df.writeStream.option("checkpointLocation", str(self.folder / checkpoint)).foreachBatch(keep).trigger(availableNow=True)
        ).start()
        self.queries.append(query)
        return query

    def drain(self, df: DataFrame, checkpoint: str = "checkpoint") -> list[list[Row]]:
        """Return the rows of each micro-batch of an AvailableNow run. Empty micro-batches are left out."""
        batches: list[list[Row]] = []
        self.start(df, checkpoint, batches).awaitTermination()
        return [batch for batch in batches if batch]

    def files(self) -> list[str]:
        """Return all part files of the cluster, committed or not."""
        return sorted(str(p.relative_to(self.folder)) for p in (self.folder / "cluster").rglob("*.parquet*"))

    def close(self) -> None:
        for query in self.queries:
            query.stop()
        if self._cluster is not None:
            self._cluster.close()


@pytest.fixture
def here(spark: SparkSession, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(spark, tmp_path)
    yield deployment
    deployment.close()
