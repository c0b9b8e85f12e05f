"""Tests of the values and keys that the sink's tasks send to a real broker, and of the rule that only the first attempt of a task
may send.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import SchemaError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import ConnectionLost, TimedOut, TopicMissing, TopicTerminated
from pulsar_protocol.rest import Refused
from pulsar_protocol.values import SchemaVersions
from spark_txn_sink.pulsar.attempts import AttemptRefused
from spark_txn_sink.pulsar.ends import Ends
from spark_txn_sink.pulsar.options import PulsarWriteOptions
from spark_txn_sink.pulsar.plan import PulsarPlan, plan_write
from spark_txn_sink.pulsar.sending import Sent, Task, send_rows
from spark_txn_sink.pulsar.work import Work
from spark_txn_sink.pulsar.writer import joined
from tests.support.pulsar_reads import messages_of, visible

pytestmark = pytest.mark.pulsar


class Sink:
    """A topic of a real broker, with calls that write to it as the sink's driver and tasks do, but without Spark."""

    def __init__(self, broker: PulsarBroker, segments: int) -> None:
        self.broker = broker
        self.topic = broker.create(f"sink-rows-{uuid.uuid4().hex[:12]}", segments)
        self.client = PulsarClient(broker.url)

    def plan(self, columns: pa.Schema, **options: str) -> PulsarPlan:
        given = {"serviceUrl": self.broker.url, "adminUrl": self.broker.admin_url, "topic": self.topic, **options}
        parsed = PulsarWriteOptions.parse(given, streaming=False)
        return plan_write(self.client, parsed, from_arrow_schema(columns), uuid.uuid4().hex)

    def commit(self, plan: PulsarPlan, *reports: Sent) -> None:
        ends = Ends(self.client.end, pause=time.sleep, now=time.monotonic, patience=20.0)
        rows = sum(one.rows for one in reports)
        txn = plan.opened.txn
        ends.commit_alone(Work(txn, txn.text, 1, self.topic, joined(reports), rows, "a write", streaming=False))

    def write(self, batch: pa.RecordBatch, **options: str) -> None:
        plan = self.plan(batch.schema, **options)
        self.commit(plan, send_rows(self.client, plan, [batch], Task()))

    def rows(self) -> list[tuple[bytes | None, dict[str, object]]]:
        """Return the key and the columns of each visible message."""
        versions = SchemaVersions.latest(self.client, self.topic)
        found: list[tuple[bytes | None, dict[str, object]]] = []
        for segment in self.client.layout(self.topic).segments.values():
            for _, entry in visible(self.client, segment.name):
                messages = [*entry.messages()]
                values = versions.of(entry.metadata.schema_version).decode([one.value for one in messages])
                found += zip([one.key for one in messages], values.to_pylist(), strict=True)
        return found


@pytest.fixture
def sink(pulsar_broker: PulsarBroker) -> Iterator[Sink]:
    made = Sink(pulsar_broker, 4)
    yield made
    made.client.close()


ORDERS = pa.RecordBatch.from_pylist([{"id": number, "name": f"n{number}", "x": number / 2} for number in range(20)])


def test_columns_become_an_avro_record_and_the_key_is_kept_in_it(sink: Sink) -> None:
    sink.write(ORDERS, keyColumn="name")
    sink.write(ORDERS, keyColumn="name")
    assert sorted(sink.rows(), key=lambda row: row[0] or b"") == sorted(
        [(one["name"].encode(), one) for one in ORDERS.to_pylist() for _ in range(2)], key=lambda row: row[0]
    )


def test_columns_that_do_not_fit_the_schema_of_the_topic_are_refused(sink: Sink) -> None:
    sink.write(ORDERS)
    with pytest.raises(SchemaError, match="id, name"):
        sink.plan(ORDERS.select(["id", "name"]).schema)
    with pytest.raises(SchemaError, match="id"):
        sink.plan(pa.schema([("id", pa.string()), ("name", pa.string()), ("x", pa.float64())]))


def test_a_refused_write_creates_no_topic(sink: Sink) -> None:
    sink.topic = f"{sink.topic}-missing"
    with pytest.raises(SchemaError, match="gap"):
        sink.plan(pa.schema([("id", pa.int64()), ("gap", pa.duration("us"))]))
    with pytest.raises(TopicMissing):
        sink.client.layout(sink.topic)


def test_a_missing_namespace_is_to_be_created(sink: Sink) -> None:
    sink.topic = f"topic://public/none-{uuid.uuid4().hex[:8]}/t"
    with pytest.raises(Refused, match="does not exist, so no topic is created in it") as raised:
        sink.plan(ORDERS.schema)
    assert "pulsar-admin namespaces create" in raised.value.advice
    with pytest.raises(TopicMissing):
        sink.client.layout(sink.topic)


def test_one_column_has_the_schema_of_its_type_and_the_key_travels_beside_it(sink: Sink) -> None:
    sink.write(pa.RecordBatch.from_pylist([{"k": 7, "value": "a"}, {"k": 8, "value": "b"}]), keyColumn="k")
    assert sorted(sink.rows()) == [(b"7", {"value": "a"}), (b"8", {"value": "b"})]


def test_keys_are_routed_as_the_broker_does(sink: Sink) -> None:
    batch = pa.RecordBatch.from_pylist([{"k": f"key-{number}", "value": b"%d" % number} for number in range(50)])
    plan = sink.plan(batch.schema, keyColumn="k")
    assert plan.bits == "low", "the broker is 5.0.0-M1"
    report = send_rows(sink.client, plan, [batch], Task())
    sink.commit(plan, report)
    layout = sink.client.layout(sink.topic)
    for segment in layout.active:
        keys = [one.key or b"" for one in messages_of(sink.client, segment.name)]
        assert {layout.segment_of(key, "low").name for key in keys} == {segment.name}
    assert report.rows == 50


def test_only_the_first_attempt_of_a_task_sends(sink: Sink) -> None:
    """A retry, a speculative attempt, and an attempt of a stage that runs again have the same partition as the first attempt, but
    ids of their own. The sink refuses them.
    """
    plan = sink.plan(ORDERS.schema)
    report = send_rows(sink.client, plan, [ORDERS], Task(partition=3))
    with pytest.raises(AttemptRefused, match="task 3"):
        send_rows(sink.client, plan, [ORDERS], Task(partition=3))
    other = send_rows(sink.client, plan, [ORDERS], Task(partition=4))
    sink.commit(plan, report, other)
    assert len(sink.rows()) == 2 * len(ORDERS)


def test_an_attempt_whose_input_failed_leaves_its_retry_free(sink: Sink) -> None:
    plan = sink.plan(ORDERS.schema)

    def failing() -> Iterator[pa.RecordBatch]:
        yield ORDERS
        raise OSError("a shuffle file is lost")

    with pytest.raises(OSError, match="shuffle"):
        send_rows(sink.client, plan, failing(), Task())
    sink.commit(plan, send_rows(sink.client, plan, [ORDERS], Task()))
    assert len(sink.rows()) == len(ORDERS)


def values_by_key(sink: Sink) -> dict[bytes | None, list[object]]:
    """Return the values of each key in the order in which a reader gets them: a segment after its parents."""
    found: dict[bytes | None, list[object]] = {}
    for key, row in sink.rows():
        found.setdefault(key, []).append(row["value"])
    return found


def test_a_task_goes_on_in_the_new_segments_when_its_segments_are_split_and_merged(sink: Sink) -> None:
    rows = [{"k": f"key-{number % 40}", "value": b"%04d" % number} for number in range(400)]
    batch = pa.RecordBatch.from_pylist(rows)
    plan = sink.plan(batch.schema, keyColumn="k", entryRows="3")

    def changing() -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 100)
        sink.broker.split(sink.topic, 0)
        sink.broker.split(sink.topic, 2)
        yield batch.slice(100, 100)
        active = sink.client.layout(sink.topic).active
        sink.broker.merge(sink.topic, active[1].id, active[2].id)
        yield batch.slice(200, 100)
        for one in sink.client.layout(sink.topic).active:
            sink.broker.split(sink.topic, one.id)
        yield batch.slice(300, 100)

    report = send_rows(sink.client, plan, changing(), Task())
    assert report.rows == 400
    assert len(report.segments) > 8, "parents and children"
    sink.commit(plan, report)
    expected: dict[bytes | None, list[object]] = {}
    for row in rows:
        expected.setdefault(str(row["k"]).encode(), []).append(row["value"])
    assert values_by_key(sink) == expected


WRITE_AGAIN = (ConnectionLost, TopicTerminated, TimedOut)
"""The errors of a write whose outcome in a sealed segment is not known. Its transaction is aborted then."""


def test_tasks_that_send_while_segments_are_split_lose_and_double_nothing(sink: Sink) -> None:
    """All segments are split while two tasks send. Some entries are in flight when their segment is sealed. Each task has its own
    keys.
    """
    batch = pa.RecordBatch.from_pylist([{"k": f"{task}-{n % 16}", "value": b"%05d" % n} for task in (0, 1) for n in range(600)])
    tries = 0
    while True:
        plan = sink.plan(batch.schema, keyColumn="k", entryRows="5")
        halves = [[batch.slice(600 * task, 600)] for task in (0, 1)]
        with ThreadPoolExecutor(2) as tasks:
            running = [tasks.submit(send_rows, sink.client, plan, half, Task(number)) for number, half in enumerate(halves)]
            for one in sink.client.layout(sink.topic).active:
                sink.broker.split(sink.topic, one.id)
            wait(running)
        tries += 1
        errors = [one.exception() for one in running if one.exception() is not None]
        if not errors:
            sink.commit(plan, *(one.result() for one in running))
            break
        assert all(isinstance(one, WRITE_AGAIN) for one in errors), errors
        assert tries < 8, errors
        sink.client.end(plan.opened.txn, commit=False)
    found = values_by_key(sink)
    assert sum(map(len, found.values())) == 1200
    assert all(values == sorted(values) for values in found.values())  # type: ignore[type-var]
