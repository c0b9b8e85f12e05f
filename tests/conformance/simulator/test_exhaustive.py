"""The exhaustive search is complete within its bounds, gives the same counts each time, and catches mutants."""

from __future__ import annotations

import pytest

from conformance.mutants.catalogue import by_name
from conformance.mutants.planting import planted
from conformance.simulator.quiet import quiet
from conformance.simulator.search import footprints
from conformance.simulator.search.automata import Request
from conformance.simulator.search.exhaustive import Search, exhaust
from conformance.simulator.search.footprints import OutsideFootprint, Role, private
from conformance.simulator.search.scenarios import CROSSING, SCENARIOS, TWINS
from metadata.records import paths

CAUGHT = {
    "abort-predecessor": "twins",
    "application-without-cas": "twins",
    "header-cas-ignores-the-version": "twins",
    "settle-all-committed": "twins",
    "cut-at-the-end": "crossing",
    "fold-stops": "crossing",
    "keep-tail": "crossing",
    "log-before-snapshot": "crossing",
    "raise-before-forget": "crossing",
}
"""Mutants that are caught with one preemption and one crash, each with the scenario that catches it."""


@pytest.mark.slow
def test_everything_up_to_3_preemptions_and_1_crash() -> None:
    found = exhaust(2)
    assert [each.violations for each in found] == [[], []]
    assert [(each.preemptions, each.crashes) for each in found] == [(3, 1), (3, 1)]
    assert all(each.schedules > 1_000_000 for each in found)
    assert all(each.states > 300_000 for each in found)


def test_without_preemptions_and_crashes_each_order_is_one_schedule() -> None:
    with quiet():
        assert Search(CROSSING, preemptions=0, crashes=0).run().schedules == 24


@pytest.mark.parametrize("preemptions", [0, 1])
@pytest.mark.parametrize(
    ("table", "role", "family"),
    [("LOOKS", Role.WRITER, "/txn/app/"), ("CHANGES", Role.WRITER, "/txn/segment-events/"), ("LOOKS", Role.READER, "/log/")],
)
def test_every_call_is_checked_against_its_footprint(
    table: str, role: Role, family: str, preemptions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that are made only after the last preemption, and first calls, are checked, too: other calls are reduced by them."""
    known = getattr(footprints, table)
    monkeypatch.setattr(footprints, table, known | {role: known[role] - {family}})
    with quiet(), pytest.raises(OutsideFootprint, match=f"a {role} does"):
        Search(CROSSING, preemptions=preemptions, crashes=0).run()


def test_the_counts_are_the_same_each_time() -> None:
    with quiet():
        first, second = (Search(TWINS, preemptions=1, crashes=1).run() for _ in range(2))
    assert (first.schedules, first.states, first.worlds, first.ends) == (
        second.schedules,
        second.states,
        second.worlds,
        second.ends,
    )


@pytest.mark.parametrize("name", CAUGHT)
def test_a_planted_fault_is_caught(name: str) -> None:
    with quiet(), planted(by_name(name)):
        found = Search(SCENARIOS[CAUGHT[name]], preemptions=1, crashes=1).run(stop_after=1)
    assert found.violations


def test_an_actor_outside_its_declared_footprint_is_found() -> None:
    with pytest.raises(OutsideFootprint):
        private(Role.READER, Request("get", (paths.tc_sequence(),)), [Role.WRITER])
