"""Measures the cost of a long history: latestOffset and a full batch plan over many folded ledgers, and the planning of a scan over
many parts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from benchmarks.measure import Report, folder, spark_session
from ledgers import snapshots
from ledgers.model import Ledger, Part
from ledgers.parts import PartWriter
from ledgers.storage import segment_folder
from metadata.client.client import Client, client
from metadata.cluster.cluster import open_cluster
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.records import Registration, SegmentWrite, Settled, Watermark
from spark_txn_source.batch import BatchReader
from spark_txn_source.following import MOST_SECONDS
from spark_txn_source.stream import StreamReader
from txnsegment import scan

SCHEMA = StructType([StructField("id", LongType())])


def folded(made: Client, name: str, first: int, last: int, part: Part) -> None:
    """Create a topic of one segment whose history is the folded ledgers `first` to `last`, with one part each. As after a sweep,
    the newest registration is still in the log. (The records are written directly, because another benchmark measures committing.)
    """
    cluster = made.cluster
    topic = made.topics.create(topic_name(name), schema=SCHEMA)
    (segment,) = topic.segments()
    write = SegmentWrite(parts=(part,), rows=part.rows, bytes=part.bytes, entries=1)
    now = cluster.store.view().now_ms()
    newest = Registration(publish_ms=now, segments={segment: write}, state=Settled.COMMITTED, txn="0_0")
    cluster.store.put(paths.LOG.key(last), newest.to_bytes())
    head = None
    for start in range(first, last + 1, 5000):
        found = [Ledger(n, now, f"0_{n}", (part,)) for n in range(start, min(start + 5000, last + 1))]
        mark = (found[-1].id, 0)
        head = snapshots.extend(cluster.storage, head, segment, found, watermark=mark, name=cluster.unique())
    cluster.store.put(paths.watermark(segment), Watermark(ledger_id=last, entry_id=0, snapshot=head).to_bytes())


def one_part(made: Client, topic: str) -> Part:
    """Write a part of ten rows, and return it."""
    name = topic_name(topic)
    path = segment_folder(name.tenant, name.namespace, name.name, "0000-ffff-0")
    schema = pa.schema([pa.field("id", pa.int64())])
    writer = PartWriter(made.cluster.storage, path, schema, 0, staging_id="bench")
    writer.write(pa.record_batch([pa.array(range(10), pa.int64())], schema=schema))
    part = writer.close()
    assert part is not None
    return part


def median_ms(action: Callable[[], object], runs: int = 15) -> float:
    taken = []
    for _ in range(runs + 2):
        started = time.perf_counter()
        action()
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken[2:])


def latest_offset_ms(reader: StreamReader) -> float:
    """Return the median of a full latestOffset, in milliseconds. A full latestOffset reads the log again, as after a commit. Before
    each call this function waits until the reading that the reader keeps is too old.
    """

    def waited() -> float:
        time.sleep(2 * MOST_SECONDS)
        started = time.perf_counter()
        reader.latestOffset(start, ReadAllAvailable())
        return (time.perf_counter() - started) * 1000

    start = reader.initialOffset()
    return statistics.median([waited() for _ in range(17)][2:])


def scan_planning(spark: SparkSession, root: Path, parts: int) -> float:
    """Measure the planning of a scan, from scan() to the physical plan, of a topic with this many parts. Return the milliseconds
    for each part.
    """
    url = f"file://{root}/scan"
    made = client(open_cluster(url))
    name = topic_name("many")
    topic = made.topics.create(name, schema=SCHEMA)
    found = [one_part(made, "many") for _ in range(parts)]
    totals = SegmentWrite(parts=tuple(found), rows=10 * parts, bytes=sum(p.bytes for p in found), entries=parts)
    registration = Registration(publish_ms=1, segments={topic.segments()[0]: totals})
    made.cluster.store.append(paths.LOG, registration.to_bytes())
    made.close()
    taken = []
    for _ in range(4):
        started = time.perf_counter()
        scan(spark, "many", serviceUrl=url)._jdf.queryExecution().executedPlan()
        taken.append((time.perf_counter() - started) * 1000 / parts)
    return statistics.median(taken[1:])


def run(*, large: int = 100_000, small: int = 1_000, parts: int = 4_000) -> Report:
    report = Report("History")
    with folder() as root:
        url = f"file://{root}/cluster"
        made = client(open_cluster(url))
        latest = {}
        for name, first, last in (("small", 1, small), ("large", small + 1, small + large)):
            folded(made, name, first, last, one_part(made, name))
            reader = StreamReader({"serviceurl": url, "path": name, "startingOffsets": "earliest"}, SCHEMA)
            latest[name] = latest_offset_ms(reader)
        batch = BatchReader({"serviceurl": url, "path": "large"}, SCHEMA)
        plan = median_ms(batch.partitions, runs=3) / 1000
        made.close()
        with spark_session() as spark:
            per_part = scan_planning(spark, root, parts)
    ratio = latest["large"] / latest["small"]
    report.claim(f"latestOffset with {large:,} folded ledgers, against {small:,}", ratio, 1.5, at_least=False)
    report.claim(f"a full batch plan over {large:,} ledgers", plan, 3, at_least=False, unit="s")
    report.claim(f"scan planning over {parts:,} parts, for each", per_part, 0.5, at_least=False, unit="ms")
    report.figures += [(f"latestOffset, {name}", f"{ms:.2f} ms") for name, ms in latest.items()]
    return report


if __name__ == "__main__":
    run().show()
