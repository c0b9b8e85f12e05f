"""`pulsar_protocol` reads the rows that Pulsar's own Java client (v5) writes, and each of the three Java consumers reads the rows
that `pulsar_protocol` writes. No reader gets rows of aborted transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pyarrow as pa
import pytest

from conformance.pulsar_java import Compression as JavaCompression
from conformance.pulsar_java import End, How, JavaClient, Schema
from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.chunks import encode_chunks, whole
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Compression, Message
from pulsar_protocol.layout import EARLIEST
from pulsar_protocol.producer import Producer
from pulsar_protocol.reader import entries
from pulsar_protocol.values import codec, codec_for
from tests.support.pulsar_reads import messages_of

pytestmark = pytest.mark.pulsar

CONSUMERS: Sequence[How] = get_args(How)
TEXT = "Grüße an alle, die dies lesen. " * 150
"""A text of more than 4 KiB, because Pulsar's Java client compresses only entries of at least 4 KiB."""


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, request: pytest.FixtureRequest) -> str:
    """Return a new topic with two segments."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return pulsar_broker.create(f"interoperation-{name}", 2)


def read(client: PulsarClient, topic: str, count: int) -> list[Message]:
    """Return all messages of a topic, with those of each segment in their order. `count`: how many are expected.

    The broker delivers the rows of a transaction some time after the transaction has ended. So a read with too few rows is
    repeated.
    """
    for _ in range(20):
        segments = sorted(client.layout(topic).segments.values(), key=lambda one: one.id)
        found = [m for one in segments for _, entry in entries(client, one.name, idle_seconds=1) for m in entry.messages()]
        if len(found) >= count:
            return found
    return found


def write(client: PulsarClient, topic: str, messages: Sequence[Message], **options: Any) -> None:
    """Send messages with keys to the segments of their keys, one entry for each segment."""
    layout = client.layout(topic)
    schema = options.pop("schema", None)
    for segment in layout.active:
        mine = [one for one in messages if layout.segment_of(one.key or b"", "low") == segment]
        if mine:
            with Producer(client, segment.name, schema=schema) as producer:
                producer.send(mine, **options)


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true. A segment applies the end of a transaction a moment after the coordinator has answered."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def keyed(number: int) -> dict[str, Any]:
    return {
        "key": f"k{number % 5}",
        "value": f"{number} {TEXT}",
        "properties": {"n": str(number), "ü": "ß"},
        "event_ms": 1000 + number,
    }


def as_message(row: dict[str, Any]) -> Message:
    return Message(row["value"].encode(), row["key"].encode(), row["properties"], row["event_ms"])


def by_number(messages: Sequence[Message]) -> list[Message]:
    return sorted(messages, key=lambda one: int(one.properties["n"]))


ROWS = [keyed(number) for number in range(20)]


@pytest.mark.parametrize("compression", get_args(JavaCompression))
@pytest.mark.parametrize("batch", [0, 7])
def test_rows_of_java_are_read(
    java: JavaClient, client: PulsarClient, topic: str, compression: JavaCompression, batch: int
) -> None:
    java.write(topic, ROWS, compression=compression, batch=batch)
    found = read(client, topic, len(ROWS))
    assert by_number(found) == [as_message(row) for row in ROWS]
    for key in {one.key for one in found}:
        numbers = [int(one.properties["n"]) for one in found if one.key == key]
        assert numbers == sorted(numbers), "the rows of a key are in order"


def test_each_key_of_java_is_in_the_segment_that_this_client_would_choose(
    java: JavaClient, client: PulsarClient, topic: str
) -> None:
    """Pulsar 5.0.0-M1 routes by the low 16 bits of the hash."""
    rows = [{"key": f"key {number} é", "value": "v"} for number in range(40)]
    java.write(topic, rows)
    layout = client.layout(topic)
    found = {one.id: {message.key for message in messages_of(client, one.name)} for one in layout.active}
    expected: dict[int, set[bytes | None]] = {one.id: set() for one in layout.active}
    for row in rows:
        expected[layout.segment_of(row["key"].encode(), "low").id].add(row["key"].encode())
    assert all(expected.values())
    assert found == expected


@pytest.mark.parametrize("batch", [0, 7])
def test_committed_rows_of_java_are_read_and_aborted_ones_are_not(
    java: JavaClient, client: PulsarClient, topic: str, batch: int
) -> None:
    java.write(topic, ROWS[:5], end="commit", batch=batch)
    java.write(topic, ROWS[5:10], end="abort", batch=batch)
    java.write(topic, ROWS[10:15], end="commit", batch=batch, compression="ZSTD")
    java.write(topic, ROWS[15:], batch=batch)
    assert by_number(read(client, topic, 15)) == [as_message(row) for row in (*ROWS[:5], *ROWS[10:])]


ORDERS = [
    {"id": 1, "name": "Ölkanne", "price": 2.5},
    {"id": 2**40, "name": None, "price": None},
    {"id": None, "name": "", "price": -0.5},
]
SCHEMAS: dict[Schema, list[Any]] = {
    "string": ["", "Grüße"],
    "int64": [0, -(2**63), 2**63 - 1],
    "avro": ORDERS,
    "json": ORDERS,
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_values_with_a_schema_of_java_are_read(java: JavaClient, client: PulsarClient, topic: str, schema: Schema) -> None:
    java.write(topic, [{"key": "one", "value": value} for value in SCHEMAS[schema]], schema=schema)
    values = codec(client.schema(topic), topic)
    batch = values.decode([one.value for one in read(client, topic, len(SCHEMAS[schema]))])
    rows = batch.to_pylist()
    assert (rows if schema in ("avro", "json") else [row["value"] for row in rows]) == SCHEMAS[schema]


LARGE = [keyed(number) | {"value": f"{number} {'large ' * 40_000}"} for number in range(3)]


@pytest.mark.parametrize("end", [None, "commit"])
def test_large_rows_of_java_are_read(java: JavaClient, client: PulsarClient, topic: str, end: End | None) -> None:
    """Java sends each of these rows in several entries. In a transaction it sends them without waiting for receipts, and the broker
    5.0.0-M1 may then store them in another order. No reader delivers a row whose chunks are out of order, so Java sends it again.
    """

    def found() -> dict[str, Message]:
        messages: list[Message] = []
        for segment in client.layout(topic).active:
            cut = Segment(client, segment.name).cut().position
            ranges = whole(lambda after, to, segment=segment: entries(client, segment.name, after, to), EARLIEST, cut)
            messages += [message for _, entry in ranges for message in entry.messages()]
        return {message.properties["n"]: message for message in messages}

    def arrives() -> bool:
        """Send the rows, and return whether all of them are there within ten seconds."""
        java.write(topic, LARGE, chunk=50_000, end=end)
        deadline = time.monotonic() + 10
        while len(found()) < len(LARGE) and time.monotonic() < deadline:
            pass
        return len(found()) == len(LARGE)

    assert any(arrives() for _ in range(6 if end == "commit" else 1))
    assert by_number([*found().values()]) == [as_message(row) for row in LARGE]


@pytest.mark.parametrize("how", CONSUMERS)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_large_rows_of_this_client_are_read_by_java(
    java: JavaClient, client: PulsarClient, topic: str, compression: Compression, how: How
) -> None:
    """Each row is sent in several entries. The first row is sent in a transaction."""
    txn = client.begin(600_000)
    layout = client.layout(topic)
    for row in LARGE:
        with Producer(client, layout.segment_of(row["key"].encode(), "low").name, schema=client_string_schema()) as producer:
            producer.send_chunks(
                as_message(row), 50_000 if compression == "none" else 10, txn if row is LARGE[0] else None, compression
            )
    client.end(txn, commit=True)
    found = java.read(topic, count=len(LARGE), how=how)
    assert sorted(found, key=lambda row: int(row["properties"]["n"])) == LARGE


@pytest.mark.parametrize("how", CONSUMERS)
def test_chunks_of_a_transaction_are_delivered_with_its_commit_and_never_if_it_is_aborted(
    java: JavaClient, client: PulsarClient, topic: str, how: How
) -> None:
    """Chunks of a committed and of an aborted transaction lie between one another, in one segment."""
    kept, dropped = [client.begin(600_000) for _ in range(2)]
    (segment, _) = client.layout(topic).active
    with Producer(client, segment.name, schema=client_string_schema()) as one, Producer(client, segment.name) as two:
        chunks = [
            [
                encode_chunks(
                    as_message({**row, "key": "k0"}),
                    50_000,
                    producer=p.name,
                    sequence=7 + n,
                    publish_ms=1,
                    txn=txn,
                    schema_version=one.schema_version,
                )
                for n, row in enumerate(LARGE)
            ]
            for p, txn in ((one, kept), (two, dropped))
        ]
        for n, (mine, theirs) in enumerate(zip(*chunks, strict=True)):
            for a, b in zip(mine, theirs, strict=True):
                one._sent(a, 7 + n, kept, num_messages=1, is_chunk=True)
                two._sent(b, 7 + n, dropped, num_messages=1, is_chunk=True)
        client.end(dropped, commit=False)
        assert [*entries(client, segment.name, idle_seconds=1)] == []
        client.end(kept, commit=True)
        txn = client.begin(600_000)
        one.send_large(as_message({**LARGE[0], "key": "k0"}), txn)  # stays open: nobody gets it
    found = java.read(topic, count=len(LARGE), how=how)
    assert sorted(found, key=lambda row: int(row["properties"]["n"])) == [{**row, "key": "k0"} for row in LARGE]
    client.end(txn, commit=False)


@pytest.mark.parametrize("how", CONSUMERS)
@pytest.mark.parametrize("compression", get_args(Compression))
def test_rows_of_this_client_are_read_by_java(
    java: JavaClient, client: PulsarClient, topic: str, compression: Compression, how: How
) -> None:
    schema = client_string_schema()
    write(client, topic, [as_message(row) for row in ROWS], compression=compression, schema=schema)
    found = java.read(topic, count=len(ROWS), how=how)
    assert sorted(found, key=lambda row: int(row["properties"]["n"])) == ROWS
    if how != "queue":
        for key in {row["key"] for row in found}:
            numbers = [int(row["properties"]["n"]) for row in found if row["key"] == key]
            assert numbers == sorted(numbers), "the rows of a key are in order"


def client_string_schema() -> Any:
    """Return the schema of texts. The broker refuses Java consumers with `Schema.string()` on a topic without this schema."""
    return codec_for(pa.schema([("value", pa.string())]), "primitive").schema


@pytest.mark.parametrize("how", CONSUMERS)
def test_committed_rows_of_this_client_are_read_by_java_and_aborted_ones_are_not(
    java: JavaClient, client: PulsarClient, topic: str, how: How
) -> None:
    schema = client_string_schema()
    for rows, commit in [(ROWS[:8], True), (ROWS[8:12], False), (ROWS[12:], True)]:
        txn = client.begin(600_000)
        write(client, topic, [as_message(row) for row in rows], txn=txn, schema=schema)
        client.end(txn, commit=commit)
    found = java.read(topic, count=16, how=how)
    assert sorted(found, key=lambda row: int(row["properties"]["n"])) == [*ROWS[:8], *ROWS[12:]]


@pytest.mark.parametrize("kind", ["avro", "json"])
@pytest.mark.parametrize("how", CONSUMERS)
def test_records_of_this_client_are_read_by_java(java: JavaClient, client: PulsarClient, topic: str, kind: Any, how: How) -> None:
    columns = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
    values = codec_for(columns, kind, "Order")
    data = values.encode(pa.RecordBatch.from_pylist(ORDERS, schema=values.columns))
    write(client, topic, [Message(value, b"one") for value in data], schema=values.schema)
    assert [row["value"] for row in java.read(topic, count=len(ORDERS), how=how, schema=kind)] == ORDERS
