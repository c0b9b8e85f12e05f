"""Measures the trigger time of a micro-batch of 1,000 rows into 4 segments of a live Pulsar broker, beside that of Spark's no-op
sink: `python -m benchmarks.pulsar_triggers`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import uuid
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import Report, folder, machine, spark_session
from conformance.pulsar_server import PulsarBroker

ROWS = 1_000
BATCHES = 30
WARM = 5
"""How many batches at the start of each query do not count, because workers, connections and the broker's code start in them."""


def triggers(spark: SparkSession, root: Path, name: str, sink: str, options: dict[str, str], batches: int) -> list[int]:
    """Return the milliseconds of each trigger of a query that reads files of 1,000 rows, one file for each micro-batch."""
    source = spark.readStream.schema("id long, k string, value binary").option("maxFilesPerTrigger", 1).parquet(str(root / "input"))
    rows = source.select("k", "value")
    writer = rows.writeStream.format(sink).option("checkpointLocation", str(root / f"checkpoint-{name}")).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]


def measure(spark: SparkSession, root: Path, sinks: dict[str, tuple[str, dict[str, str]]], batches: int, rounds: int) -> Report:
    """Run the queries of the sinks in turn, so that all sinks see the same load of the machine. Return the report."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 10))
    for i in range(batches):
        rows = spark.range(i * ROWS, (i + 1) * ROWS).selectExpr(
            "id", "concat('key-', id % 100) k", "cast(lpad(id, 100, '0') as binary) value"
        )
        rows.coalesce(1).write.mode("append").parquet(str(root / "input"))
    warm: dict[str, list[int]] = {name: [] for name in sinks}
    first: dict[str, int] = {}
    for turn in range(rounds):
        for name, (sink, options) in sinks.items():
            found = triggers(spark, root, f"{name}-{turn}", sink, options, batches)
            first.setdefault(name, found[0])
            warm[name] += found[WARM:]
    median = {name: statistics.median(found) for name, found in warm.items()}
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    report = Report(f"Micro-batches of {ROWS:,} rows, {batches} each, {rounds} rounds in turn")
    report.claim(
        "Pulsar, above the no-op sink", median["pulsar"] - median["no-op"], 150, at_least=False, unit="ms", note=f"load {load}"
    )
    for name, found in warm.items():
        quarters = statistics.quantiles(found, n=4)
        told = f"{median[name]:.0f} ms (quartiles {quarters[0]:.0f} and {quarters[2]:.0f}; the first of all: {first[name]} ms)"
        report.figures.append((f"{name}, median trigger", told))
    return report


def run(*, batches: int = BATCHES, rounds: int = 2, batching: bool = False) -> Report:
    """Run the benchmark on a new broker. `batching`: whether the broker collects writes to its metadata store for 5 ms, as it does
    by default.
    """
    settings = {"metadataStoreBatchingEnabled": batching}
    with folder() as root, PulsarBroker(root / "broker", settings=settings) as broker, spark_session() as spark:
        topic = broker.create(f"triggers-{uuid.uuid4().hex}", 4)
        options = {"serviceUrl": broker.url, "adminUrl": broker.admin_url, "topic": topic, "keyColumn": "k"}
        return measure(spark, root, {"no-op": ("noop", {}), "pulsar": ("txnsegment", options)}, batches, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pulsar_triggers", description=__doc__)
    parser.add_argument("--batches", type=int, default=BATCHES, help=f"of each query (default {BATCHES})")
    parser.add_argument("--rounds", type=int, default=2, help="the queries of each sink (default 2)")
    parser.add_argument("--batching", action="store_true", help="let the broker collect writes of metadata for 5 ms, its default")
    given = parser.parse_args()
    sys.stdout.write(machine() + "\n")
    report = run(batches=given.batches, rounds=given.rounds, batching=given.batching)
    report.show()
    return 1 if any(not one.holds for one in report.claims) else 0


if __name__ == "__main__":
    sys.exit(main())
