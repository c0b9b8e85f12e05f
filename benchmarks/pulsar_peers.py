"""Measures how many rows a second Spark and `pulsar_protocol` write and read, beside Pulsar's own Java v5 client, on one live
broker and in one run: `python -m benchmarks.pulsar_peers`.

All writers write rows of 100 bytes with 1,000 keys into 4 segments. Each writer has its own default size of an entry: 1,000 rows
for the Java client, 5,000 rows for Spark. All readers read the topic that the Java client wrote. The runs alternate, and the
medians are compared. Spark writes in one transaction. The Java client writes without a transaction, because that is faster: with
5.0.0-M1 the receipts of its pipelined sends in a transaction come in another order, and the client connects again each time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks.measure import Report, alternating, folder, machine, spark_session
from conformance.pulsar_java import JavaClient
from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import opened
from spark_txn_sink.pulsar.plan import PulsarPlan
from spark_txn_sink.pulsar.rows import RowFormat
from spark_txn_sink.pulsar.sending import Task, send_rows
from spark_txn_source.pulsar.columns import PulsarColumns
from spark_txn_source.pulsar.tasks import PulsarTask, read_task

ROWS = 1_000_000
SIZE = 100
KEYS = 1_000
JAVA_ENTRY_ROWS = 1_000
ENTRY_ROWS = 5_000
ENTRY_BYTES = 512 * 1024
"""The defaults of the sink's options `entryRows` and `entryBytes`."""
WARM_ROWS = 200_000
_VALUE = StructType([StructField("value", BinaryType())])


def make_rows(path: Path, rows: int) -> None:
    """Write the input of Spark and of `pulsar_protocol`: two Parquet files with half of the rows each."""
    path.mkdir()
    for half in range(2):
        numbers = range(half * rows // 2, (half + 1) * rows // 2)
        values = [n.to_bytes(8, "big") + bytes(SIZE - 8) for n in numbers]
        pq.write_table(pa.table({"k": [f"key-{n % KEYS}" for n in numbers], "value": values}), path / f"{half}.parquet")


class Cases:
    """The writers and readers that are compared. `processor`: for `write` and `read`, the seconds of processor time of each run by
    `pulsar_protocol` in this process.
    """

    def __init__(self, spark: SparkSession, broker: PulsarBroker, java: JavaClient, root: Path, rows: int) -> None:
        self.spark, self.broker, self.java, self.root, self.rows = spark, broker, java, root, rows
        self.client = PulsarClient(broker.url)
        self.processor: dict[str, list[float]] = {}
        self.written = self.topic()
        java.pour(self.written, rows, size=SIZE, batch=JAVA_ENTRY_ROWS)

    def topic(self) -> str:
        return self.broker.create(f"peers-{uuid.uuid4().hex}", 4)

    def timed(self, name: str, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            begun = time.process_time()
            work()
            self.processor.setdefault(name, []).append(time.process_time() - begun)

        return run

    def write_java(self) -> None:
        self.java.pour(self.topic(), self.rows, size=SIZE, batch=JAVA_ENTRY_ROWS)

    def write_spark(self) -> None:
        options = {"serviceUrl": self.broker.url, "adminUrl": self.broker.admin_url, "keyColumn": "k"}
        rows = self.spark.read.parquet(str(self.root / "input"))
        rows.write.format("txnsegment").options(**options).mode("append").save(self.topic())

    def write_client(self) -> None:
        """Write with the code of one Spark task, without Spark."""
        topic = self.topic()
        opening = opened(self.client, topic, self.broker.admin_url, self.client.begin(600_000), uuid.uuid4().hex)
        plan = PulsarPlan(
            service_url=self.broker.url,
            topic=topic,
            layout=self.client.layout(topic),
            bits="low",
            rows=RowFormat("k", ("value",), None),
            compression="none",
            entry_bytes=ENTRY_BYTES,
            entry_rows=ENTRY_ROWS,
            opened=opening,
        )
        batches = (one for file in sorted((self.root / "input").iterdir()) for one in pq.ParquetFile(file).iter_batches(10_000))
        sent = send_rows(self.client, plan, batches, Task())
        assert sent.rows == self.rows
        self.client.end(opening.txn, commit=True)

    def read_java(self) -> None:
        self.java.drain(self.written, self.rows)

    def read_spark(self) -> None:
        rows = self.spark.read.format("txnsegment").option("serviceUrl", self.broker.url).load(self.written)
        rows.write.format("noop").mode("overwrite").save()

    def read_client(self) -> None:
        """Read with the code of the tasks of a Spark read, one task after another, without Spark."""
        count = 0
        for one in self.client.layout(self.written).active:
            end = Segment(self.client, one.name).cut().position
            task = PulsarTask(self.broker.url, self.written, one.name, Position(-1, -1), end, PulsarColumns(_VALUE, _VALUE, None))
            count += sum(batch.num_rows for batch in read_task(task))
        assert count == self.rows


def compare(cases: Cases, runs: int) -> Report:
    rows = cases.rows
    report = Report(f"{rows:,} rows of {SIZE} bytes, 4 segments, beside the Java v5 client; median of {runs}")
    seconds = alternating(
        {
            "write, Java": cases.write_java,
            "write, Spark": cases.write_spark,
            "write, one task": cases.timed("write", cases.write_client),
            "read, Java checkpoint consumer": cases.read_java,
            "read, Spark": cases.read_spark,
            "read, one task": cases.timed("read", cases.read_client),
        },
        runs=runs,
    )
    load = "load " + ", ".join(f"{one:.1f}" for one in os.getloadavg())
    report.claim("write by Spark, against Java", seconds["write, Java"] / seconds["write, Spark"], 0.5, at_least=True, note=load)
    report.claim(
        "read by Spark, against Java", seconds["read, Java checkpoint consumer"] / seconds["read, Spark"], 0.5, at_least=True
    )
    for name, wanted in (("write", 80_000), ("read", 100_000)):
        rate = rows / min(cases.processor[name])
        report.claim(f"{name} by one task, rows per second of processor time", rate, wanted, at_least=True, unit="rows/s")
    report.figures += [(name, f"{took:.2f} s, {rows / took:,.0f} rows/s") for name, took in seconds.items()]
    return report


def run(*, rows: int = ROWS, runs: int = 3) -> Report:
    with folder() as root, PulsarBroker(root / "broker") as broker, spark_session() as spark:
        make_rows(root / "input", rows)
        with JavaClient(root / "java", broker.url, options=["-Xmx1g", "-XX:TieredStopAtLevel=4"]) as java:
            java.pour(broker.create("warm", 4), WARM_ROWS, size=SIZE, batch=JAVA_ENTRY_ROWS)
            return compare(Cases(spark, broker, java, root, rows), runs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pulsar_peers", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of each run (default {ROWS})")
    parser.add_argument("--runs", type=int, default=3, help="that count, after one that does not (default 3)")
    given = parser.parse_args()
    sys.stdout.write(machine() + "\n")
    report = run(rows=given.rows, runs=given.runs)
    report.show()
    return 1 if any(not one.holds for one in report.claims) else 0


if __name__ == "__main__":
    sys.exit(main())
