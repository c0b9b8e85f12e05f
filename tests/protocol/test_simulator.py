"""The simulator: thousands of schedules of the real code without a violation, the same ones each time, and faults are seen."""

from __future__ import annotations

import pytest

from conformance.simulator.mutants import MUTANTS, Mutant, caught
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule, simulate_on

SHARP = {
    "abort-predecessor": 50,
    "raise-before-forget": 50,
    "settle-all-committed": 50,
    "fold-stops": 300,
    "named-by-header": 300,
    "keep-tail": 50,
    "cut": 50,
    "late-abort": 50,
    "low-version": 50,
    "log-before-snapshot": 400,
}
"""Mutants that are caught soon, with a generous number of schedules for each."""


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


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.name in SHARP], ids=lambda m: m.name)
def test_a_planted_fault_is_caught(mutant: Mutant) -> None:
    assert caught(mutant, SHARP[mutant.name]) is not None, mutant.why
