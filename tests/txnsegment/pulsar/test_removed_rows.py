"""A broker with Pulsar's default retention removes the rows that a transaction has read, after the commit. A read of them must say
so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import DataLoss
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.producer import Producer
from pulsar_protocol.subscription import Subscription, all_but
from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.options import PulsarReadOptions
from tests.support.short_retention import SETTINGS, until
from txnsegment.pulsar.ack_records import State
from txnsegment.pulsar.unread import read_exactly, unread

pytestmark = pytest.mark.pulsar


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    with PulsarBroker(tmp_path_factory.mktemp("short"), settings=SETTINGS) as started:
        yield started


def test_rows_that_txn_read_has_read_from_the_beginning_of_a_segment_are_missed_when_they_are_removed(broker: PulsarBroker) -> None:
    topic = broker.create(f"removed-{uuid.uuid4().hex[:8]}", 1)
    with PulsarClient(broker.url) as client:
        (segment,) = client.layout(topic).active
        subscription = Subscription(client, topic, "s", None)
        subscription.hold([segment.name])
        with Producer(client, segment.name) as producer:
            places = [producer.send([Message(b"row")]) for _ in range(10)]
        given = {"serviceUrl": broker.url, "topic": topic}
        found = unread(client, PulsarReadOptions.parse(given, streaming=False), "s", State(exists=True))
        assert not found.starts
        reader = BatchReader({**given, **read_exactly([found])}, StructType([StructField("value", BinaryType())]))
        (task,) = reader.partitions()
        assert sum(batch.num_rows for batch in reader.read(task)) == len(places)
        subscription.acknowledge({segment.name: all_but(places[-1])})
        subscription.close()
        until(lambda: Segment(client, segment.name).before_first().ledger != places[0].ledger)
    with pytest.raises(DataLoss, match="Entries between them may be lost"):
        reader.partitions()
