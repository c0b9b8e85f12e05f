"""Kills, pauses and failures at every store call of a commit: no row is lost, doubled or split.

After call k and before call k+1 the store holds the same, so these run each gap once; `make chaos` runs both sides of each call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from conformance.scenarios.commit_points import CommitPoints
from conformance.scenarios.crashing import When
from conformance.scenarios.driver import Place
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Forks
from conformance.scenarios.scenario import run

PERSISTENT = 14
"""Calls of a commit to a persistent topic; what follows (a snapshot, the sweeping share) depends on the time."""
SECTION_5 = 11
"""Calls of the commit itself, the closing group among them; the sweeping share follows."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "last"), [(Fault.KILL, None), (Fault.STOP, PERSISTENT)])
def test_a_kill_at_every_store_call_of_a_persistent_commit_is_safe(
    fault: Fault, last: int | None, cluster_at: Callable[[str], Place], forks: Forks
) -> None:
    """COMMITTING in the coordinator's log is the commit point: whatever happens around it, each version counts once."""
    place = dataclasses.replace(cluster_at("sqlite"), topic="persistent://public/default/chaos")
    points = CommitPoints(forks, place, fault, (When.AFTER,), last=last)
    assert run(points).wrong == []
    cases = points.all
    assert len(cases) >= PERSISTENT
    assert [c.what for c in cases[:PERSISTENT] if not c.hit] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "fault", "last"),
    [
        ("sqlite", Fault.KILL, None),
        ("sqlite", Fault.STOP, SECTION_5),
        ("sqlite", Fault.TWIN, SECTION_5),
        ("sqlite", Fault.FAIL, SECTION_5),
        ("zookeeper", Fault.KILL, SECTION_5),
        ("zookeeper", Fault.STOP, SECTION_5),
    ],
)
def test_a_kill_at_every_store_call_of_a_commit_is_safe(
    store: str, fault: Fault, last: int | None, cluster_at: Callable[[str], Place], forks: Forks
) -> None:
    points = CommitPoints(forks, cluster_at(store), fault, (When.AFTER,), last=last)
    assert run(points).wrong == []
    cases = points.all
    assert len(cases) >= SECTION_5
    if fault is not Fault.TWIN:  # a twin that is faster leaves its sibling nothing to do
        assert all(c.hit for c in cases)
