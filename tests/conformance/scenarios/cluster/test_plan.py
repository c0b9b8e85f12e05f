"""A plan of faults depends only on its seed, and contains every kind of fault equally often."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.scenarios.cluster.faults import STRIKES
from conformance.scenarios.cluster.plan import BY_NAME, KINDS, make_plan
from conformance.scenarios.cluster.scene import scaling, usual
from metadata.common.errors import ConfigurationError


def test_same_seed_same_plan() -> None:
    assert make_plan(50, 7) == make_plan(50, 7)
    assert make_plan(50, 7) != make_plan(50, 8)


def test_every_kind_of_fault_is_planned_equally_often() -> None:
    counts = Counter(fault.kind.name for fault in make_plan(100, 1))
    assert set(counts) == set(BY_NAME)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert [fault.number for fault in make_plan(100, 1)] == list(range(1, 101))


def test_faults_keep_to_their_kind() -> None:
    for fault in make_plan(200, 3):
        assert fault.party in fault.kind.parties
        shortest, longest = fault.kind.seconds
        assert shortest <= fault.seconds <= longest


def test_every_role_is_filled_by_a_party_of_the_scene() -> None:
    """A plan for the roles of the usual scene is the same as a plan without given roles. The faults of a plan for another scene
    strike only parties of that scene.
    """
    assert make_plan(50, 7, roles=usual().roles) == make_plan(50, 7)
    struck = {fault.party for fault in make_plan(200, 7, roles=scaling().roles)}
    assert struck == {"all", *(job.name for job in scaling().jobs)}


def test_a_role_that_one_party_of_another_name_plays() -> None:
    struck = {fault.party for fault in make_plan(50, 7, roles={"writer": ("only",)})}
    assert struck == {"all", "only", "loader", "reader"}


def test_every_kind_of_fault_can_be_carried_out() -> None:
    assert set(STRIKES) == {kind.does for kind in KINDS}
    assert [kind.name for kind in KINDS if kind.makes_zombie] == ["driver-zombie"]


def test_a_plan_uses_only_the_chosen_kinds() -> None:
    assert {fault.kind.name for fault in make_plan(5, 1, ("cut", "clock"))} == {"cut", "clock"}
    with pytest.raises(ConfigurationError, match="no fault earthquake"):
        make_plan(5, 1, ("cut", "earthquake"))
