"""After the deletion of a topic a read at earlier offsets raises an error. It never silently returns fewer rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from metadata.client.passes import delete_orphans
from metadata.common.errors import DataLoss
from metadata.records.cluster_records import Settings
from pyspark_txnsegment import DefaultSource
from spark_txn_source.batch import BatchReader
from spark_txn_source.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.spark.conftest import Deployment

PATTERN = "topic://public/default/[xy]"


def numbers(values: Iterable[int]) -> pa.Table:
    return pa.table({"n": pa.array(list(values), pa.int64())})


def reader(here: Deployment, **options: str) -> StreamReader:
    given = {"serviceUrl": here.url, **options}
    return StreamReader(given, DefaultSource(given).schema())


def planned(tasks: Iterable[Any]) -> int:
    return sum(p.rows for task in tasks for p in task.pieces)


def batch(here: Deployment, start: int | str = "earliest", end: int | str = "latest", **options: str) -> int:
    given = {"serviceUrl": here.url, **options}
    for name, value in (("startingOffsets", start), ("endingOffsets", end)):
        given[name] = value if isinstance(value, str) else json.dumps({"log": value})
    return planned(BatchReader(given, DefaultSource(given).schema()).partitions())


def drained(one: StreamReader, offset: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the number of rows of all micro-batches from an offset on, and the offset that is reached."""
    rows = 0
    while (end := one.latestOffset(offset, ReadAllAvailable())) != offset:
        rows += planned(one.partitions(offset, end))
        offset = end
    return rows, offset


def two(here: Deployment) -> list[int]:
    """Commit two transactions to x (2 and 3 rows) and one to y. Return the numbers of the three registrations."""
    for name in ("x", "y"):
        here.cluster.topics.create(name, segments=2, key="n", schema="n bigint")
    return [here.append("x", numbers([1, 2])), here.append("y", numbers([3, 4])), here.append("x", numbers([5, 6, 7]))]


@pytest.mark.parametrize("swept", [False, True])
def test_a_read_at_the_offsets_of_a_recreated_topic_is_an_error(here: Deployment, swept: bool) -> None:
    first, _, last = two(here)
    x = {"topic": "x"}
    assert [batch(here, end=first, **x), batch(here, end=last, **x), batch(here, first, last, **x)] == [2, 5, 3]
    here.cluster.topics.delete("x")
    here.cluster.topics.create("x", schema="n bigint")
    if swept:
        here.cluster.client.sweeper.sweep()
    again = here.append("x", numbers([8]))
    one = reader(here, **x)
    for start, end in ((0, first), (first, last), (0, again), (first, again)):
        offsets = [{"log": n, "read": ["topic://public/default/x"]} for n in (start, end)]
        with pytest.raises(DataLoss, match=r"topic://public/default/x was deleted.*seal (\d+)"):
            one.partitions(*offsets)
        with pytest.raises(DataLoss, match="failOnDataLoss=false"):
            batch(here, start, end, **x)
    with pytest.raises(DataLoss):
        batch(here, end=last, **x)
    assert batch(here, end=last, failOnDataLoss="false", **x) == 0
    assert batch(here, 0, again, failOnDataLoss="false", **x) == 1
    assert batch(here, last, again, **x) == 1  # a read after the deletion loses no row
    assert batch(here, **x) == 1
    assert batch(here, end=again, **x) == 1


def test_a_pattern_sees_deleted_topics(here: Deployment) -> None:
    first, second, last = two(here)
    pattern = {"topicsPattern": PATTERN}
    assert batch(here, end=last, **pattern) == 7
    one = reader(here, startingOffsets="earliest", **pattern)
    early = one.initialOffset()
    assert early["log"] == 0
    here.cluster.topics.delete("x")
    number = here.append("y", numbers([9]))
    assert batch(here, **pattern) == 3
    with pytest.raises(DataLoss, match="topic://public/default/x"):
        batch(here, end=last, **pattern)
    with pytest.raises(DataLoss, match="topic://public/default/x"):
        one.partitions(early, one.latestOffset(early, ReadAllAvailable()))
    gone = reader(here, startingOffsets="earliest", failOnDataLoss="false", **pattern)
    assert drained(gone, early)[0] == 3
    # from this offset the stream has no unread row of the deleted topic
    assert drained(one, {"log": last, "read": {"pattern": PATTERN}})[0] == 1
    assert batch(here, first, second, **pattern) == 2
    assert batch(here, last, number, **pattern) == 1


def test_the_first_batch_replays_with_the_deletions_known_at_its_planning(here: Deployment) -> None:
    """A topic is deleted after the first batch was planned. Spark then requests the initial offset again and plans the batch again.
    The second plan raises DataLoss.
    """
    two(here)
    one = reader(here, startingOffsets="earliest", topicsPattern=PATTERN)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    assert one.partitions(start, end)
    here.cluster.topics.delete("x")
    again = one.initialOffset()
    assert again["deletedTo"] > end["log"]
    with pytest.raises(DataLoss, match="topic://public/default/x"):
        one.partitions(again, end)


@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": "1"}])
def test_a_new_stream_from_the_earliest_begins_after_the_deletions(here: Deployment, limit: dict[str, str]) -> None:
    *_, last = two(here)
    here.cluster.topics.delete("x")
    here.append("y", numbers([9]))
    for options in ({"topicsPattern": PATTERN}, {"topics": "x, y"}):
        if "topics" in options:
            here.cluster.topics.create("x", schema="n bigint")
            here.append("x", numbers([10]))
        one = reader(here, startingOffsets="earliest", **options, **limit)
        start = one.initialOffset()
        assert start["log"] == 0
        assert start["deletedTo"] > last
        rows, end = drained(one, start)
        assert rows == (4 if "topics" in options else 3)
        assert "deletedTo" not in end  # the offset loses this field when the stream has passed the deletion
    # A later deletion removes rows that a running stream has not read.
    first = {"log": 1, "read": start["read"], "deletedTo": start["deletedTo"]}
    assert drained(one, first)[0] == 4
    here.cluster.topics.delete("x")
    here.cluster.topics.create("x", schema="n bigint")
    with pytest.raises(DataLoss, match="topic://public/default/x"):
        drained(one, first)
    assert drained(one, end)[0] == 0


def test_timestamps_begin_after_the_deletions(here: Deployment) -> None:
    two(here)
    here.cluster.topics.delete("x")
    one = reader(here, startingTimestamp="0", topicsPattern=PATTERN)
    assert drained(one, one.initialOffset())[0] == 2


def test_the_deletion_is_known_after_the_grace_period(here: Deployment) -> None:
    """The deleted segments have left the layout, which keeps the deletion's number. A read from a lower number raises DataLoss."""
    first, _, last = two(here)
    here.cluster.topics.delete("x")
    here.cluster.topics.create("x", schema="n bigint")
    again = here.append("x", numbers([8]))
    here.cluster.client.sweeper.sweep()
    cluster = here.cluster.client.cluster
    cluster.settings = Settings(grace_period_ms=0)
    cluster.clock.sleep(0.01)
    delete_orphans(cluster)
    layout = here.cluster.client.topics.get(next(t.name for t in here.cluster.client.topics.list(".*/x"))).layout
    assert len(layout.segments) == 1
    assert layout.deleted_to_log is not None
    assert layout.deleted_to_log > last
    with pytest.raises(DataLoss, match=f"seal {layout.deleted_to_log}"):
        batch(here, first, again, topic="x")
    assert batch(here, topic="x") == 1
    assert batch(here, end=again, topic="x") == 1
    assert batch(here, layout.deleted_to_log, again, topic="x") == 1
    one = reader(here, startingOffsets="earliest", topic="x")
    assert drained(one, one.initialOffset())[0] == 1
