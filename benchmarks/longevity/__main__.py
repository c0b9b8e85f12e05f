"""`python -m benchmarks.longevity --minutes 120 --out FOLDER`: soak, judge, draw. Exits with 1 if something grew or a process died.

`--judge FOLDER` judges and draws the results of an earlier run again, also while that run continues.

After a soak FOLDER has `samples.csv` (one line for each process and moment), `heap.csv` (the driver's heap after each GC),
`cluster.csv` (files, znodes), `summary.txt`, `soak.png`, and the logs of all processes. SIGTERM ends the soak early; its samples
are judged.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from benchmarks.longevity.judging import judge
from benchmarks.longevity.picture import draw
from benchmarks.longevity.sampling import FIELDS, sample, znodes
from benchmarks.longevity.words import IDLE, TOPIC, Place
from benchmarks.measure import machine
from conformance.processes import Session
from conformance.zookeeper_server import ZooKeeperServer
from metadata.cluster.cluster import open_cluster
from metadata.records.cluster_records import Settings
from txnsegment import connect

SETTINGS = Settings(
    max_txn_timeout_ms=60_000,
    header_retention_ms=120_000,
    orphan_age_ms=600_000,
    orphan_sweep_ms=600_000,
    grace_period_ms=300_000,
)
"""Short times, so that expiry, compaction, trimming and deletion reach their steady state in the first quarter of the soak."""
KEEP = timedelta(minutes=10)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.longevity", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--store", choices=("zookeeper", "sqlite"), default="zookeeper")
    parser.add_argument("--out", type=Path, help="a new folder for the cluster, the samples, the figure and the logs")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge and draw an earlier run again")
    given = parser.parse_args()
    if (given.out is None) == (given.judge is None):
        parser.error("give one of --out and --judge")
    folder: Path = (given.out or given.judge).resolve()
    died = [] if given.out is None else soak(folder, given.store, given.minutes * 60, given.every)
    text, flat = judge(folder, died)
    (folder / "summary.txt").write_text(text)
    draw(folder)
    print(text)
    return 0 if flat and not died else 1


def soak(folder: Path, store: str, seconds: float, every: float) -> list[str]:
    """Run the soak. Return the processes that ended too early, with the end of their logs."""
    folder.mkdir(parents=True)
    (folder / "machine.txt").write_text(f"{machine()}; store: {store}; {time.strftime('%F %T %Z')}\n")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer(folder / "zookeeper")) if store == "zookeeper" else None
        place = Place(folder, f"zk://{server.hosts}/soak" if server else f"file://{folder}/cluster", server is not None)
        prepare(place)
        sessions = {}
        for name, command in commands(place).items():
            environment = {**os.environ, "TXNSEGMENT_SERVICE_URL": place.url, "PYSPARK_PYTHON": sys.executable}
            sessions[name] = stack.enter_context(Session(command, folder / f"{name}.log", environment=environment))
        died = _watch(place, sessions, server, stop, seconds, every)
        place.stop.touch()
        return died


def prepare(place: Place) -> None:
    """Create the cluster and its two topics, with policies."""
    open_cluster(place.url, ledgers=place.ledgers, settings=SETTINGS).close()
    with connect(place.url) as cluster:
        for topic in (TOPIC, IDLE):
            cluster.topics.create(topic, segments=4, key="key", schema="key string, value bigint, at timestamp")
        cluster.retention.set(TOPIC, keep=KEEP, compact_files=8)


def commands(place: Place) -> dict[str, list[str]]:
    """Return the commands that start the processes of a soak, by name."""
    python = [sys.executable, "-m"]
    words = ["--url", place.url, "--folder", str(place.folder)]
    return {
        "driver": [*python, "benchmarks.longevity.job", *words],
        "program": [*python, "benchmarks.longevity.program", *words],
        "sweeper": [str(Path(sys.executable).with_name("txnsegment")), "sweep", "--every", "10s", "--metrics-port", "0"],
    }


def _watch(
    place: Place, sessions: dict[str, Session], server: ZooKeeperServer | None, stop: threading.Event, seconds: float, every: float
) -> list[str]:
    began = time.monotonic()
    with _csv(place.folder / "samples.csv", FIELDS) as note, _csv(place.folder / "cluster.csv", ("s", "what", "count")) as count:
        while not stop.is_set() and time.monotonic() - began < seconds:
            if dead := [f"{name}: ...{session.tail()}" for name, session in sessions.items() if not session.running()]:
                return dead
            at = round(time.monotonic() - began, 1)
            for line in sample({name: session.pid for name, session in sessions.items()}, server.pid if server else None):
                note((at, *line))
            count((at, "files of ledgers", sum(len(files) for _, _, files in os.walk(place.ledgers_folder))))
            if server is not None and (nodes := znodes(server)) is not None:
                count((at, "znodes", nodes))
            stop.wait(every - (time.monotonic() - began) % every)
    return []


class _csv:
    """A CSV file that is flushed after each line, so that the samples of a killed run can be judged."""

    def __init__(self, path: Path, header: tuple[str, ...]) -> None:
        self._file = path.open("w", newline="")
        self._writer = csv.writer(self._file)
        self(header)

    def __call__(self, line: tuple[object, ...]) -> None:
        self._writer.writerow(line)
        self._file.flush()

    def __enter__(self) -> Callable[[tuple[object, ...]], None]:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


if __name__ == "__main__":
    sys.exit(main())
