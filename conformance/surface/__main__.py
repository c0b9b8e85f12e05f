"""`python -m conformance.surface`: make random calls of the whole public API, and compare the results with a model."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from conformance.surface.drive import Failure, draw, execute, shrink
from conformance.surface.operations import CATALOGUE, Op, readable

TOLD_EVERY = 5_000
"""Number of steps between two lines of progress."""
THEMES = sorted({one.theme for one in CATALOGUE.values()})


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.surface", description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="total number of operations (default 20000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=("sqlite", "zookeeper"), default="sqlite")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--folder", help="folder for the clusters (default: a RAM disk if there is one)")
    parser.add_argument("--theme", action="append", default=[], choices=THEMES, help="give all runs this theme; may be repeated")
    parser.add_argument("--run", help="run one run by its name, as a failure shows it: seed/number")
    parser.add_argument("--ops", help="run exactly these operations, as a failure shows them (JSON), or those in this file")
    parser.add_argument("--no-shrink", action="store_true", help="show a failure as it was found")
    parser.add_argument("--keep-going", action="store_true", help="continue after a failure; shrink and show one of each kind")
    parser.add_argument("--verbose", action="store_true", help="with --ops or --run: print each operation")
    given = parser.parse_args(argv)
    with _silent(), _store(given.store) as hosts:
        if given.ops or given.run:
            return _one(given, hosts)
        return _many(given, hosts)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Switch logging off within the block, because the runs provoke errors on purpose."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _store(kind: str) -> Iterator[str | None]:
    if kind == "sqlite":
        yield None
        return
    from conformance.servers import ZooKeeperServer

    with tempfile.TemporaryDirectory(prefix="surface-zk-") as folder, ZooKeeperServer(Path(folder)) as server:
        yield server.hosts


def _base(given: argparse.Namespace) -> str | None:
    if given.folder:
        return str(given.folder)
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _one(given: argparse.Namespace, hosts: str | None) -> int:
    ops: list[Op]
    if given.run:
        ops = draw(given.run, given.theme)
    else:
        text = given.ops if given.ops.lstrip().startswith("[") else Path(given.ops).read_text()
        ops = [(name, args) for name, args in json.loads(text)]
    outcome = execute(ops, hosts, _base(given), _tell if given.verbose else None)
    if outcome.failure is None:
        _tell(f"{outcome.steps} steps, and all is as the model says")
        return 0
    failure = outcome.failure
    if given.run and not given.no_shrink:
        failure = shrink(failure, lambda ops: execute(ops, hosts, _base(given)))
    _show(given, given.run or "given", failure)
    return 1


def _show(given: argparse.Namespace, run: str, failure: Failure) -> None:
    _tell(f"\nFAULT {failure.oracle} (run {run}): {failure.text}")
    for i, op in enumerate(failure.ops, 1):
        _tell(f"  {i:2} {readable(op)}")
    _tell("Again, exactly:")
    _tell(f"  python -m conformance.surface --store {given.store} --verbose --ops '{json.dumps(failure.ops)}'")


def _batch(job: tuple[int, int, list[str], str | None, str | None]) -> tuple[int, Counter[str], list[tuple[str, Failure]]]:
    """Do one run. Return how many operations ran, how often each operation ran, and a list with (name of the run, its failure). The
    list is empty if the run did not fail.
    """
    seed, number, themes, hosts, base = job
    with _silent():
        outcome = execute(draw(f"{seed}/{number}", themes), hosts, base)
    failed = [] if outcome.failure is None else [(f"{seed}/{number}", outcome.failure)]
    return outcome.steps, outcome.done, failed


def _many(given: argparse.Namespace, hosts: str | None) -> int:
    began, steps, number = time.monotonic(), 0, 0
    done: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    base = _base(given)
    pool = ProcessPoolExecutor(given.cores) if given.cores > 1 else None
    try:
        while steps < given.steps and (given.keep_going or not seen):
            jobs = [(given.seed, number + i, given.theme, hosts, base) for i in range(max(1, 8 * given.cores if pool else 1))]
            number += len(jobs)
            for made, met, failed in pool.map(_batch, jobs) if pool else map(_batch, jobs):
                if (steps + made) // TOLD_EVERY > steps // TOLD_EVERY:
                    _tell(f"{steps + made} steps so far, {time.monotonic() - began:.0f} s, {sum(seen.values())} faults")
                steps += made
                done += met
                for run, failure in failed:
                    seen[failure.oracle] += 1
                    _tell(f"after {steps} steps: {failure.oracle} (run {run}): {failure.text}")
                    if seen[failure.oracle] == 1:
                        if not given.no_shrink:
                            failure = shrink(failure, lambda ops: execute(ops, hosts, base))
                        _show(given, run, failure)
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)
    seconds = time.monotonic() - began
    _tell(f"{steps} steps in {number} runs, {seconds:.0f} s ({steps / seconds:.0f}/s), seed {given.seed}, {given.store}")
    _tell("  " + ", ".join(f"{name} {count}" for name, count in sorted(done.items())))
    if seen:
        _tell("FAULTS: " + ", ".join(f"{name} {count}" for name, count in seen.most_common()))
        return 1
    _tell("all is as the model says")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
