"""The command: `python -m benchmarks.peers --help`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from benchmarks.peers.cell import RESULT, WORKLOADS, Specification
from benchmarks.peers.environment import connectors, jars, python_of_cells
from benchmarks.peers.kafka_broker import KafkaBroker
from benchmarks.peers.rows import make_rows
from benchmarks.peers.systems import KINDS
from benchmarks.peers.tables import markdown
from conformance.processes import marked
from conformance.zookeeper_server import ZooKeeperServer


def main() -> int:
    args = _arguments()
    if args.table:
        print(markdown(_lines(args.table)))
        return 0
    home = args.home.resolve()
    (home / "logs").mkdir(parents=True, exist_ok=True)
    python = python_of_cells(home)
    for rows in (args.rows, args.rows // 10):
        make_rows(home, rows)
    failed = 0
    with args.results.open("a", encoding="utf-8") as out:
        print(f"{machine()}; results: {args.results}", flush=True)
        for round_, workload, system in _cells(args):
            if workload == "prepare" and (home / "systems" / system / f"prepared-{args.rows}").exists():
                continue
            found = {
                "round": round_,
                "workload": workload,
                "system": system,
                "rows": args.rows,
                **_run(args, home, python, workload, system),
            }
            if workload == "prepare" and "error" not in found:
                (home / "systems" / system / f"prepared-{args.rows}").touch()
            failed += "error" in found
            print(json.dumps(found), file=out, flush=True)
            shown = {name: found[name] for name in ("seconds", "processor", "load", "error") if name in found}
            print(f"{round_ + 1} {workload} {system} {json.dumps(shown)}", flush=True)
    table = markdown(_lines(args.results))
    args.results.with_suffix(".md").write_text(table, encoding="utf-8")
    print(table)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Measure txnsegment beside Kafka, Delta and Parquet."
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=_names(WORKLOADS), default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--systems", type=_names(KINDS), default=list(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--triggers", type=int, default=60, help="counted micro-batches of trigger_1 and trigger_1000")
    parser.add_argument("--commits", type=int, default=300, help="counted commits of delay")
    parser.add_argument("--growth", type=_numbers, default=(1_000, 10_000), help="numbers of commits of growth")
    parser.add_argument("--kafka-flushed", action="store_true", help="the broker flushes each message to the disk")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of a cell at most")
    parser.add_argument("--home", type=Path, default=Path("out/peers"), help="folder of environment, jars and data")
    parser.add_argument("--results", type=Path, default=Path("out/peers/results.jsonl"), help="file to append to")
    parser.add_argument("--table", type=Path, help="measure nothing; print the tables of this file of results")
    return parser.parse_args()


def _names(known: Mapping[str, Any]) -> Any:
    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(known)}")
        return found

    return names


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _cells(args: argparse.Namespace) -> Iterator[tuple[int, str, str]]:
    """Yield round, workload and system of each cell, in the order in which they run."""
    if prepared := {name for case in (WORKLOADS[one] for one in args.only) if case.prepared for name in case.systems}:
        yield from ((0, "prepare", system) for system in args.systems if system in prepared)
    for round_ in range(args.rounds):
        for workload in args.only:
            systems = [system for system in WORKLOADS[workload].systems if system in args.systems]
            yield from ((round_, workload, system) for system in (reversed(systems) if round_ % 2 else systems))


def _run(args: argparse.Namespace, home: Path, python: Path, workload: str, system: str) -> dict[str, Any]:
    """Run a cell in a process of its own, with its server. Return its result, or the end of its errors as `error`."""
    load, errors = os.getloadavg()[0], home / "logs" / f"{workload}-{system}.err"
    with _server(args, home, system) as (servers, processes), errors.open("w") as log:
        jars_ = () if system.startswith(("noop", "txnsegment", "parquet")) else tuple(map(str, connectors(home)))
        given = Specification(str(home), args.rows, args.commits, args.triggers, args.growth, jars_, servers, processes)
        command = [str(python), "-m", "benchmarks.peers.cell", workload, system, given.to_json()]
        # an installed package has its compiled modules, too
        compiling = {name: value for name, value in marked().items() if name != "PYTHONDONTWRITEBYTECODE"}
        started = time.perf_counter()
        try:
            ran = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=compiling, timeout=args.limit
            )
            lines = [line for line in ran.stdout.splitlines() if line.startswith(RESULT)]
        except subprocess.TimeoutExpired:
            lines = []
    about = {"load": [round(load, 1), round(os.getloadavg()[0], 1)], "cell": round(time.perf_counter() - started, 1)}
    if not lines:
        return about | {"error": errors.read_text(errors="replace")[-1000:] or f"no result within {args.limit:.0f} s"}
    return {**about, **json.loads(lines[-1].removeprefix(RESULT))}


@contextmanager
def _server(args: argparse.Namespace, home: Path, system: str) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """Start the server of a system, if it has one. Yield its addresses, and the ids of its processes."""
    if system.startswith("kafka"):
        with KafkaBroker(home / "kafka", jars(home, "kafka"), flushed=args.kafka_flushed) as broker:
            yield {"kafka": broker.hosts, "kafka logs": str(broker.logs)}, (broker.pid,)
    elif system.endswith("zookeeper"):
        for folder in (home / "zookeeper", home / "systems" / system):  # the records and the files of a cluster belong together
            shutil.rmtree(folder, ignore_errors=True)
        with ZooKeeperServer(home / "zookeeper") as server:
            assert server.pid is not None
            yield {"zookeeper": server.hosts}, (server.pid,)
    else:
        yield {}, ()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
