"""A program that consumes, transforms and produces in transactions, and is killed, or whose broker is: each row is moved once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import TxnId
from tests.support.pulsar_clusters import topic_with
from tests.support.pulsar_etl import FATES
from txnsegment.pulsar.cluster import PulsarCluster

pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("id", pa.int64()), ("who", pa.string())])
COUNT = 15


@pytest.fixture
def topics(cluster: PulsarCluster, pulsar_broker: PulsarBroker) -> list[str]:
    """A source with rows, and a target."""
    made = [topic_with(pulsar_broker, cluster, COLUMNS) for _ in range(2)]
    write(cluster, made[0], range(COUNT))
    return made


def write(cluster: PulsarCluster, topic: str, ids: range) -> None:
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"id": ids, "who": [f"k{one % 5}" for one in ids]}, COLUMNS), key="who")
        txn.commit()


def counted(cluster: PulsarCluster, topic: str) -> Counter[int]:
    with cluster.consumer(topic, f"look-{uuid.uuid4().hex[:6]}", start="earliest") as consumer:
        return Counter(one.value["id"] for one in consumer.messages(timeout=0))


def run(cluster: PulsarCluster, topics: list[str], fate: str = "") -> int:
    command = [sys.executable, "-m", "tests.support.pulsar_etl", cluster.url, *topics, "etl"]
    return subprocess.run(command, env={**os.environ, "FATE": fate}, timeout=120, check=False).returncode


@pytest.mark.parametrize("fate", FATES)
def test_a_program_that_is_killed_moves_each_row_once(cluster: PulsarCluster, topics: list[str], fate: str) -> None:
    assert run(cluster, topics, f"kill {fate} 2") == -signal.SIGKILL
    assert run(cluster, topics) == 0
    assert counted(cluster, topics[1]) == Counter(range(COUNT))


@pytest.mark.parametrize("when", ["before the commit", "after the acknowledgements were written", "right after the commit"])
def test_a_broker_that_is_killed_forgets_no_acknowledgement(
    cluster: PulsarCluster, topics: list[str], pulsar_broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Pulsar's own acknowledgements in a transaction are all forgotten in the first two cases (5.0.0-M1)."""
    source, target = topics
    end = cluster.client.end

    def killed() -> None:
        pulsar_broker.kill()
        pulsar_broker.start()

    def end_with_kill(txn: TxnId, **how: Any) -> None:
        if when == "after the acknowledgements were written":
            killed()
        end(txn, **how)
        if when == "right after the commit":
            killed()

    with cluster.consumer(source, "etl", start="earliest") as consumer:
        found = list(islice(consumer.messages(timeout=10), 5))
        with cluster.begin(timeout=300) as txn:
            txn.append(target, pa.Table.from_pylist([one.value for one in found]), key="who")
            consumer.ack(found, txn=txn)
            if when == "before the commit":
                killed()
            monkeypatch.setattr(cluster.client, "end", end_with_kill)
            txn.commit()
            monkeypatch.setattr(cluster.client, "end", end)
        rest = list(consumer.messages(timeout=5))
        with cluster.begin() as txn:
            txn.append(target, pa.Table.from_pylist([one.value for one in rest]), key="who")
            consumer.ack_cumulative(rest[-1], txn=txn)
            txn.commit()
    assert counted(cluster, target) == Counter(range(COUNT))


def test_plain_acknowledgements_survive_a_kill_of_the_broker(
    cluster: PulsarCluster, topics: list[str], pulsar_broker: PulsarBroker
) -> None:
    """The broker's own cursors lose what was acknowledged in the last second."""
    with cluster.consumer(topics[0], "s", start="earliest") as consumer:
        found = list(consumer.messages(timeout=0))
        consumer.ack(found[:9])
        pulsar_broker.kill()
        pulsar_broker.start()
        consumer.ack(found[10])
    with cluster.consumer(topics[0], "s") as consumer:
        left = sorted(one.id for one in consumer.messages(timeout=0))
    assert left == sorted(one.id for one in [found[9], *found[11:]])
