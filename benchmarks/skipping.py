"""Measures how many of 10,000 parts a scan opens for one key and for one hour, and what the statistics cost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Report, alternating, folder, spark_session
from ledgers import snapshots
from ledgers.model import Ledger, Part
from ledgers.parts import PartWriter
from ledgers.storage import LedgerStorage
from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.common.clock import SystemClock
from metadata.records import paths
from metadata.records.folders import folder_of
from metadata.records.names import key_hash, segment_name, topic_name
from metadata.records.records import Registration, Settled, Watermark
from metadata.store.contract import time_ms
from metadata.write.write_set import segment_write
from spark_txn_source import catalyst
from spark_txn_source.pieces import large_pieces
from spark_txn_source.skipping import left
from txnsegment import connect, scan
from txnsegment.ddl import parse_schema

PARTS, ROWS, KEYS, SEGMENTS, HOURS = 10_000, 20, 100_000, 4, 1_000
DDL = "k string, at timestamp, n bigint, amount double, word string"
ARROW = pa.schema(
    [
        ("k", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("amount", pa.float64()),
        ("word", pa.string()),
    ]
)
HOUR = 3_600_000_000
FIRST = 490_000 * HOUR
"""The first hour of the rows. It lies in the year 2025."""


def rows(keys: list[str], number: int) -> pa.RecordBatch:
    """Return the rows of the part `number`. Ten parts share an hour."""
    source = random.Random(number)
    hour = FIRST + number * HOURS // PARTS * HOUR
    return pa.record_batch(
        [
            source.choices(keys, k=ROWS),
            pa.array(sorted(hour + source.randrange(HOUR) for _ in range(ROWS)), ARROW[1].type),
            pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64()),
            [source.random() for _ in range(ROWS)],
            [f"word {source.randrange(1000)}" for _ in range(ROWS)],
        ],
        schema=ARROW,
    )


def written(storage: LedgerStorage, place: str, batch: pa.RecordBatch, *, statistics: bool = True) -> Part:
    writer = PartWriter(storage, place, ARROW, 0, staging_id="bench", key="k", statistics=statistics)
    writer.write(batch)
    part = writer.close()
    assert part is not None
    return part


def fill(made: Client, name: str) -> tuple[int, int]:
    """Create a topic of folded parts in the state that a sweep leaves. Return the bytes of its index snapshots, and what they would
    have without statistics. (The records are written directly, because another benchmark measures committing.)
    """
    cluster = made.cluster
    topic = made.topics.create(topic_name(name), segments=SEGMENTS, key="k", schema=parse_schema(DDL))
    now, sizes, newest = time_ms(cluster.store), [0, 0], {}
    segments = topic.segments()
    for index, segment in enumerate(segments):
        at = segment_name(segment).hash_range
        keys = [f"customer-{n}" for n in range(KEYS) if at.start <= key_hash(f"customer-{n}".encode()) <= at.end]
        found = [
            Ledger(number + 1, now, f"0_{number}", (written(cluster.storage, folder_of(segment), rows(keys, number)),))
            for number in range(index, PARTS, len(segments))
        ]
        end = (PARTS, 0)
        bare = [replace(ledger, parts=tuple(part.bare() for part in ledger.parts)) for ledger in found]
        for place, (which, ledgers) in enumerate(((segment, found), (segment, bare))):
            path = snapshots.extend(cluster.storage, None, which, ledgers, watermark=end, name=cluster.unique())
            files = snapshots.files(snapshots.read_head(cluster.storage, path))
            sizes[place] += sum(info[0] for info in cluster.storage.infos(files) if info is not None)
            if not place:
                cluster.store.put(paths.watermark(segment), Watermark(ledger_id=PARTS, entry_id=0, snapshot=path).to_bytes())
        newest[segment] = found[-1]
    last = next(s for s, ledger in newest.items() if ledger.id == PARTS)
    write = Registration(publish_ms=now, segments={last: segment_write(newest[last].parts)}, state=Settled.COMMITTED, txn="0_0")
    cluster.store.put(paths.LOG.key(PARTS), write.to_bytes())
    return sizes[0], sizes[1]


def opened(made: Client, spark: SparkSession, where: str) -> tuple[int, float]:
    """Return how many parts a scan with the filter opens, and the seconds for looking at the statistics."""
    reading = log_of(made, str(topic_name("t"))).now()
    found = [piece for s in reading.segments for piece in large_pieces(s, 0, reading.cut, marks=False)]
    assert len(found) == PARTS
    conditions = catalyst.conditions(spark, where, parse_schema(DDL))
    started = time.perf_counter()
    kept = left(found, conditions)
    return len(kept), time.perf_counter() - started


def seconds_of(frame: Callable[[], DataFrame]) -> tuple[int, float]:
    started = time.perf_counter()
    count = len(frame().collect())
    return count, time.perf_counter() - started


def scanning(spark: SparkSession, url: str, report: Report, what: str, where: str) -> None:
    """Compare the time of a scan that skips parts with the time of one that opens them all."""
    many, skipping = seconds_of(lambda: scan(spark, "t", serviceUrl=url, where=where))
    same, every = seconds_of(lambda: scan(spark, "t", serviceUrl=url).where(where))
    assert many == same
    note = f"{skipping:.2f} s, {every:.2f} s without, {many} rows"
    report.claim(f"scan for {what}, of the time without skipping", skipping / every, 0.5, at_least=False, note=note)


def writing(storage: LedgerStorage, report: Report) -> None:
    """Compare the time for writing parts with and without statistics, and the records of a micro-batch of 500 segments."""
    keys = [f"customer-{n}" for n in range(KEYS)]
    batches = [rows(keys, number) for number in range(200)]

    def write(*, statistics: bool) -> None:
        for batch in batches:
            written(storage, "cost", batch, statistics=statistics)

    small = alternating({"with": partial(write, statistics=True), "without": partial(write, statistics=False)})
    each = (small["with"] - small["without"]) / len(batches) * 1e6
    report.figures.append(("statistics of a part of 20 rows", f"{each:.0f} us, {small['with'] / small['without']:.2f} of the time"))
    part = written(storage, "cost", batches[0])
    segments = {f"segment://public/default/t/{n:04x}-{n:04x}-{n}": segment_write([part]) for n in range(500)}
    whole = len(Registration(publish_ms=SystemClock().now_ms(), segments=segments, txn="0_0").to_bytes())
    bare = {name: segment_write([part.bare()]) for name in segments}
    plain = len(Registration(publish_ms=SystemClock().now_ms(), segments=bare, txn="0_0").to_bytes())
    report.claim(
        "the record of a micro-batch of 500 segments",
        whole / 1000,
        524,
        at_least=False,
        unit="KB",
        note=f"{plain / 1000:.0f} KB without statistics",
    )


def run() -> Report:
    report = Report(f"skipping: {PARTS:,} parts of {ROWS} rows, {KEYS:,} keys, {SEGMENTS} segments, {HOURS:,} hours")
    with folder() as root, spark_session() as spark:
        url = f"file://{root}/cluster"
        with connect(url) as cluster:
            with_them, without = fill(cluster.client, "t")
            report.figures.append(
                (
                    "index snapshots",
                    f"{with_them / PARTS:.0f} bytes a part with statistics, {without / PARTS:.0f} without",
                )
            )
            at = f"timestamp_micros({FIRST + 500 * HOUR})"
            later = f"timestamp_micros({FIRST + 501 * HOUR})"
            for what, where, timed in (
                ("one key", "k = 'customer-4711'", True),
                ("a key that is not there", "k = 'nobody'", False),
                ("one hour", f"at >= {at} and at < {later}", True),
                ("one number", "n = 77777", False),
            ):
                found, seconds = opened(cluster.client, spark, where)
                report.claim(
                    f"parts opened for {what}",
                    100 * found / PARTS,
                    2,
                    at_least=False,
                    unit="%",
                    note=f"{found} parts, found in {seconds:.2f} s",
                )
                if timed:
                    scanning(spark, url, report, what, where)
            writing(cluster.client.cluster.storage, report)
    return report
