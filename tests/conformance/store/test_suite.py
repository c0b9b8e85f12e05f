"""The store suite (conformance/store, protocol.md section 3) passes on the three real backends."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from conformance.results import Outcome
from conformance.servers import ZooKeeperServer
from conformance.store.area import Sizes
from conformance.store.case import Case
from conformance.store.run import run_case
from conformance.store.site import Site, Traits
from conformance.store.suite import CASES
from metadata.common.clock import SystemClock
from tests.support.short_leases import open_impatiently, open_mortal

SIZES = {
    "memory": Sizes(records=20_000),
    "sqlite": Sizes(records=30_000, rounds=4),
    "zookeeper": Sizes(records=2_000, rounds=4, operations=60),
}
"""The sizes of the cases. They are smaller than the default sizes, whose 100,000 records take one or two minutes on ZooKeeper."""
WAITING = {
    "sessions/ephemeral-records-of-a-killed-process-go": ("elsewhere", open_mortal),
    "connections/a-store-that-cannot-be-reached": ("opener", open_impatiently),
}
"""Cases that wait until a lease ends or a server answers. Each has an attribute of `Site` and an opener with shorter waits, to
which the test sets this attribute.
"""

ONE_PROCESS = {
    "sequences/processes-share-a-sequence",
    "sessions/ephemeral-records-of-a-killed-process-go",
    "histories/processes",
    "histories/processes-that-are-killed",
    "crashes/records-and-indexes-agree-after-a-kill",
    "crashes/numbers-of-killed-processes-are-not-used-again",
}
NO_CONNECTION = {"histories/lost-replies", *(case.name for case in CASES if case.name.startswith("connections/"))}
NOT_APPLICABLE = {"memory": ONE_PROCESS | NO_CONNECTION, "sqlite": NO_CONNECTION, "zookeeper": set()}
"""Backend -> the cases that this backend cannot run. All other cases run."""


@pytest.fixture(scope="module")
def memory() -> Iterator[Site]:
    with Site(f"memory://{uuid.uuid4().hex}", Traits(processes=False)) as site:
        yield site


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("suite")
    with Site(f"file://{folder}/made/by it") as site:
        yield site
    assert list(folder.iterdir()) == [], "the suite left files"


@pytest.fixture(scope="module")
def ensemble_of_one(zookeeper: ZooKeeperServer) -> Iterator[Site]:
    with Site(f"zk://{zookeeper.hosts}/made/by-it") as site:
        yield site
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        assert not client.exists("/made"), "the suite left znodes"
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "zookeeper"])
def test_case(kind: str, case: Case, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    site: Site = request.getfixturevalue("ensemble_of_one" if kind == "zookeeper" else kind)
    if case.name in WAITING:
        monkeypatch.setattr(site, *WAITING[case.name])
    result = run_case(case, site, seed=1, sizes=SIZES[kind], clock=SystemClock())
    expected = Outcome.NOT_APPLICABLE if case.name in NOT_APPLICABLE[kind] else Outcome.OK
    assert result.outcome is expected, result.detail
    # The contract permits lost wake-ups, but these stores lose none while nothing fails.
    assert "wake-ups lost" not in result.figures


def test_every_case_has_a_unique_name_and_a_purpose() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.says.endswith(".") and case.section.startswith("protocol.md section 3") for case in CASES)
