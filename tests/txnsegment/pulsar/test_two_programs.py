"""Two programs with one application commit at the same time, on a real broker. Each version is committed once, and the other
program learns why its own transaction was not committed.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import Fenced, TxnConflict, VersionConflict
from tests.support.pulsar_clusters import topic_with
from txnsegment.pulsar.cluster import PulsarCluster, open_pulsar
from txnsegment.pulsar.transaction import PulsarTransaction

pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("id", pa.int64())])
APPLICATIONS = 6
VERSIONS = 2


@pytest.fixture
def clusters(cluster: PulsarCluster, pulsar: str) -> Iterator[list[PulsarCluster]]:
    """Two cluster objects, as two programs have them."""
    with open_pulsar(pulsar, None) as other:
        yield [cluster, other]


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, clusters: list[PulsarCluster]) -> str:
    return topic_with(pulsar_broker, clusters[0], COLUMNS)


@pytest.fixture
def app() -> str:
    return f"app-{uuid.uuid4().hex[:8]}"


def filled(cluster: PulsarCluster, topic: str, app: str, version: int) -> PulsarTransaction:
    """Return a transaction with one row: its version."""
    txn = cluster.begin(app=app, version=version)
    txn.append(topic, pa.table({"id": [version]}, COLUMNS))
    return txn


def written(cluster: PulsarCluster, topic: str) -> list[int]:
    return sorted(row["id"] for row in cluster.rows(topic, 1000).rows)


def at_once(*calls: Callable[[], str]) -> list[str]:
    """Make calls at the same time, and return their results: for a call that raised, the class of its error."""
    found, barrier = list[str](), threading.Barrier(len(calls))

    def run(call: Callable[[], str]) -> None:
        barrier.wait()
        try:
            found.append(call())
        except Exception as error:
            found.append(type(error).__name__)

    threads = [threading.Thread(target=run, args=(one,)) for one in calls]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sorted(found)


def test_two_programs_that_commit_one_version_of_a_new_application_at_once(clusters: list[PulsarCluster], topic: str) -> None:
    """One of them commits. The other one is skipped, or is told that it was fenced. This holds although both create the topics of
    the application, both are accepted as the only producer, and one reads the log while the other one commits.
    """
    expected = []
    for number in range(APPLICATIONS):
        for version in range(VERSIONS):
            mine = version * APPLICATIONS + number

            def commit(cluster: PulsarCluster, app: str = f"{topic}-{number}", version: int = mine) -> str:
                return "skipped" if filled(cluster, topic, app, version).commit().skipped else "committed"

            found = at_once(*[lambda one=one: commit(one) for one in clusters])
            assert found in (["Fenced", "committed"], ["committed", "skipped"])
            expected.append(mine)
    assert written(clusters[0], topic) == sorted(expected)


def test_a_version_that_was_passed_is_refused_before_acknowledgements_are_written(
    clusters: list[PulsarCluster], topic: str, app: str
) -> None:
    """Another program passes the version, and aborts the transaction of this one."""
    with clusters[0].begin() as txn:
        txn.append(topic, pa.table({"id": [100]}, COLUMNS))
        txn.commit()
    with clusters[0].consumer(topic, "s", start="earliest") as consumer:
        (message,) = consumer.messages(timeout=0)
        slow = clusters[0].begin(app=app, version=1)
        consumer.ack(message, txn=slow)
        filled(clusters[1], topic, app, 2).commit()
        with pytest.raises(VersionConflict, match=r"Version 1 of .* is below the committed version 2") as raised:
            slow.commit()
        assert "Give a version above 2, or another app" in raised.value.advice
        assert 100 in {one.value["id"] for one in consumer.messages(timeout=0)}, "the row comes again"


def test_a_program_whose_transaction_another_one_aborted_learns_the_reason_at_its_next_rows(
    clusters: list[PulsarCluster], topic: str, app: str
) -> None:
    passed, twin = filled(clusters[0], topic, app, 1), filled(clusters[0], topic, app, 2)
    filled(clusters[1], topic, app, 2).commit()
    with pytest.raises(VersionConflict, match="is below the committed version 2"):
        passed.append(topic, pa.table({"id": [1]}, COLUMNS))
    with pytest.raises(Fenced, match=r"version 2 of the application .* is committed by another transaction"):
        twin.append(topic, pa.table({"id": [2]}, COLUMNS))
    assert written(clusters[0], topic) == [2]


def test_a_transaction_that_somebody_aborts_by_its_id_is_told_that_it_was_not_its_timeout(
    clusters: list[PulsarCluster], topic: str, app: str
) -> None:
    txn = filled(clusters[0], topic, app, 1)
    assert txn.id is not None
    clusters[1].transactions.abort(txn.id)
    with pytest.raises(TxnConflict, match=r"aborted by another program, .* before its timeout of 60000 ms") as raised:
        txn.commit()
    assert "txnsegment txns abort" in raised.value.advice
    assert not filled(clusters[0], topic, app, 1).commit().skipped
