"""Compares two kinds of simulator schedules, "quick" and "wide" (docs/conformance.md). Measures for each kind how many schedules
detect a mutant in a second of CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.measure import Report
from conformance.mutants.catalogue import by_name
from conformance.mutants.planting import Mutant, planted
from conformance.mutants.suites import SOUND, by_schedule
from conformance.simulator.quiet import quiet

KINDS = {"quick": "", "wide": "wide"}
COUNTS = {"quick": 4000, "wide": 1600}
"""How many schedules of each kind run for each mutant. They take some seven seconds of CPU time."""
FAULTS = (
    "settle-without-version",
    "raise-after-forget",
    "drop-before-folding",
    "files-listed-last",
    "cursor-without-cas",
    "end-at-seal",
    "raise-before-forget",
    "undecided-is-remembered",
    "one-segment-is-checked",
    "ack-again",
    "first-child-takes-all",
    "events-are-kept",
)


def rate(fault: Mutant, kind: str, count: int) -> tuple[float, int]:
    """Run `count` schedules of a kind. Return how many of them detect the mutant, per second of CPU time and in total."""
    with planted(fault), quiet():
        began = time.process_time()
        seen = sum(by_schedule(seed, kind) is not None for seed in range(count))
        return seen / (time.process_time() - began), seen


def run(faults: Sequence[str] = FAULTS, counts: Mapping[str, int] = COUNTS) -> Report:
    report = Report("quick and wide schedules")
    which = " and ".join(f"{count:,} {kind}" for kind, count in counts.items())
    table = Table(title=f"planted faults seen in a second of CPU time, by {which} schedules", title_justify="left")
    for column in ("planted fault", *counts, "seen"):
        table.add_column(column)
    for fault in (SOUND, *map(by_name, faults)):
        found = [rate(fault, KINDS[kind], count) for kind, count in counts.items()]
        table.add_row(fault.name, *(f"{each:.2g}" for each, _ in found), ", ".join(str(seen) for _, seen in found))
        if fault is SOUND:
            wrong = sum(seen for _, seen in found)
            report.claim("schedules that see a fault where none is planted", wrong, 0, at_least=False, unit="")
    report.tables.append(table)
    return report
