"""Which connections and producers a process that commits writes keeps. The control topics and the coordinator are models."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from pulsar_protocol.client import TxnId
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar import writer
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.ends import NotCommitted
from spark_txn_sink.pulsar.sending import Sent
from spark_txn_sink.pulsar.writer import BatchWriter, StreamWriter
from tests.support.pulsar_control_model import ModelControl, World

ROWS = StructType([StructField("n", IntegerType())])


class Process:
    """A process of Spark that commits writes. `made`: its control topics. `closed`: those that were closed."""

    def __init__(self) -> None:
        self.world = World(random.Random(0), 0.0)
        self.made: list[tuple[str, str]] = []
        self.closed: list[tuple[str, str]] = []

    def control_topic(self, connect: Callable[[], Any], app: str, topic: str, admin_url: str | None) -> ModelControl:
        process, key = self, (app, topic.rpartition("/")[2])

        class Topic(ModelControl):
            def strays(self, opened: Opened) -> list[TxnId]:
                return []

            def passed(self, opened: Opened) -> None:
                pass

            def close(self) -> None:
                process.closed.append(key)

        self.made.append(key)
        return Topic(self.world)

    def patient(self) -> Process:
        return self

    def end(self, txn: TxnId, *, commit: bool) -> None:
        """End a transaction, as the client that all writes of the process share."""
        self.world.end(txn, "committed" if commit else "aborted")

    def report(self, version: int) -> Sent:
        txn = self.world.begin(version)
        return Sent(txn, "a", 0, {}, 0, "query", "run", Opened(txn, "log", Position(0, version)))

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"serviceUrl": "pulsar://h:6650", "topic": topic, **more}


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(writer, "_committers", {})
    monkeypatch.setattr(writer, "ControlTopic", made.control_topic)
    monkeypatch.setattr(writer, "shared", lambda url: made)
    return made


def test_a_batch_of_an_application_gives_its_control_topic_up_at_its_end(process: Process) -> None:
    for number in range(3):
        options = process.options("t", txnAppId=f"app-{number}", txnVersion=str(number))
        BatchWriter(options, ROWS, False).commit([process.report(number)])
    assert process.made == process.closed == [(f"app-{number}", "t") for number in range(3)]
    assert process.world.committed() == dict.fromkeys(range(3), 1)


def test_a_batch_that_fails_gives_its_control_topic_up(process: Process) -> None:
    report = process.report(0)
    process.world.end(report.txn, "aborted")
    with pytest.raises(NotCommitted):
        BatchWriter(process.options("t", txnAppId="app", txnVersion="1"), ROWS, False).commit([report])
    assert process.made == process.closed == [("app", "t")]


def test_a_stream_keeps_its_control_topic_for_the_next_micro_batch(process: Process) -> None:
    for version in range(3):
        StreamWriter(process.options("t"), ROWS, False).commit([process.report(version)], version)
    assert (process.made, process.closed) == ([("query", "t")], [])
    assert process.world.committed() == dict.fromkeys(range(3), 1)


def test_a_write_without_an_application_and_a_write_that_is_given_up_have_no_control_topic(process: Process) -> None:
    written, given_up = process.report(0), process.report(1)
    BatchWriter(process.options("t"), ROWS, False).commit([written])
    StreamWriter(process.options("t"), ROWS, False).abort([given_up], 7)
    assert cast("Any", process.world.txns) == {written.txn: "committed", given_up.txn: "aborted"}
    assert process.made == []
