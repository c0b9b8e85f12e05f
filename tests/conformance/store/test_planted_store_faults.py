"""Tests of the store suite itself. Each planted fault fails the case that it names, and a correct store passes that case."""

from __future__ import annotations

import uuid

import pytest

from conformance.results import Outcome
from conformance.store.area import Sizes
from conformance.store.faults import FAULTS, Fault, Sound
from conformance.store.run import run
from conformance.store.suite import CASES
from metadata.store import open_store
from metadata.store.contract import MetadataStore

SIZES = Sizes(records=1_000, operations=100, patience=3.0)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_fails_its_case(fault: Fault) -> None:
    def opener(url: str) -> MetadataStore:
        return fault.wrap(open_store(url))

    url = f"memory://{uuid.uuid4().hex}"
    (found,) = run(url, 1, only=fault.caught_by, sizes=SIZES, opener=opener)
    assert found.outcome is Outcome.FAILED, f"The case passes in spite of the fault: {fault.says}"
    assert found.detail
    (sound,) = run(url, 1, only=fault.caught_by, sizes=SIZES, opener=lambda url: Sound(open_store(url)))
    assert sound.outcome is Outcome.OK, sound.detail


def test_every_fault_has_a_description_and_names_a_case() -> None:
    assert all(fault.says for fault in FAULTS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30
    assert {fault.caught_by for fault in FAULTS} <= {case.name for case in CASES}
