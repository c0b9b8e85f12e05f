"""`python -m conformance --simulate N --seed S`: run N schedules of the real protocol code; exit 1 if one breaks a rule."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.cluster.command import add_options as add_cluster_options
from conformance.cluster.command import run_command as run_cluster
from conformance.history.judging import judge
from conformance.mutants.command import add_options as add_mutant_options
from conformance.mutants.command import run_command as run_mutants
from conformance.simulator.quiet import quiet
from conformance.simulator.recording import record
from conformance.simulator.schedules import schedule, simulate, simulate_on
from conformance.store.command import add_options, run_command


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--simulate", type=int, metavar="N", default=2_000, help="how many schedules (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="the first schedule's seed; the others count up from it")
    parser.add_argument("--cores", type=int, default=1, help="processes to spread the schedules over")
    parser.add_argument("--trace", action="store_true", help="print the one schedule of --seed, step by step")
    add_options(parser)
    cluster = parser.add_argument_group("cluster suite")
    cluster.add_argument("--cluster", action="store_true", help="real ZooKeeper servers, a real Spark cluster, and faults")
    add_cluster_options(cluster, faults=20)
    add_mutant_options(parser)
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the history of the one schedule of --seed")
    parser.add_argument("--check", type=Path, metavar="FILE", action="append", help="judge a recorded history (several: merged)")
    given = parser.parse_args()
    if given.check:
        return judge(given.check)
    if given.record:
        return record(given.seed, given.record)
    if given.mutants is not None:
        return run_mutants(given)
    if given.cluster:
        return run_cluster(given, given.seed)
    if given.store:
        return run_command(given)
    if given.trace:
        with quiet():
            outcome = schedule(given.seed, trace=True)
        sys.stdout.write("\n".join([*outcome.trace, *(f"VIOLATION {v}" for v in outcome.violations), outcome.digest]) + "\n")
        return bool(outcome.violations)
    found = simulate(given.simulate, given.seed) if given.cores == 1 else simulate_on(given.cores, given.simulate, given.seed)
    rate = found.schedules / max(found.seconds, 1e-9)
    sys.stdout.write(
        f"{found.schedules} schedules from seed {given.seed}, {found.commits} commits, {found.reads} reads, "
        f"{found.crashes} crashes, {found.steps} steps in {found.seconds:.1f} s ({rate:.0f} a second): "
        f"{len(found.violations)} bad\n"
    )
    for seed, what in found.violations:
        sys.stdout.write(f"    --seed {seed}: {what}\n")
    return bool(found.violations)


if __name__ == "__main__":
    raise SystemExit(main())
