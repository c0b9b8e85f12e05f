"""Our classes read each record that the running broker of the tests has, and write it byte for byte as it was."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from conformance.pulsar_server import PulsarBroker
from metadata.records.pulsar_layout import with_pulsar_fields
from metadata.records.records import Layout
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Message
from pulsar_protocol.producer import Producer
from tests.pulsar.dumps import class_of, is_foreign

pytestmark = pytest.mark.pulsar


@pytest.fixture
def zookeeper_of_pulsar(pulsar_broker: PulsarBroker) -> Iterator[KazooClient]:
    client = KazooClient(pulsar_broker.zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def tree(client: KazooClient, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield each record at or below a path. A record that is deleted meanwhile is left out."""
    try:
        value, _ = client.get(path)
        below = client.get_children(path)
    except NoNodeError:
        return
    yield path, value
    for name in sorted(below):
        yield from tree(client, f"{path}/{name}")


KINDS = {"Header", "Op", "Event", "Layout", "TcSequence", "Watermark", "AbortedTxn"}


def written_again(client: KazooClient) -> set[str]:
    """Read each record by our class for it, and check that the class writes the same bytes. Return the names of the classes that
    were needed.
    """
    checked = set()
    for path, value in [*tree(client, "/txn"), *tree(client, "/topics")]:
        kind = class_of(path) if value else None
        assert kind is not None or is_foreign(path, value), path
        if kind is not None:
            read = kind.from_bytes(value)
            assert read.to_bytes() == value, path
            if isinstance(read, Layout):
                assert with_pulsar_fields(read).to_bytes() == value, path
            checked.add(kind.__name__)
    return checked


def test_every_record_of_a_live_broker(pulsar_broker: PulsarBroker, zookeeper_of_pulsar: KazooClient) -> None:
    """The broker has records of a committed, an aborted and an open transaction, of a split and of a merge."""
    topic = pulsar_broker.create("live-records", 2)
    with PulsarClient(pulsar_broker.url) as client:
        for end in (True, False, None):
            txn = client.begin(600_000)
            for segment in client.layout(topic).active:
                with Producer(client, segment.name) as producer:
                    producer.send([Message(b"row")], txn)
            if end is not None:
                client.end(txn, commit=end)
        open_ops = list(tree(zookeeper_of_pulsar, f"/txn/op/{txn.text}-{1:020d}"))
        assert open_ops, "an op record of the open transaction"
        pulsar_broker.split(topic, 0)
        pulsar_broker.merge(topic, 2, 3)
        deadline = time.monotonic() + 60
        while not (checked := written_again(zookeeper_of_pulsar)) >= KINDS and time.monotonic() < deadline:
            time.sleep(0.2)  # a segment applies the end of a transaction after the coordinator has answered
        client.end(txn, commit=False)
    assert checked >= KINDS
