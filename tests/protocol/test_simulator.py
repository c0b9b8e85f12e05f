"""The simulator: thousands of schedules of the real code without a violation, the same ones each time.

That it sees faults: tests/conformance/test_mutants.py.
"""

from __future__ import annotations

from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule, simulate_on


def test_2000_schedules_break_no_rule() -> None:
    found = simulate_on(2, 2_000)
    assert not found.violations
    assert found.schedules == 2_000
    assert found.commits > 3_000
    assert found.crashes > 1_500


def test_the_same_seed_is_the_same_run() -> None:
    with quiet():
        for seed in range(20):
            first, second = schedule(seed, trace=True), schedule(seed, trace=True)
            assert first.trace == second.trace
            assert first.digest == second.digest
