"""Measures the cost of segments and topics: a keyed write into 64 segments, planning over 64 segments with a long history, and
commits over up to 256 segments or topics.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.commits import lay, write_set
from benchmarks.history import SCHEMA, latest_offset_ms, median_ms, one_part
from benchmarks.measure import Report, alternating, folder, spark_session
from benchmarks.throughput import Cases, make_rows
from conformance.harness.faulty_store import FaultyStore
from conformance.harness.round_trips import Counting
from conformance.servers import ZooKeeperServer
from ledgers import snapshots
from ledgers.model import Ledger, Part
from metadata.client.client import Client, client
from metadata.cluster.cluster import open_cluster
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.names import topic_name
from metadata.records.records import Registration, SegmentWrite, Settled, Watermark
from metadata.write.coordinator import Coordinator
from spark_txn_source.stream import StreamReader
from txnsegment import connect

SEGMENTS = 64
BATCH = 20_000
FOLDED = Settings().fold_after_registrations
SPREADS = (1, 4, 16, 64, 256)
"""How many segments, or how many topics with one segment each, one transaction has."""


def folded(made: Client, name: str, first: int, each: int, part: Part, *, segments: int = SEGMENTS) -> int:
    """Create a topic of this many segments. Each segment has `each` folded ledgers, from transactions over all segments. The newest
    registration is still in the log. Return the number of this registration.

    As after a sweep, the ledgers of the last fold (at most 64) are in the heads of the snapshots. (The records are written
    directly, because another benchmark measures committing.)
    """
    cluster = made.cluster
    topic = made.topics.create(topic_name(name), segments=segments, schema=SCHEMA)
    write = SegmentWrite(parts=(part,), rows=part.rows, bytes=part.bytes, entries=1)
    now = cluster.store.view().now_ms()
    last = first + each - 1
    for segment in topic.segments():
        head = None
        bounds = [*range(first, max(first, last - FOLDED + 1), 5000), max(first, last - FOLDED + 1), last + 1]
        for start, end in pairwise(bounds):
            found = [Ledger(n, now, f"0_{n}", (part,)) for n in range(start, end)]
            mark = (found[-1].id, 0)
            head = snapshots.extend(cluster.storage, head, segment, found, watermark=mark, name=cluster.unique())
        cluster.store.put(paths.watermark(segment), Watermark(ledger_id=last, entry_id=0, snapshot=head).to_bytes())
    newest = Registration(publish_ms=now, segments=dict.fromkeys(topic.segments(), write), state=Settled.COMMITTED, txn="0_0")
    cluster.store.put(paths.LOG.key(last), newest.to_bytes())
    return last


def plan_newest(reader: StreamReader, last: int) -> None:
    """Plan a micro-batch over the ten newest transactions."""
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    start = {**end, "log": last - 10}
    assert reader.partitions(start, end)


def history(report: Report, root: Path, large: int, small: int) -> None:
    url = f"file://{root}/history"
    made = client(open_cluster(url))
    latest, plan, first = {}, {}, 1
    for name, ledgers in (("small", small), ("large", large)):
        each = ledgers // SEGMENTS
        last = folded(made, name, first, each, one_part(made, name))
        first = last + 1
        reader = StreamReader({"serviceurl": url, "path": name, "startingOffsets": "earliest"}, SCHEMA)
        latest[name] = latest_offset_ms(reader)
        plan[name] = median_ms(partial(plan_newest, reader, last))
    made.close()
    for what, found in (("latestOffset", latest), ("the plan of a micro-batch", plan)):
        text = f"{what}, {SEGMENTS} segments with {large:,} folded ledgers, against {small:,}"
        report.claim(text, found["large"] / found["small"], 1.5, at_least=False, note=f"{found['large']:.1f} ms")


@dataclass
class Timed(Coordinator):
    """A coordinator that times its decisions. `deciding`: seconds of each deciding CAS. `busy_ms`: the time for which the
    process does other work right before the CAS.
    """

    deciding: list[float] = field(default_factory=list)
    busy_ms: float = 0.0

    def _decide(self, opened, work, number):  # type: ignore[no-untyped-def]
        until = time.perf_counter() + self.busy_ms / 1000
        while time.perf_counter() < until:
            json.loads(json.dumps([{"name": str(i), "ends": [i, i + 1]} for i in range(500)]))
        started = time.perf_counter()
        super()._decide(opened, work, number)
        self.deciding.append(time.perf_counter() - started)


def spread(url: str, segments: int, topics: int, runs: int, *, busy_ms: float = 0.0) -> tuple[int, float, float]:
    """Return three figures of a transaction over this many topics with this many segments each: sequential round trips, the median
    ms of the whole commit, and the ms of the fastest deciding CAS. (The fastest CAS is the measure, because other processes on the
    machine can only make a CAS slower.)
    """
    cluster = open_cluster(url)
    counting = Counting()
    cluster.store = FaultyStore(cluster.store, counting)
    made = client(cluster)
    names = [topic_name(f"spread-{cluster.unique()}-{i}") for i in range(topics)]
    found = [s for name in names for s in made.topics.create(name, segments=segments).segments()]
    timed = Timed(cluster, lambda job: None, made.buffer.log, busy_ms=busy_ms)  # skips the work for which a commit does not wait
    lay(cluster.storage, names[0].name)
    taken, trips = [], 0
    for version in range(runs + 3):
        one = write_set("", found, names[0].name, version, cluster.store.view().now_ms())
        counting.reset()
        started = time.perf_counter()
        timed.commit(one)
        taken.append((time.perf_counter() - started) * 1000)
        trips = counting.trips
    made.close()
    return trips, statistics.median(taken[3:]), min(timed.deciding[3:]) * 1000


def commits(report: Report, name: str, url: str, runs: int) -> None:
    cas, trips = {}, {}
    for kind in ("segments", "topics"):
        figures, whole = [], {}
        for count in SPREADS:
            wide = (count, 1) if kind == "segments" else (1, count)
            trips[kind, count], whole[count], cas[kind, count] = spread(url, *wide, runs)
            figures.append(f"{count}: {whole[count]:.1f} ms, CAS {cas[kind, count]:.2f} ms, {trips[kind, count]} round trips")
        # The deciding CAS of a wide commit comes after much work of the same process. So it is compared with a CAS that comes after
        # other work of the same duration.
        widest = whole[SPREADS[-1]]
        busy = spread(url, 1, 1, runs, busy_ms=widest)[2]
        figures.append(f"1 after {widest:.1f} ms of other work: CAS {busy:.2f} ms")
        report.figures.append((f"{name}, a commit over so many {kind}", "; ".join(figures)))
        text = f"{name}: the deciding CAS with {SPREADS[-1]} {kind}, against 1 after as long at work"
        report.claim(text, cas[kind, SPREADS[-1]] / busy, 1.5, at_least=False)
    text = f"{name}: spread of the round trips over all of them"
    report.claim(text, max(trips.values()) - min(trips.values()), 0, at_least=False, unit="")


def rerouting(report: Report, root: Path, runs: int) -> None:
    """Report the time of a commit of 20,000 rows in four segments, all of which are split between staging and commit. The commit
    finds the seals, aborts, writes its parts again for the children, and commits the new parts. The report compares this time with
    the time of the same commit without a split.
    """
    taken: dict[str, list[float]] = {"calm": [], "split": []}
    rows = pa.table({"k": [f"key-{i % 1_000}" for i in range(BATCH)], "payload": [f"{i:0100d}" for i in range(BATCH)]})
    with connect(f"file://{root}/rerouting") as cluster:
        for i in range(runs):
            for name, found in taken.items():
                topic = cluster.topics.create(f"{name}-{i}", segments=4, key="k", schema="k string, payload string")
                with cluster.begin() as transaction:
                    transaction.append(topic.name, rows)
                    for segment in topic.segments if name == "split" else ():
                        cluster.topics.split(topic.name, segment.id)
                    started = time.perf_counter()
                    transaction.commit()
                    found.append(time.perf_counter() - started)
    text = f"a commit of {BATCH:,} rows that meets the splits of its four segments, the slowest of {runs}"
    calm = statistics.median(taken["calm"]) * 1000
    report.claim(text, max(taken["split"]), 1, at_least=False, unit="s", note=f"without: {calm:.0f} ms")


def writing(report: Report, root: Path, rows: int, runs: int) -> None:
    with spark_session() as spark:
        make_rows(root / "input", rows)
        cases = Cases(spark, root)
        one = partial(cases.write, "one", {"keyColumn": "k", "segments": "1"})
        many = partial(cases.write, "many", {"keyColumn": "k", "segments": str(SEGMENTS)})
        found = alternating({"one": one, "many": many, "parquet": cases.write_spark}, runs=runs)
    per_second = {name: rows / seconds for name, seconds in found.items()}
    text = f"keyed write of {rows:,} rows into {SEGMENTS} segments"
    report.figures.append(
        (
            text,
            f"{per_second['many']:,.0f} rows/s: {per_second['many'] / per_second['one']:.2f} of the same into one segment, "
            f"{per_second['many'] / per_second['parquet']:.2f} of write.parquet",
        )
    )


def run(*, large: int = 1_000_000, small: int = 1_024, commits_each: int = 30, rows: int = 2_000_000, runs: int = 3) -> Report:
    report = Report("Segments")
    with folder() as root:
        history(report, root, large, small)
        commits(report, "sqlite", f"file://{root}/commits", commits_each)
        rerouting(report, root, commits_each)
        with ZooKeeperServer(root / "zookeeper") as server:
            url = f"zk://{server.hosts}/bench"
            client(open_cluster(url, ledgers=f"file://{root}/zk-ledgers")).close()
            commits(report, "zookeeper", url, commits_each)
        if rows:
            writing(report, root, rows, runs)
    return report


if __name__ == "__main__":
    run().show()
