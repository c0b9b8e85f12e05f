"""Kills, sleeps and failures at every store call of a commit: nothing is lost, doubled or split, whatever the call.

After call k and before call k+1 the store holds the same, so these run each gap once; `make chaos` runs both sides of each call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from conformance.chaos.crash_points import series
from conformance.chaos.crashing import When
from conformance.chaos.driver import Place
from conformance.chaos.forks import Forks

PERSISTENT = 14
"""Calls of a commit to a persistent topic; what follows (a snapshot, the sweeping share) depends on the time."""
SECTION_5 = 11
"""Calls of the commit itself, the closing group among them; the sweeping share follows."""


@pytest.mark.slow
@pytest.mark.parametrize(("fate", "last"), [("killed", None), ("zombie", PERSISTENT)])
def test_every_store_call_of_a_commit_to_a_persistent_topic(
    fate: str, last: int | None, cluster_at: Callable[[str], Place], forks: Forks
) -> None:
    """COMMITTING in the coordinator's log is the commit point: whatever happens around it, each version counts once."""
    place = dataclasses.replace(cluster_at("sqlite"), topic="persistent://public/default/chaos")
    cases = list(series(forks, place, fate, (When.AFTER,), last=last))
    assert [(c.what, c.wrong) for c in cases if c.wrong] == []
    assert len(cases) >= PERSISTENT
    assert [c.what for c in cases[:PERSISTENT] if not c.hit] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "fate", "last"),
    [
        ("sqlite", "killed", None),
        ("sqlite", "zombie", SECTION_5),
        ("sqlite", "twins", SECTION_5),
        ("sqlite", "failing", SECTION_5),
        ("zookeeper", "killed", SECTION_5),
        ("zookeeper", "zombie", SECTION_5),
    ],
)
def test_every_store_call(store: str, fate: str, last: int | None, cluster_at: Callable[[str], Place], forks: Forks) -> None:
    cases = list(series(forks, cluster_at(store), fate, (When.AFTER,), last=last))
    assert [(c.what, c.wrong) for c in cases if c.wrong] == []
    assert len(cases) >= SECTION_5
    if fate != "twins":  # a twin that is faster leaves its sibling nothing to do
        assert all(c.hit for c in cases)
