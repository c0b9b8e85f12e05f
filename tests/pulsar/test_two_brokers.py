"""Two real brokers of one cluster. Each has some segments of a topic. Clients use all of them, also after one broker has ended."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from conformance.processes import Session
from conformance.pulsar_jars import java_command
from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.values import codec_for
from pyspark_txnsegment import DefaultSource
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from spark_txn_source.pulsar.batch import BatchReader
from txnsegment import connect

pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("n", pa.int64()), ("k", pa.string())])


class SecondBroker(PulsarBroker):
    """A second broker of a cluster. It uses the bookie and the ZooKeeper server of the first broker."""

    def __init__(self, folder: Path, first: PulsarBroker) -> None:
        super().__init__(folder)
        self.zookeeper, self.first = first.zookeeper, first
        self.both = f"{self.url},{first.url.removeprefix('pulsar://')}"
        """The service URL that names both brokers."""

    def launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        store = f"zk:{self.zookeeper.hosts}"
        more = {"metadataStoreUrl": store, "configurationMetadataStoreUrl": store}
        more["bookkeeperMetadataServiceUri"] = f"metadata-store:{store}"
        config = self.folder / "broker.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in {**self._lines(), **more}.items()), encoding="utf-8")
        command = java_command("org.apache.pulsar.PulsarBrokerStarter", self.folder, options=["-Xmx384m"], level="INFO")
        self._session = Session([*command, "--broker-conf", str(config)], self.log, folder=self.folder)

    def stop(self) -> None:
        self.end()

    def topic(self) -> str:
        """Create a topic of 8 segments in a namespace whose bundles the two brokers share. A broker that is asked for a topic takes
        the topic's bundle, if no broker has it. So the test asks the two brokers in turn for topics of the namespace.
        """
        namespace = f"public/{uuid.uuid4().hex[:8]}"
        self.rest("PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 16}})
        with PulsarClient(self.url) as one, PulsarClient(self.first.url) as other:
            for number in range(64):
                (one, other)[number % 2].channel().ask(
                    "lookup_topic", topic=f"persistent://{namespace}/{number}", authoritative=False
                )
            name = self.create(f"topic://{namespace}/{uuid.uuid4().hex[:8]}", 8)
            one.register(one.layout(name).active[0].name, codec_for(COLUMNS, "avro").schema)
        return name


@pytest.fixture
def second(pulsar_broker: PulsarBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondBroker]:
    monkeypatch.setenv(ADMIN_VARIABLE, pulsar_broker.admin_url)
    with SecondBroker(tmp_path / "second", pulsar_broker) as broker:
        yield broker


def write(url: str, topic: str, numbers: range, *, commit: bool = True) -> None:
    rows = pa.table({"n": list(numbers), "k": [f"k{number}" for number in numbers]}, COLUMNS)
    with connect(url) as cluster, cluster.begin() as txn:
        txn.append(topic, rows, key="k")
        if commit:
            txn.commit()
        else:
            txn.abort()


def read(url: str, topic: str) -> list[int]:
    options = {"serviceUrl": url, "topic": topic}
    reader = BatchReader(options, DefaultSource(options).schema())
    batches = (batch for task in reader.partitions() for batch in reader.read(task))
    return sorted(number for batch in batches for number in batch.column("n").to_pylist())


def has(url: str, topic: str, numbers: range) -> None:
    """Wait until a read returns these rows. That may take a while, because a segment applies the end of a transaction after the
    coordinator has answered, and because segments move between the brokers.
    """
    deadline = time.monotonic() + 120
    while (found := read(url, topic)) != [*numbers]:
        assert time.monotonic() < deadline, found


def test_segments_of_two_brokers_are_read_and_written_through_each_of_them(second: SecondBroker) -> None:
    topic = second.topic()
    with PulsarClient(second.url) as client:
        assert {one.broker for one in client.layout(topic).active} == {second.url, second.first.url}
    write(second.url, topic, range(100))
    write(second.both, topic, range(500, 600), commit=False)
    write(second.both, topic, range(100, 200))
    has(second.url, topic, range(200))
    has(second.both, topic, range(200))
    second.end()
    has(second.both, topic, range(200))
    write(second.both, topic, range(200, 300))
    has(second.both, topic, range(300))
