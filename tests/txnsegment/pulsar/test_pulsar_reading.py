"""Tests of `topics.read`, `.follow` and their commands on a real Pulsar broker."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from metadata.common.errors import OptionError
from pulsar_protocol.errors import TopicMissing
from txnsegment.cli.app import build
from txnsegment.pulsar.cluster import PulsarCluster

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic(cluster: PulsarCluster) -> str:
    """A topic of two segments with the rows 0 to 9, in two transactions."""
    name = f"topic://public/default/read-{uuid.uuid4().hex[:8]}"
    for first in (0, 5):
        write(cluster, name, *range(first, first + 5))
    return name


def write(cluster: PulsarCluster, name: str, *numbers: int) -> None:
    with cluster.begin() as txn:
        txn.append(name, [{"who": f"k{n}", "n": n} for n in numbers], key="who", segments=2)
        txn.commit()


def test_a_topic_is_read_as_arrow(cluster: PulsarCluster, topic: str) -> None:
    found = cluster.topics.read(topic)
    assert found.schema.names == ["who", "n"]
    assert sorted(found.read_pandas()["n"]) == list(range(10))
    assert cluster.topics.read(topic, columns=["n"]).schema.names == ["n"]
    assert "__messageId" in cluster.topics.read(topic, metadata=True).schema.names
    assert cluster.topics.read(topic, start="latest").read_all().num_rows == 0
    assert cluster.topics.read(topic, start=datetime.now(UTC) - timedelta(hours=1)).read_all().num_rows == 10
    with pytest.raises(TopicMissing):
        cluster.topics.read(f"{topic}-none")
    with pytest.raises(OptionError, match="startingOffsets"):
        cluster.topics.read(topic, start=7)


def test_open_and_aborted_rows_are_not_read(cluster: PulsarCluster, topic: str) -> None:
    with cluster.begin() as txn:
        txn.append(topic, [{"who": "x", "n": 99}], key="who")
        assert cluster.topics.read(topic).read_all().num_rows == 10
        txn.abort()
    assert cluster.topics.read(topic).read_all().num_rows == 10


def test_following_gives_new_rows_without_a_subscription(cluster: PulsarCluster, topic: str) -> None:
    rows = cluster.topics.follow(topic)
    writer = threading.Thread(target=write, args=(cluster, topic, 10, 11))
    writer.start()
    found: list[int] = []
    while len(found) < 2:
        found += next(rows).column("n").to_pylist()
    writer.join()
    assert sorted(found) == [10, 11]
    assert cluster.subscriptions.list(topic) == []


def test_the_commands_read_and_write(cluster: PulsarCluster, pulsar: str) -> None:
    name = f"written-{uuid.uuid4().hex[:8]}"

    def run(*arguments: str, given: str = "") -> str:
        done = CliRunner().invoke(build(), ["--service-url", pulsar, "topics", *arguments], input=given)
        assert done.exit_code == 0, done.output
        return done.stdout

    given = '{"who": "ann", "n": 1}\n{"who": "bob", "n": null}\n'
    assert run("write", name, given=given) == f"Wrote 2 rows to {name} in 1 transaction.\n"
    assert run("read", name, "--format", "json") == given
    assert run("read", name, "--format", "csv", "--columns", "n,who") == "n,who\n1,ann\n,bob\n"
    run("write", name, "--format", "csv", given="who,n\ncid,3\n")
    assert pa.table(cluster.topics.read(name)).num_rows == 3
