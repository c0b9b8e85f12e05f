"""Transactions that are OPEN at the end of a run. A killed party may leave an OPEN transaction, which ends at its deadline. The
check reports a transaction that does not end at its deadline. It also reports an OPEN transaction whose application has a later
attempt, or has committed the version of the transaction or a higher one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conformance.scenarios.dangling_transactions import die_registered, wait_for_deadlines
from conformance.scenarios.driver import Place, make
from conformance.scenarios.forks import Forks
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.records import Application, Attempt, State
from txnsegment import Cluster, connect
from txnsegment.transactions import TransactionDescription

TIMEOUT_MS = 500


@pytest.fixture
def cluster(cluster_at: Callable[[str], Place], forks: Forks) -> Iterator[Cluster]:
    """A cluster with an OPEN transaction whose owner was killed."""
    place = cluster_at("sqlite")
    make(place, Settings(txn_timeout_ms=TIMEOUT_MS, deadline_allowance_ms=0))
    with connect(place.url) as made:
        made.topics.create("t", schema="key string, id string")
        assert forks.start(die_registered, place.url, ["t"]).killed()
        yield made


def left(cluster: Cluster) -> TransactionDescription:
    (txn,) = cluster.transactions.list(State.OPEN)
    return txn


def test_a_transaction_of_a_killed_party_ends_at_its_deadline(cluster: Cluster) -> None:
    txn = left(cluster)
    assert wait_for_deadlines(cluster.url) == []
    assert cluster.transactions.get(txn.id).state is State.ABORTED


@pytest.mark.parametrize(
    "gone_on",
    [
        Application(current=Attempt(version=9, txn_id="0_999")),
        Application(last_committed=9, current=Attempt(version=9, txn_id="0_999")),
        Application(last_committed=9),
    ],
)
def test_a_transaction_passed_over_by_a_later_attempt_is_reported_though_it_ends(gone_on: Application, cluster: Cluster) -> None:
    txn = left(cluster)
    assert txn.app is not None
    cluster.client.cluster.store.put(paths.application(txn.app, txn.topic or ""), gone_on.to_bytes())
    (wrong,) = wait_for_deadlines(cluster.url)
    assert wrong.startswith(f"{txn.id}, version {txn.version} of {txn.app}, is OPEN, and its application has gone on: ")
    assert cluster.transactions.get(txn.id).state is State.ABORTED


def test_a_transaction_that_never_ends_is_reported(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "sweep", lambda _: None)
    assert wait_for_deadlines(cluster.url, 0.1) == [f"{left(cluster).id} is still OPEN, 0.1 s beyond its deadline"]
