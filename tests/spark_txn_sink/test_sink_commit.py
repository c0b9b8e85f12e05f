"""The committing process of a Spark write accepts or refuses the messages of its tasks. The sink runs as Spark runs it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from conformance.harness.spark_driver import SparkWrite
from metadata.common.errors import TxnConflict
from txnsegment import Cluster


def write(cluster: Cluster, **options: str) -> SparkWrite:
    return SparkWrite({"serviceUrl": cluster.url, "path": "t", **options}, pa.table({"k": ["a", "b"], "n": [1, 2]}))


def rows(cluster: Cluster) -> int:
    with cluster.consumer("t", "all", start="earliest") as consumer:
        return sum(1 for _ in consumer.messages(timeout=0))


def test_parts_have_the_age_that_their_tasks_report(cluster: Cluster) -> None:
    """The age of a write counts from the earliest staging time that a task reports, not from the plan of the committing process."""
    late = write(cluster)
    first, second = late.run()
    long_ago = second.staged_ms - cluster.settings.orphan_age_ms // 2 - 1_000
    with pytest.raises(TxnConflict, match="staged more than half the orphan age ago"):
        late.commit([first, replace(second, staged_ms=long_ago)])
    late.commit([first, second])
    assert rows(cluster) == 2


def test_a_task_that_does_not_report_is_an_error(cluster: Cluster) -> None:
    made = write(cluster)
    with pytest.raises(TxnConflict, match="A task did not report what it staged"):
        made.commit([made.run()[0], None])
    assert rows(cluster) == 0


def test_tasks_that_routed_by_different_keys_are_an_error(cluster: Cluster) -> None:
    """The topic got its key while the tasks ran, so one task routed by the key and the other did not."""
    made = write(cluster, segments="2", keyColumn="k")
    first, second = made.run()
    with pytest.raises(TxnConflict, match="topic://public/default/t got its key while this write staged its rows"):
        made.commit([first, replace(second, key=None)])
    made.commit([first, second])
    assert rows(cluster) == 2
