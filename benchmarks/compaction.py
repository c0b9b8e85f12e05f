"""Measures the speed of compaction, and compares reading many compacted commits with reading the same rows from one commit."""

from __future__ import annotations

import random
import time
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.measure import Report, alternating, folder, spark_session
from ledgers import snapshots
from ledgers.model import Ledger
from ledgers.parts import PartWriter
from metadata.client.client import Client
from metadata.records import paths
from metadata.records.folders import folder_of
from metadata.records.names import topic_name
from metadata.records.records import Registration, SegmentWrite, Settled, Watermark
from metadata.store.contract import time_ms
from txnsegment import connect, scan
from txnsegment.ddl import parse_schema

COMMITS, ROWS, ROW_BYTES = 100_000, 10, 92
"""Each commit has ten rows. A row has a number and 92 hard-to-compress bytes, so a commit has about one kilobyte."""
ARROW = pa.schema([("id", pa.int64()), ("payload", pa.binary())])
DDL = "id bigint, payload binary"


def rows(first: int, count: int) -> pa.RecordBatch:
    source = random.Random(first)
    return pa.record_batch(
        [pa.array(range(first, first + count), pa.int64()), [source.randbytes(ROW_BYTES) for _ in range(count)]], ARROW
    )


def commits(made: Client, name: str, count: int) -> None:
    """Create a topic of one segment with this many folded commits, in the state that a sweep leaves. Each commit has its own
    part file. (The records are written directly, because another benchmark measures committing.)
    """
    cluster = made.cluster
    topic = made.topics.create(topic_name(name), schema=parse_schema(DDL))
    (segment,) = topic.segments()
    place = folder_of(segment)
    head, now = None, time_ms(cluster.store)
    base = 1_000_000  # the log already has the commit to the topic `whole`, so the ledger ids must begin above its number
    for start in range(0, count, 5_000):
        found = []
        for number in range(start, min(start + 5_000, count)):
            writer = PartWriter(cluster.storage, place, ARROW, 0, staging_id="bench")
            writer.write(rows(number * ROWS, ROWS))
            part = writer.close()
            assert part is not None
            found.append(Ledger(base + number, now, f"0_{number}", (part,)))
        head = snapshots.extend(cluster.storage, head, segment, found, watermark=(found[-1].id, 0), name=cluster.unique())
    last = found[-1]
    write = SegmentWrite(parts=last.parts, rows=ROWS, bytes=last.parts[0].bytes, entries=1)
    newest = Registration(publish_ms=now, segments={segment: write}, state=Settled.COMMITTED, txn="0_0")
    cluster.store.put(paths.LOG.key(last.id), newest.to_bytes())
    cluster.store.put(paths.watermark(segment), Watermark(ledger_id=last.id, entry_id=0, snapshot=head).to_bytes())


def read(spark: SparkSession, url: str, topic: str) -> None:
    """Read every value of a topic into the JVM, which drops it."""
    frame = spark.read.format("txnsegment").option("serviceUrl", url).load(topic)
    frame.write.format("noop").mode("overwrite").save()


def scanned(spark: SparkSession, url: str, topic: str) -> None:
    scan(spark, topic, serviceUrl=url).write.format("noop").mode("overwrite").save()


def run(count: int = COMMITS) -> Report:
    report = Report(f"compaction: {count:,} commits of one kilobyte")
    with folder() as root, spark_session() as spark:
        url = f"file://{root}/cluster"
        with connect(url) as cluster:
            cluster.topics.create("whole", schema=DDL)
            with cluster.begin(app="whole", version=1, timeout=300) as txn:
                txn.append("whole", (rows(n * ROWS, 1000 * ROWS) for n in range(0, count, 1000)))
                txn.commit()
            commits(cluster.client, "small", count)
            started = time.perf_counter()
            done = cluster.compact("small")
            taken = time.perf_counter() - started
        report.figures.append(
            ("compacting", f"{done.parts / taken:,.0f} parts a second, {done.files_before} files became {done.files_after}")
        )
        for what, reader in (("the source", read), ("scan()", scanned)):
            seconds = alternating({name: partial(reader, spark, url, name) for name in ("whole", "small")})
            note = f"{seconds['whole']:.2f} s written in one go, {seconds['small']:.2f} s compacted"
            report.claim(f"reading by {what}", seconds["whole"] / seconds["small"], 0.7, at_least=True, note=note)
    return report
