"""Measures the latency of a micro-batch of 20,000 rows, compared with a Python sink that drops the rows."""

from __future__ import annotations

import statistics
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.bare import BareSource
from benchmarks.measure import Report, folder, spark_session
from conformance.servers import ZooKeeperServer
from metadata.cluster.cluster import open_cluster

ROWS = 20_000
BATCHES = 30


def triggers(spark: SparkSession, root: Path, name: str, sink: str, options: dict[str, str], batches: int) -> list[int]:
    """Return the milliseconds of each trigger of a query that reads files of 20,000 rows, one file for each micro-batch."""
    source = spark.readStream.schema("id long, k string").option("maxFilesPerTrigger", 1).parquet(str(root / "input"))
    writer = source.writeStream.format(sink).option("checkpointLocation", str(root / f"checkpoint-{name}")).options(**options)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 10))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]


def run(*, batches: int = BATCHES) -> Report:
    report = Report(f"Micro-batches of {ROWS:,} rows, {batches} each, three rounds in turn")
    with folder() as root, ZooKeeperServer(root / "zookeeper") as server, spark_session() as spark:
        spark.dataSource.register(BareSource)
        for i in range(batches):
            rows = spark.range(i * ROWS, (i + 1) * ROWS).selectExpr("id", "concat('key-', id % 1000) k").coalesce(1)
            rows.write.mode("append").parquet(str(root / "input"))
        zookeeper = f"zk://{server.hosts}/bench"
        open_cluster(zookeeper, ledgers=f"file://{root}/zk-ledgers").close()
        sinks = {
            "no-op": ("bare", {}),
            "sqlite": ("txnsegment", {"serviceUrl": f"file://{root}/sqlite", "segments": "4", "keyColumn": "k"}),
            "zookeeper": ("txnsegment", {"serviceUrl": zookeeper, "segments": "4", "keyColumn": "k"}),
        }
        warm: dict[str, list[int]] = {name: [] for name in sinks}
        first: dict[str, int] = {}
        for turn in range(3):
            for name, (sink, options) in sinks.items():
                given = options | ({} if sink == "bare" else {"topic": f"t{turn}"})
                found = triggers(spark, root, f"{name}-{turn}", sink, given, batches)
                first.setdefault(name, found[0])
                warm[name] += found[2:]
    median = {name: statistics.median(found) for name, found in warm.items()}
    report.claim("SQLite, above a no-op sink", median["sqlite"] - median["no-op"], 40, at_least=False, unit="ms")
    report.claim("ZooKeeper, above a no-op sink", median["zookeeper"] - median["no-op"], 60, at_least=False, unit="ms")
    report.figures += [
        (f"{name}, median trigger", f"{ms:.0f} ms (the first of all: {first[name]} ms)") for name, ms in median.items()
    ]
    return report


if __name__ == "__main__":
    run().show()
