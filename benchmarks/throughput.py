"""Measures the speed of writing and reading 4 M rows of (bigint, string key, 100 hard-to-compress bytes, timestamp) on local[2]."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.bare import BareSource
from benchmarks.measure import Report, alternating, folder, spark_session
from txnsegment import scan

ROWS = 4_000_000


def make_rows(path: Path, rows: int = ROWS) -> None:
    """Write the input of all writers: two Parquet files with half of the rows each."""
    import numpy as np

    random = np.random.default_rng(7)
    path.mkdir()
    for half in range(2):
        count = rows // 2
        ids = np.arange(half * count, (half + 1) * count)
        payload = pa.FixedSizeBinaryArray.from_buffers(pa.binary(100), count, [None, pa.py_buffer(random.bytes(count * 100))])
        table = pa.table(
            {
                "id": ids,
                "k": pa.array([f"key-{i}" for i in random.integers(0, 100_000, count)]),
                "payload": payload.cast(pa.binary()),
                "ts": pa.array(ids * 1000, pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, path / f"half-{half}.parquet", compression="zstd", row_group_size=200_000)


class Cases:
    """The writers and readers that are compared."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.url = f"file://{root}/cluster"
        self.input = spark.read.parquet(str(root / "input"))
        self.turn = 0
        (root / "bare").mkdir()

    def fresh(self, name: str) -> Path:
        self.turn += 1
        path = self.root / f"{name}-{self.turn}"
        path.mkdir()
        return path

    def write_bare(self) -> None:
        path = self.fresh("bare")
        self.input.write.format("bare").option("folder", str(path)).mode("append").save()
        shutil.rmtree(path)

    def write_spark(self) -> None:
        path = self.fresh("spark")
        self.input.write.mode("overwrite").option("compression", "zstd").parquet(str(path))
        shutil.rmtree(path)

    def write_plain(self) -> None:
        self.write("plain", {})

    def write_keyed(self) -> None:
        self.write("keyed", {"keyColumn": "k", "segments": "4"})

    def write(self, name: str, options: dict[str, str]) -> None:
        self.turn += 1
        writer = self.input.write.format("txnsegment").option("serviceUrl", f"file://{self.root}/written").options(**options)
        writer.mode("append").save(f"{name}-{self.turn}")

    def read_bare(self, **options: str) -> None:
        files = ",".join(sorted(str(p) for p in (self.root / "cluster/ledgers").rglob("*.parquet")))
        reader = self.spark.read.format("bare").option("files", files).options(**options)
        reader.option("schema", "id long, k string, payload binary, ts timestamp").load().write.format("noop").mode(
            "overwrite"
        ).save()

    def read_spark(self) -> None:
        path = str(self.root / "native")
        self.spark.read.parquet(path).write.format("noop").mode("overwrite").save()

    def read_ours(self, **options: str) -> None:
        reader = self.spark.read.format("txnsegment").option("serviceUrl", self.url).options(**options)
        reader.load("t").write.format("noop").mode("overwrite").save()

    def scan_ours(self) -> None:
        scan(self.spark, "t", serviceUrl=self.url).write.format("noop").mode("overwrite").save()

    def column_spark(self) -> None:
        self.spark.read.parquet(str(self.root / "native")).where("id % 1000 = 7 and id > 3000000").select(F.sum("id")).collect()

    def column_scan(self) -> None:
        scan(self.spark, "t", serviceUrl=self.url).where("id % 1000 = 7 and id > 3000000").select(F.sum("id")).collect()


def run(*, rows: int = ROWS, runs: int = 5) -> Report:
    report = Report(f"Throughput, {rows:,} rows of (bigint, string, 100 bytes, timestamp), local[2]")
    with folder() as root, spark_session() as spark:
        spark.dataSource.register(BareSource)
        make_rows(root / "input", rows)
        cases = Cases(spark, root)
        w = alternating(
            {
                "bare": cases.write_bare,
                "spark": cases.write_spark,
                "plain": cases.write_plain,
                "keyed": cases.write_keyed,
            },
            runs=runs,
        )
        cases.input.write.format("txnsegment").option("serviceUrl", cases.url).mode("append").save("t")
        cases.input.write.mode("overwrite").option("compression", "zstd").parquet(str(root / "native"))
        r = alternating(
            {
                "bare": cases.read_bare,
                "bare, two tasks": lambda: cases.read_bare(tasks="2"),
                "spark": cases.read_spark,
                "ours": cases.read_ours,
                "ours, two tasks": lambda: cases.read_ours(maxPartitionBytes="240m"),
                "scan": cases.scan_ours,
                "column spark": cases.column_spark,
                "column scan": cases.column_scan,
            },
            runs=runs,
        )
    report.claim("write, no key, against the bare source", w["bare"] / w["plain"], 0.9, at_least=True)
    report.claim("write, no key, against write.parquet", w["spark"] / w["plain"], 1.0, at_least=True)
    report.claim("write, keyed into 4 segments, against the bare source", w["bare"] / w["keyed"], 0.75, at_least=True)
    report.claim("read, against the bare source", r["bare"] / r["ours"], 0.95, at_least=True)
    report.claim("read, against read.parquet", r["spark"] / r["ours"], 0.75, at_least=True)
    report.claim("scan, against read.parquet", r["spark"] / r["scan"], 0.95, at_least=True)
    report.claim(
        "one column with a filter by scan, above read.parquet/0.9",
        (r["column scan"] - r["column spark"] / 0.9) * 1000,
        100,
        at_least=False,
        unit="ms",
    )
    report.figures += [(f"write {name}", f"{seconds:.2f} s") for name, seconds in w.items()]
    report.figures += [(f"read {name}", f"{seconds:.2f} s") for name, seconds in r.items()]
    return report


if __name__ == "__main__":
    run().show()
