"""`subscription=auto` on a real Pulsar broker: each query has a subscription, whose name is in its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from conformance.pulsar_server import PulsarBroker
from pyspark_txnsegment import DefaultSource
from spark_txn_source.pulsar.several_streams import SeveralStreamReader
from tests.support.pulsar_topics import Stream, Topic, new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> Iterator[Topic]:
    """A `persistent://` topic. The REST interface lists its subscriptions."""
    with new_topic(pulsar_broker) as found:
        found.name = found.name.replace("topic://", "persistent://")
        pulsar_broker.rest("PUT", path_of(found))
        yield found


def path_of(topic: Topic) -> str:
    return topic.name.replace("://", "/")


def subscriptions(topic: Topic) -> list[str]:
    found: list[str] = json.loads(topic.broker.rest("GET", f"{path_of(topic)}/subscriptions"))
    return sorted(found)


def backlog(topic: Topic, name: str) -> int:
    """Return how many entries the subscription has not acknowledged. The broker keeps them."""
    found = json.loads(topic.broker.rest("GET", f"{path_of(topic)}/stats"))
    return int(found["subscriptions"][name]["msgBacklog"])


def stream(topic: Topic) -> Stream:
    return topic.stream(startingOffsets="earliest", subscription="auto")


def test_the_subscription_is_made_when_its_name_is_in_the_checkpoint(topic: Topic) -> None:
    topic.send(topic.name, [1])
    query = stream(topic)
    lost = query.reader.latestOffset(query.reader.initialOffset(), ReadAllAvailable())
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, ReadAllAvailable())
    assert lost["subscription"] != end["subscription"], "the driver was killed before Spark wrote the first one"
    assert subscriptions(topic) == []
    assert query.read(start, end) == [1]
    assert subscriptions(topic) == [end["subscription"]]
    query.reader.stop()


def test_a_restarted_query_goes_on_with_its_subscription(topic: Topic) -> None:
    topic.send(topic.name, [1])
    query = stream(topic)
    assert query.batch() == [1]
    name = query.ends[-1]["subscription"]
    assert backlog(topic, name) == 1, "it keeps the last entry that was read"
    query.reader.stop()
    topic.send(topic.name, [2])
    assert backlog(topic, name) == 2, "it holds what the stopped query has not read"
    again = stream(topic)
    again.ends = query.ends
    assert again.batch() == [2]
    assert again.ends[-1]["subscription"] == name
    assert (subscriptions(topic), backlog(topic, name)) == ([name], 1)
    again.reader.stop()


def test_a_replay_of_the_first_batch_finds_the_name_in_its_end(topic: Topic) -> None:
    topic.send(topic.name, [1])
    query = stream(topic)
    assert query.batch() == [1]
    query.reader.stop()
    again = stream(topic)
    assert again.read(again.reader.initialOffset(), query.ends[-1]) == [1]
    assert subscriptions(topic) == [query.ends[-1]["subscription"]]
    again.reader.stop()


def test_a_checkpoint_without_a_name_gets_one(topic: Topic) -> None:
    topic.send(topic.name, [1])
    before = topic.stream(startingOffsets="earliest")
    assert before.batch() == [1]
    assert subscriptions(topic) == []
    query = stream(topic)
    query.ends = before.ends
    assert query.batch() == []
    assert subscriptions(topic) == []
    topic.send(topic.name, [2])
    assert query.batch() == [2]
    assert subscriptions(topic) == [query.ends[-1]["subscription"]]
    query.reader.stop()


def test_all_topics_of_a_query_are_held(topic: Topic) -> None:
    """Each topic has a subscription, also the topic that has no rows yet."""
    with new_topic(topic.broker) as empty:
        empty.name = empty.name.replace("topic://", "persistent://")
        topic.broker.rest("PUT", path_of(empty))
        given = {**topic.options(startingOffsets="earliest", subscription="auto"), "topics": f"{topic.name}, {empty.name}"}
        del given["topic"]
        reader = DefaultSource(given).streamReader(DefaultSource(given).schema())
        assert isinstance(reader, SeveralStreamReader)
        query = Stream(reader)
        topic.send(topic.name, [1])
        assert query.batch() == [1]
        names = {name: one["subscription"] for name, one in query.ends[-1]["topics"].items()}
        assert (subscriptions(topic), subscriptions(empty)) == ([names[topic.name]], [names[empty.name]])
        reader.stop()


def test_a_query_of_spark_has_one_subscription(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    found: list[int] = []
    for number in range(2):
        topic.send(topic.name, [number])
        rows = (
            spark.readStream.format("txnsegment").options(**topic.options(startingOffsets="earliest", subscription="auto")).load()
        )
        writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(int(row["value"]) for row in batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()
        assert found == list(range(number + 1))
        (name,) = subscriptions(topic)
        assert f'"subscription":"{name}"' in (tmp_path / "checkpoint" / "offsets" / "0").read_text().replace(" ", "")
