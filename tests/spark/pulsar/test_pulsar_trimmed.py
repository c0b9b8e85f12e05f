"""Streams with a subscription on a real Pulsar broker, which deletes what no subscription needs: the namespace has no retention."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import DataLoss
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from tests.support.pulsar_topics import Stream, Topic

pytestmark = pytest.mark.pulsar


@pytest.fixture
def namespace(pulsar_broker: PulsarBroker) -> str:
    name = f"public/short-{uuid.uuid4().hex[:8]}"
    pulsar_broker.rest("PUT", f"namespaces/{name}", {})
    pulsar_broker.rest("POST", f"namespaces/{name}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    return name


@pytest.fixture
def plain(pulsar_broker: PulsarBroker, namespace: str) -> Iterator[Topic]:
    """A `persistent://` topic. The REST interface trims it at once."""
    with PulsarClient(pulsar_broker.url) as client:
        topic = Topic(pulsar_broker, client, f"persistent://{namespace}/t")
        pulsar_broker.rest("PUT", path_of(topic))
        yield topic


@pytest.fixture
def scalable(pulsar_broker: PulsarBroker, namespace: str) -> Iterator[Topic]:
    with PulsarClient(pulsar_broker.url) as client:
        name = f"topic://{namespace}/t"
        pulsar_broker.create(name, 1)
        yield Topic(pulsar_broker, client, name)


def path_of(topic: Topic) -> str:
    return topic.name.replace("://", "/")


def stream(topic: Topic) -> Stream:
    return topic.stream(startingOffsets="earliest", subscription="s")


def restarted(query: Stream, topic: Topic) -> Stream:
    query.reader.stop()
    again = stream(topic)
    again.ends = query.ends
    return again


def trim(topic: Topic) -> int:
    """Let the broker close the ledger of the topic, and delete the ledgers that it does not need. Return the first one that is
    left.
    """
    topic.unload(path_of(topic))
    Segment(topic.client, topic.name).last()  # the broker opens the topic and a new ledger
    topic.broker.rest("POST", f"{path_of(topic)}/trim")
    return Segment(topic.client, topic.name).before_first().ledger


def until(true: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_idle_topic_that_is_trimmed_is_no_loss(plain: Topic) -> None:
    query = stream(plain)
    plain.send(plain.name, [1, 2])
    assert plain.send(plain.name, [3]).entry > 0
    assert query.batch() == [1, 2, 3]
    for number in range(4, 7):
        trim(plain)
        query = restarted(query, plain)
        assert query.batch() == []
        plain.send(plain.name, [number])
        assert query.batch() == [number]
    query.reader.stop()


def test_ledgers_of_one_entry_are_deleted_when_the_next_one_is_read(plain: Topic) -> None:
    query = stream(plain)
    for number in range(3):
        place = plain.send(plain.name, [number])
        assert place.entry == 0
        assert query.batch() == [number]
        until(lambda place=place: trim(plain) == place.ledger, 20)
    query.reader.stop()


@pytest.mark.parametrize("fault", ["skipped", "made again"])
def test_unread_rows_that_are_deleted_are_a_loss(plain: Topic, fault: str) -> None:
    query = stream(plain)
    plain.send(plain.name, [1])
    assert query.batch() == [1]
    plain.send(plain.name, [2])
    query.reader.stop()
    path = f"{path_of(plain)}/subscription/s"
    if fault == "skipped":
        plain.broker.rest("POST", f"{path}/skip_all")
    else:
        plain.broker.rest("DELETE", f"{path}?force=true")
    trim(plain)
    plain.send(plain.name, [3])
    query = restarted(query, plain)
    with pytest.raises(DataLoss):
        query.batch()
    query.reader.stop()


@pytest.mark.slow
def test_a_sealed_segment_stays_until_a_row_of_its_children_is_read(scalable: Topic) -> None:
    query = stream(scalable)
    scalable.send(scalable.segment(), [1])
    scalable.send(scalable.segment(), [2])
    assert query.batch() == [1, 2]
    other = f"{scalable.name}-without-rows"
    scalable.broker.create(other, 1)
    scalable.split()
    scalable.broker.split(other, 0)
    until(lambda: 0 not in scalable.client.layout(other).segments)
    assert query.batch() == []
    assert 0 in scalable.client.layout(scalable.name).segments
    query = restarted(query, scalable)
    scalable.send(scalable.segment(1), [3])
    assert query.batch() == [3]
    until(lambda: 0 not in scalable.client.layout(scalable.name).segments)
    scalable.send(scalable.segment(2), [4])
    assert query.batch() == [4]
    query.reader.stop()
