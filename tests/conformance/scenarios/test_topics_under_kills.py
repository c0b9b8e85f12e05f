"""Processes with transactions over four topics in two namespaces are killed and suspended, at their store calls and during staging.
No transaction and no acknowledgement is torn, lost or doubled. `make chaos` covers every call, random kills, and ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from conformance.scenarios import topics
from conformance.scenarios.crashing import When
from conformance.scenarios.driver import Place
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Forks
from conformance.scenarios.scenario import run
from txnsegment import connect


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "every"), [(Fault.KILL, 6), (Fault.STOP, 18)], ids=lambda given: str(given))
def test_killed_topic_changes_are_atomic(fault: Fault, every: int, cluster_at: Callable[[str], Place], forks: Forks) -> None:
    points = topics.TopicsPoints(forks, cluster_at("sqlite"), fault, (When.AFTER,), every=every)
    assert run(points).wrong == []
    cases = points.all
    # A late case may have less to sweep than the run that counted the store calls. The case may then end before the call at which
    # its fault was planned.
    assert sum(case.hit for case in cases) >= len(cases) - 2
    assert len(cases) >= 5


def test_a_torn_topic_change_is_found(cluster_at: Callable[[str], Place]) -> None:
    place = cluster_at("sqlite")
    topics.prepare(place, 2)
    assert topics.wrong(place.url, 2, moved=0) == []
    assert topics.move(place.url, 1, 1).done == 1
    assert topics.wrong(place.url, 2, moved=1) == []
    with connect(place.url) as cluster, cluster.begin() as txn:
        txn.append(topics.OUTPUTS[0], pa.table({"id": [8, 12, 0], "batch": [1, 1, 0]}))
        txn.commit()
    assert topics.wrong(place.url, 2, moved=1) == [
        "row 0 of batch 0 is there 2 times",
        "batch 1 is torn: [9, 10, 11, 13, 14, 15] are not there",
        "there and not acknowledged: [8, 12]",
        "10 rows are there, not 8",
    ]
