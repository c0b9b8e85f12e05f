"""Runs the job of examples/etl.py again and again, and kills it at every stage: `python examples/etl_killed.py`.

Flights arrive, and spark-submit starts the job. SIGKILL hits the job with all its processes at one of these stages: its first write
is staged, both writes are staged, its transaction is OPEN, its transaction has committed. After each kill, and after each
undisturbed run, the two topics must match the acknowledged flights exactly. At the end every flight must be acknowledged, and
counted once. Exits with 1 if a count is wrong.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import pyarrow as pa
import pyarrow.compute as pc
from jobs import all_right, console, job, kill_when, make_cluster, open_transaction
from nycflights import by_day, source_file

from txnsegment import Cluster, connect

FLIGHTS, CARRIERS, LATE = "topic://public/default/flights", "topic://reports/daily/carriers", "topic://reports/alerts/late"
NAME = "etl"
LATE_MINUTES = 120
DAYS = 20
"""Number of days whose flights arrive between two runs."""

HERE = Path(__file__).resolve().parents[1] / "out" / "etl"
SMALL = {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"} | {
    name: os.environ[name] for name in ("SPARK_CONF_DIR", "JDK_JAVA_OPTIONS") if name in os.environ
}
"""Spark settings for a driver that lives for seconds. The environment overrides them."""


class Schedule:
    """A cluster below a folder, its arriving flights, and the runs of the job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        url = (folder / "cluster").as_uri()
        make_cluster(url)
        self.cluster: Cluster = connect(url)
        flights = source_file()
        self._days: Iterator[pa.Table] = (rows for _, rows in by_day(flights))
        self._arrived = flights.slice(0, 0)
        self._runs = 0
        self.cluster.topics.create(FLIGHTS, segments=4, key="tailnum", schema=flights.schema)
        self.cluster.subscriptions.create(FLIGHTS, NAME)
        self.cluster.topics.create(CARRIERS, schema="carrier string, flights bigint, arrived bigint, delay bigint")
        self.cluster.topics.create(LATE, schema=flights.schema)

    def arrive(self, days: int = DAYS) -> None:
        """Write the flights of the next days, one transaction for each day."""
        for rows, _ in zip(self._days, range(days), strict=False):
            with self.cluster.begin() as txn:
                txn.append(FLIGHTS, rows)
                txn.commit()
            self._arrived = pa.concat_tables([self._arrived, rows])

    def run(self) -> AbstractContextManager[Popen[bytes]]:
        """Start the job as a user does."""
        self._runs += 1
        submit = Path(sys.executable).with_name("spark-submit")
        command = [str(submit), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
        command += ["--conf", "spark.sql.shuffle.partitions=2", str(Path(__file__).with_name("etl.py"))]
        command += ["--service-url", self.cluster.url, "--late-minutes", str(LATE_MINUTES)]
        environment = SMALL | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return job(command, self._folder / "logs" / f"run-{self._runs}.txt", environment)

    def staged(self) -> int:
        """Return the number of writes that have left a manifest."""
        return sum(file.path.endswith(".manifest") for file in self.cluster.client.cluster.storage.list("staging"))

    def committed(self) -> int:
        return sum(txn.app == NAME for txn in self.cluster.transactions.list("COMMITTED"))

    def checks(self, *, done: bool) -> list[tuple[str, object, object]]:
        """Return the counts in the topics as (name, found, expected). The expected counts are those of the acknowledged flights.
        `done`: also expect that every flight that arrived is acknowledged.
        """
        left = self.cluster.subscriptions.describe(FLIGHTS, NAME).lag.rows
        carriers, late = self._all(CARRIERS), self._all(LATE)
        acknowledged = self._arrived.num_rows - left
        found: list[tuple[str, object, object]] = [
            ("flights of all carriers", pc.sum(carriers["flights"]).as_py() or 0, acknowledged)
        ]
        if done:
            wanted = self._arrived.filter(pc.greater(self._arrived["arr_delay"], LATE_MINUTES))
            delay = pc.sum(self._arrived["arr_delay"]).as_py() or 0
            found += [
                ("flights not acknowledged", left, 0),
                ("sum of their delays", pc.sum(carriers["delay"]).as_py() or 0, delay),
                ("flights that were late", late.num_rows, wanted.num_rows),
                ("    and their miles", pc.sum(late["distance"]).as_py() or 0, pc.sum(wanted["distance"]).as_py() or 0),
            ]
        return found

    def _all(self, topic: str) -> pa.Table:
        with self.cluster.consumer(topic, "check", start="earliest") as consumer:
            batches = [batch.rows for batch in consumer.batches(timeout=0)]
        schema = self.cluster.topics.describe(topic).schema
        return pa.Table.from_batches(batches) if batches else pa.table({field.name: [] for field in schema or ()})


def stages(schedule: Schedule) -> dict[str, Callable[[], Callable[[], object]]]:
    """Return the stages at which a run is killed: name -> a function that is called before the run starts. The function returns the
    argument `due` of `kill_when` for this run.
    """

    def staged(count: int) -> Callable[[], object]:
        before = schedule.staged()
        return lambda: schedule.staged() >= before + count or None

    def committed() -> Callable[[], object]:
        before = schedule.committed()
        return lambda: schedule.committed() > before or None

    return {
        "its first write is staged": lambda: staged(1),
        "both writes are staged": lambda: staged(2),
        "its transaction is OPEN": lambda: lambda: open_transaction(schedule.cluster),
        "it has committed": committed,
    }


def kill_at(schedule: Schedule, stage: str) -> bool:
    """Run the job and kill it at this stage. Return False if the job ended first."""
    due = stages(schedule)[stage]()
    with schedule.run() as process:
        return kill_when(process, due, pause=0.0 if "OPEN" in stage else 0.002) is not None


def main() -> int:
    began = time.monotonic()
    if HERE.exists():
        shutil.rmtree(HERE)
    schedule = Schedule(HERE)
    right = True
    for stage in stages(schedule):
        schedule.arrive()
        killed = kill_at(schedule, stage)
        right &= all_right(f"Killed when {stage}" if killed else f"It was done before {stage}", schedule.checks(done=False))
        schedule.arrive(1)
        with schedule.run() as process:
            process.wait()
        right &= all_right("The next run, undisturbed", schedule.checks(done=True))
    schedule.cluster.close()
    console.print(f"{time.monotonic() - began:.0f} s in {os.path.relpath(HERE)}")
    if right:
        console.print("[bold green]No flight skipped, none twice.[/]")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
