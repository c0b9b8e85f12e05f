"""`python -m conformance --simulate 1 --seed S --record FILE`: the history of one schedule as a file."""

from __future__ import annotations

import sys
from pathlib import Path

from conformance.history.format import write
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule


def record(seed: int, file: Path) -> int:
    """Run the schedule of the seed and write its history; 1 if it breaks a rule."""
    with quiet():
        outcome = schedule(seed, digest=True)
    write(file, outcome.events)
    sys.stdout.write(f"seed {seed}: {len(outcome.events)} events in {file}, {len(outcome.violations)} violations\n")
    return 1 if outcome.violations else 0
