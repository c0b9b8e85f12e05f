"""A subscription is moved back, or deleted and created again, while a stream uses it. The stream acknowledges only rows that it has
delivered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from metadata.common.errors import AckConflict
from pyspark_txnsegment import DefaultSource
from spark_txn_source.stream import StreamReader
from txnsegment import Cluster

TOPICS = ["topic://public/default/t", "persistent://public/default/t"]


class Stream:
    """A query of the subscription `s`, driven as Spark drives a query. Its offsets become JSON and are parsed again, as in a
    checkpoint.
    """

    def __init__(self, cluster: Cluster, topic: str, rows: int = 1000) -> None:
        more = {"maxRowsPerTrigger": str(rows)}
        self.options = {"serviceUrl": cluster.url, "topic": topic, "subscription": "s", **more}
        self.restart()
        self.at = logged(self.reader.initialOffset())

    def restart(self) -> None:
        self.reader = StreamReader(self.options, DefaultSource(self.options).schema())

    def batch(self) -> list[int]:
        """Plan the next batch and then commit the previous batch, as Spark does. Return the rows of the next batch."""
        end = logged(self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit()))
        if not self.at.get("initial"):
            self.reader.commit(self.at)
        tasks = self.reader.partitions(self.at, end)
        self.at = end
        return sorted(n for task in tasks for batch in self.reader.read(task) for n in batch.column("n").to_pylist())


def logged(offset: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(offset))


def write(cluster: Cluster, topic: str, *values: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"n": pa.array(values, pa.int64())}))
        txn.commit()


def left(cluster: Cluster, topic: str) -> list[int]:
    with cluster.consumer(topic, "s") as consumer:
        return [message.value["n"] for message in consumer.messages(timeout=0)]


@pytest.fixture(params=TOPICS)
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    cluster.topics.create(request.param, schema="n bigint")
    for n in (1, 2, 3):
        write(cluster, request.param, n)
    cluster.subscriptions.create(request.param, "s")
    return request.param


def made_again(cluster: Cluster, topic: str) -> None:
    cluster.subscriptions.delete(topic, "s")
    cluster.subscriptions.create(topic, "s")


def moved_back(cluster: Cluster, topic: str) -> None:
    cluster.subscriptions.seek(topic, "s", to="earliest")


BACK = pytest.mark.parametrize("back", [made_again, moved_back], ids=lambda f: f.__name__)
Back = Callable[[Cluster, str], None]


@BACK
@pytest.mark.parametrize("restarted", [False, True])
def test_rows_acked_by_others_before_the_start_stay_unacknowledged_after_a_move_back(
    cluster: Cluster, topic: str, back: Back, restarted: bool
) -> None:
    with cluster.consumer(topic, "s") as consumer:
        messages = consumer.messages(timeout=0)
        consumer.ack(next(messages))  # row 1, which lies before the start of the stream
        next(messages)
        consumer.ack(next(messages))  # row 3, which lies beyond the start of the stream
    stream = Stream(cluster, topic)
    assert stream.batch() == [2]
    back(cluster, topic)
    if restarted:
        stream.restart()
    write(cluster, topic, 4)
    with pytest.raises(AckConflict, match="moved back, or deleted and made again"):
        stream.batch()
    assert left(cluster, topic) == [1, 2, 3, 4]


def test_rows_acked_by_others_beyond_the_start_stay_unacknowledged_after_a_move_back(cluster: Cluster, topic: str) -> None:
    with cluster.consumer(topic, "s") as consumer:
        _, two, three = consumer.messages(timeout=0)
        consumer.ack(three)
    stream = Stream(cluster, topic)
    assert stream.batch() == [1, 2]
    cluster.subscriptions.seek(topic, "s", to=int(two.id.split(":")[0]))
    write(cluster, topic, 4)
    with pytest.raises(AckConflict, match="moved back, or deleted and made again"):
        stream.batch()
    assert left(cluster, topic) == [3, 4]


@BACK
@pytest.mark.parametrize("restarted", [False, True])
def test_rows_acked_by_the_stream_stay_unacknowledged_after_a_move_back(
    cluster: Cluster, topic: str, back: Back, restarted: bool
) -> None:
    stream = Stream(cluster, topic, rows=1)
    assert [stream.batch(), stream.batch(), stream.batch()] == [[1], [2], [3]]
    assert left(cluster, topic) == [3], "rows of a batch are acknowledged when the next batch is planned"
    back(cluster, topic)
    if restarted:
        stream.restart()
    write(cluster, topic, 4)
    with pytest.raises(AckConflict, match="moved back, or deleted and made again"):
        stream.batch()
    assert left(cluster, topic) == [1, 2, 3, 4]


@BACK
def test_skipping_the_rows_as_the_error_advises_lets_the_stream_continue(cluster: Cluster, topic: str, back: Back) -> None:
    stream = Stream(cluster, topic, rows=2)
    assert stream.batch() == [1, 2]
    assert stream.batch() == [3]
    back(cluster, topic)
    write(cluster, topic, 4)
    with pytest.raises(AckConflict) as failed:
        stream.batch()
    *_, number = str(failed.value).split("--to ")
    cluster.subscriptions.seek(topic, "s", to=int(number))
    stream.restart()
    assert stream.batch() == [4]
    stream.reader.commit(stream.at)
    assert left(cluster, topic) == []


def test_a_stream_stopped_before_its_commits_acknowledges_its_delivered_rows(cluster: Cluster, topic: str) -> None:
    """The stream is stopped after the second batch was planned and before the first batch was committed. Spark never commits the
    first batch later. The commit of the second batch acknowledges the rows of both batches.
    """
    stream = Stream(cluster, topic, rows=1)
    assert stream.batch() == [1]
    stream.at = logged(stream.reader.latestOffset(stream.at, stream.reader.getDefaultReadLimit()))
    stream.restart()
    assert stream.batch() == [3]
    assert left(cluster, topic) == [3]


def test_an_idle_stream_keeps_its_offset(cluster: Cluster, topic: str) -> None:
    """Spark runs an empty batch for every changed offset, so an idle stream must return an equal offset."""
    stream = Stream(cluster, topic)
    assert stream.batch() == [1, 2, 3]
    for _ in range(2):
        assert stream.reader.latestOffset(stream.at, stream.reader.getDefaultReadLimit()) == stream.at
        stream.reader.commit(stream.at)
    stream.restart()
    assert stream.reader.latestOffset(stream.at, stream.reader.getDefaultReadLimit()) == stream.at
