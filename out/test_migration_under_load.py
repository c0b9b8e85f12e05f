"""A running query writes to a persistent topic and another one reads it while `txnsegment topics migrate` runs: both go on, and
every row is there exactly once and in order. (On ZooKeeper, and under kills: `python -m conformance.chaos --only migrate`.)
"""

from __future__ import annotations

import threading
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from typer.testing import CliRunner

from conformance.chaos.reading import position_of
from txnsegment.cli.app import build

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming import StreamingQuery

    from tests.spark.conftest import Deployment

X, TO = "persistent://public/default/x", "topic://public/default/went-on"
ROWS = 5


def place(row: Row) -> tuple[bool, tuple[int, int, int]]:
    """What was migrated comes first, each part by numbers of its own log."""
    return not row["__segment"].startswith("persistent://"), position_of(row["__messageId"])


def check(batches: list[list[Row]], count: int) -> None:
    """The writer's micro-batches follow each other, so their rows do, transaction by transaction."""
    assert sorted(row["n"] for rows in batches for row in rows) == list(range(count))
    highest = -1
    for rows in batches:
        for _, some in groupby(sorted(rows, key=place), key=lambda row: row["__txnId"]):
            numbers = [row["n"] for row in some]
            assert min(numbers) > highest
            highest = max(numbers)


def test_both_queries_go_on_while_the_topic_migrates(here: Deployment) -> None:
    batches: list[list[Row]] = []
    seen = threading.Event()
    here.cluster.topics.create("in", schema="n bigint")
    here.cluster.topics.create(X, schema="n bigint")

    def feed(times: range) -> None:
        for i in times:
            here.append("in", pa.table({"n": pa.array(range(i * ROWS, (i + 1) * ROWS), pa.int64())}))

    def keep(rows: DataFrame, batch: int) -> None:
        if found := rows.collect():
            batches.append(found)
            seen.set()

    def start() -> list[StreamingQuery]:
        writing = (
            here.stream("in", startingOffsets="earliest", maxRowsPerTrigger=ROWS)
            .writeStream.format("txnsegment")
            .option("serviceUrl", here.url)
            .option("checkpointLocation", str(here.folder / "writing"))
            .start(X)
        )
        reading = (
            here.stream(X, startingOffsets="earliest", includeMetadata="true")
            .writeStream.option("checkpointLocation", str(here.folder / "reading"))
            .foreachBatch(keep)
            .start()
        )
        here.queries += [writing, reading]
        return [writing, reading]

    feed(range(8))
    running = start()
    assert seen.wait(120), [query.exception() for query in running]
    done = CliRunner().invoke(build(), ["--service-url", here.url, "topics", "migrate", X, "--to", TO, "--wait", "60"])
    assert done.exit_code == 0, done.output
    assert f"Migrated {X} to {TO}" in done.output
    feed(range(8, 10))
    for query in running:
        query.processAllAvailable()
        query.stop()
    check(batches, 10 * ROWS)
    segments = {row["__segment"].partition(":")[0] for rows in batches for row in rows}
    assert segments == {"persistent", "segment"}

    commits = here.folder / "writing" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()  # Spark never heard of its commit, and runs it again: it was committed in one topic or the other
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    feed(range(10, 12))
    for query in start():
        query.processAllAvailable()
    check(batches, 12 * ROWS)
    for name in (X, TO):
        assert sorted(row["n"] for row in here.read(name).collect()) == list(range(12 * ROWS))
