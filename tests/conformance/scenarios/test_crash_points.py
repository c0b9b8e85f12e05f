"""At every store call of a commit, the process is killed or suspended, or the call fails. No row is lost or doubled, and no
transaction is torn.

The store has the same content after call k and before call k+1. So these tests use only the moment after each call. `make chaos`
uses both moments.
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
"""The number of store calls of a commit to a persistent topic. Further calls write a snapshot and do the commit's share of the
sweeping. Whether a commit makes these further calls depends on the time, so they are not counted here.
"""
SECTION_5 = 11
"""The number of store calls of a commit, with the events and the settling after its decision (protocol.md section 5). The calls of
the commit's share of the sweeping follow.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "last"), [(Fault.KILL, None), (Fault.STOP, PERSISTENT)])
def test_a_kill_at_every_store_call_of_a_persistent_commit_is_safe(
    fault: Fault, last: int | None, cluster_at: Callable[[str], Place], forks: Forks
) -> None:
    """The process is killed or suspended at each store call of the commit. Each version is still committed exactly once."""
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
    if fault is not Fault.TWIN:  # one twin may do all of the work, so that the other twin does not reach the call
        assert all(c.hit for c in cases)
