"""A streaming job splits a topic into three topics in two namespaces, writes and acknowledges in one transaction, and is killed.

The flights of 2013 are in a topic, one transaction for each day. A streaming job reads them, some days at a time, and writes each
micro-batch into three topics: punctual flights, late flights, and flights that never arrived. The three writes and the
acknowledgement of the flights are one transaction. Its version is the id of the micro-batch, so it commits exactly once. The job is
killed in the middle of two commits and started again.

    python examples/split_flights.py     exits with 1 if a count is wrong
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import pyarrow as pa
import pyarrow.compute as pc
from jobs import all_right, console, job, make_cluster, run_and_kill, session
from nycflights import by_day, source_file
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txnsegment import Cluster, connect

FLIGHTS = "topic://public/default/flights"
PUNCTUAL, LATE, NEVER = "topic://air/arrivals/punctual", "topic://air/arrivals/late", "topic://air/operations/never"
NAME = "split"
"""The name of the application, and of the subscription on which the job acknowledges."""
LATE_MINUTES = 15
KILL_AFTER_BATCHES = (3, 8)

HERE = Path(__file__).resolve().parents[1] / "out" / "split"
SERVICE_URL = (HERE / "cluster").as_uri()


def feed(cluster: Cluster, flights: pa.Table) -> int:
    """Create the topic of flights and its subscription. Write the flights, one transaction for each day. Returns how many
    transactions there are.
    """
    cluster.topics.create(FLIGHTS, segments=4, key="tailnum", schema=flights.schema)
    cluster.subscriptions.create(FLIGHTS, NAME)
    days = dict(by_day(flights))
    for day, rows in days.items():
        with cluster.begin(app="airport", version=day.toordinal()) as txn:
            txn.append(FLIGHTS, rows)
            txn.commit()
    return len(days)


def stream() -> None:
    """Run the streaming job. After a restart it continues from its checkpoint."""
    spark, cluster = session("split", SERVICE_URL), connect(SERVICE_URL)

    def split(batch: DataFrame, version: int) -> None:
        batch.persist()
        delay = F.col("arr_delay")
        parts = {PUNCTUAL: delay <= LATE_MINUTES, LATE: delay > LATE_MINUTES, NEVER: delay.isNull()}
        with cluster.transaction(app=NAME, version=version) as txn:
            txn.acknowledge_rows(batch, subscription=NAME)
            for topic, wanted in parts.items():
                rows = batch.where(wanted).drop("__topic", "__segment", "__messageId", "__publishTime", "__txnId")
                rows.write.format("txnsegment").mode("append").options(**txn.options).option("keyColumn", "tailnum").save(topic)
        batch.unpersist()

    days = spark.readStream.format("txnsegment").option("startingOffsets", "earliest").option("includeMetadata", "true")
    query = days.option("maxRowsPerTrigger", 10_000).load(FLIGHTS).writeStream.foreachBatch(split)
    query.option("checkpointLocation", str(HERE / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    cluster.close()
    spark.stop()


def expected(flights: pa.Table) -> dict[str, tuple[int, int]]:
    """Return, for each topic, the number of flights and the sum of their distances in miles, computed by pyarrow only."""
    delay = flights["arr_delay"]
    parts = {PUNCTUAL: pc.less_equal(delay, LATE_MINUTES), LATE: pc.greater(delay, LATE_MINUTES), NEVER: pc.is_null(delay)}
    found = {topic: flights.filter(wanted) for topic, wanted in parts.items()}
    return {topic: (rows.num_rows, pc.sum(rows["distance"]).as_py()) for topic, rows in found.items()}


def read_back() -> dict[str, tuple[int, int]]:
    """Read the topics. Return the values that `expected` returns."""
    spark = session("split: read back", SERVICE_URL)
    found = {}
    for topic in (PUNCTUAL, LATE, NEVER):
        row = spark.read.format("txnsegment").load(topic).agg(F.count("*"), F.sum("distance")).first()
        assert row is not None  # an aggregate without groups has one row
        found[topic] = (int(row[0]), int(row[1]))
    spark.stop()
    return found


def start(number: int) -> AbstractContextManager[Popen[bytes]]:
    return job([sys.executable, __file__, "--job"], HERE / "logs" / f"split-{number}.txt")


def main() -> int:
    began = time.monotonic()
    if HERE.exists():
        shutil.rmtree(HERE)
    flights = source_file()
    make_cluster(SERVICE_URL)
    with connect(SERVICE_URL) as cluster:
        days = feed(cluster, flights)
        console.print(f"{flights.num_rows:,} flights of 2013 in {days} transactions")
        killed = run_and_kill(cluster, start, [days + batches for batches in KILL_AFTER_BATCHES])
        left = cluster.subscriptions.describe(FLIGHTS, NAME).lag
        still_open = cluster.transactions.list("OPEN")
        ended = {txn.id: txn.state for txn in cluster.transactions.list() if txn.app == NAME}
    found, wanted = read_back(), expected(flights)
    checks: list[tuple[str, object, object]] = []
    for topic in wanted:
        name = topic.rpartition("/")[2]
        checks.append((f"flights in {name}", found[topic][0], wanted[topic][0]))
        checks.append(("    and their miles", found[topic][1], wanted[topic][1]))
    checks += [
        ("flights in all three", sum(count for count, _ in found.values()), flights.num_rows),
        ("flights not acknowledged", left.rows, 0),
        (
            "transactions aborted, one a kill",
            sorted(txn for txn, state in ended.items() if state == "ABORTED"),
            sorted(killed),
        ),
        ("transactions left OPEN", len(still_open), 0),
    ]
    right = all_right(f"Split by a job that was started {len(killed) + 1} times", checks)
    console.print(f"{time.monotonic() - began:.0f} s")
    if right:
        console.print("[bold green]Every flight in one topic, once, and acknowledged.[/]")
    return 0 if right else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", action="store_true", help="run only the streaming job")
    if parser.parse_args().job:
        stream()
    else:
        sys.exit(main())
