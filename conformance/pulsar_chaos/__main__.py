"""`python -m conformance.pulsar_chaos`: chaos on a real Pulsar broker, which it starts.

python -m conformance.pulsar_chaos [--only kills|splits|writers] [--kills 30] [--within 6] [--restarts 5]
    [--changes 12] [--seconds 60] [--seed N] [--folder FOLDER]

The exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from conformance.pulsar_chaos.kills import Plan, PulsarJob
from conformance.pulsar_chaos.writers import ManyWriters
from conformance.pulsar_server import PulsarBroker
from conformance.scenarios.scenario import Scenario, reported

PARTS = ("kills", "splits", "writers")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m conformance.pulsar_chaos", description=__doc__)
    arguments.add_argument("--only", choices=PARTS)
    arguments.add_argument("--kills", type=int, default=30, help="kills of the driver")
    arguments.add_argument("--within", type=float, default=6.0, help="seconds after the query runs, in which the driver is killed")
    arguments.add_argument("--restarts", type=int, default=5, help="kills of the broker")
    arguments.add_argument("--changes", type=int, default=12, help="splits and merges")
    arguments.add_argument("--seconds", type=float, default=60.0, help="how long the eight writers write")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--folder", type=Path, help="where logs and histories stay (default: a temporary folder)")
    given = arguments.parse_args()
    wrong = 0
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="txnsegment-pulsar-")))
        broker = stack.enter_context(PulsarBroker(folder / "broker"))
        say(f"seed {given.seed}, {broker.url}, files in {folder}")
        rng = random.Random(given.seed)
        plan = Plan(given.kills, given.restarts, seconds=given.within)
        scenarios: dict[str, Scenario] = {
            "writers": ManyWriters(broker, "writers", folder / "writers", given.seconds),
            "splits": PulsarJob(broker, "splits", folder / "splits", rng, Plan(0, 0, 0, 0, given.changes), say),
            "kills": PulsarJob(broker, "kills", folder / "kills", rng, plan, say),
        }
        for name, scenario in scenarios.items():
            if given.only in (None, name):
                wrong += len(reported(scenario, "Pulsar", say))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
