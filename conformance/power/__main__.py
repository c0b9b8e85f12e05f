"""The command of `make power`. It runs work that writes files, cuts the power at all crash points, and exits with 1 after a
violation.

python -m conformance.power [--seed S] [--cuts N] [--points N] [--only founding|embedded|transactions|..]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from conformance.power.cutting import Cuts, cut
from conformance.power.scenarios import SCENARIOS

SHOWN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.power", description="Power cuts at every crash point.")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices (default 1)")
    parser.add_argument("--cuts", type=int, default=2, help="random power cuts for each crash point (default 2)")
    parser.add_argument("--points", type=int, help="number of random crash points of each scenario (default: all)")
    parser.add_argument("--only", choices=[scenario.name for scenario in SCENARIOS], action="append", help="run this scenario only")
    given = parser.parse_args(arguments)
    wrong = 0
    for scenario in SCENARIOS:
        if given.only and scenario.name not in given.only:
            continue
        done, began = Cuts(), time.monotonic()
        found = list(cut(scenario, given.seed, given.cuts, done, points=given.points))
        wrong += len(found)
        took = time.monotonic() - began
        say(f"{scenario.name}: {done.points} crash points, {done.cuts} power cuts, {len(found)} wrong, {took:.0f} s")
        for one in found[:SHOWN]:
            say(f"  {one}")
    return 1 if wrong else 0


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
