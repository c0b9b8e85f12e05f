"""Schemas on a running broker. They are registered and read back, an incompatible schema is refused, and rows of several versions
are read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from ledgers.errors import SchemaError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import SchemaRefused
from pulsar_protocol.messages import Schema
from pulsar_protocol.producer import Producer
from pulsar_protocol.values import SchemaVersions, Values, codec, codec_for
from tests.support.pulsar_reads import visible

pytestmark = pytest.mark.pulsar


@pytest.fixture
def client(pulsar_broker: PulsarBroker) -> Iterator[PulsarClient]:
    with PulsarClient(pulsar_broker.url) as opened:
        yield opened


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> str:
    return pulsar_broker.create(f"values-{uuid.uuid4().hex[:8]}")


def segment(client: PulsarClient, topic: str) -> str:
    (found,) = client.layout(topic).active
    return found.name


def write(client: PulsarClient, topic: str, values: Values, rows: pa.RecordBatch) -> None:
    with Producer(client, segment(client, topic), schema=values.schema) as producer:
        producer.send([Message(value) for value in values.encode(rows)])


def read(client: PulsarClient, topic: str) -> list[dict[str, object]]:
    versions = SchemaVersions.latest(client, topic)
    found = []
    for _, entry in visible(client, segment(client, topic)):
        values = versions.of(entry.metadata.schema_version)
        found += values.decode([one.value for one in entry.messages()]).to_pylist()
    return found


COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_record_schema_is_registered_and_rows_come_back(client: PulsarClient, topic: str, kind: str) -> None:
    values = codec_for(COLUMNS, kind)
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, None], "name": ["a", None, "c"], "at": [5, 6, None]}, values.columns)
    write(client, topic, values, rows)
    kept = client.schema(topic)
    assert kept is not None
    assert kept.type == values.schema.type
    assert codec(kept, topic).columns.equals(values.columns)
    assert json.loads(kept.schema_data) == json.loads(values.schema.schema_data)
    assert read(client, topic) == rows.to_pylist()


def test_an_incompatible_schema_is_refused_and_the_error_names_the_topic(client: PulsarClient, topic: str) -> None:
    place = segment(client, topic)
    first = codec_for(COLUMNS, "avro")
    client.register(place, first.schema)
    for other in (codec_for(COLUMNS, "json"), codec_for(pa.schema([("id", pa.string())]), "avro")):
        with pytest.raises(SchemaRefused, match=topic.rpartition("/")[2]) as caught:
            client.register(place, other.schema)
        assert caught.value.advice
        with pytest.raises(SchemaRefused, match=topic.rpartition("/")[2]):
            Producer(client, place, schema=other.schema)


def test_rows_of_an_older_version_are_read_into_the_newer_columns(client: PulsarClient, topic: str) -> None:
    old = codec_for(COLUMNS, "avro")
    new = codec_for(pa.schema([("more", pa.list_(pa.int32())), ("name", pa.string()), ("id", pa.int64())]), "avro")
    write(client, topic, old, pa.RecordBatch.from_pydict({"id": [1], "name": ["a"], "at": [5]}, old.columns))
    write(client, topic, new, pa.RecordBatch.from_pydict({"more": [[1]], "name": ["b"], "id": [2]}, new.columns))
    assert read(client, topic) == [{"more": None, "name": "a", "id": 1}, {"more": [1], "name": "b", "id": 2}]


def test_a_version_is_asked_for_once(client: PulsarClient, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = codec_for(COLUMNS, "avro")
    version = client.register(segment(client, topic), values.schema)
    asked: list[bytes | None] = []
    find = PulsarClient.schema

    def counted(self: PulsarClient, name: str, version: bytes | None = None) -> object:
        asked.append(version)
        return find(self, name, version)

    monkeypatch.setattr(PulsarClient, "schema", counted)
    versions = SchemaVersions(client, topic, values)
    assert versions.of(version) is versions.of(version)
    assert versions.of(b"") is values
    assert asked == [version]


def test_a_version_that_is_not_there_is_named(client: PulsarClient, topic: str) -> None:
    values = codec_for(COLUMNS, "avro")
    client.register(segment(client, topic), values.schema)
    with pytest.raises(SchemaError, match=f"version 9 of {topic}"):
        SchemaVersions(client, topic, values).of((9).to_bytes(8, "big"))


@pytest.mark.parametrize("kind", [1, 5, 8, 9, 11, 14, 16, 17, 18, 19])
def test_primitive_schemas_are_registered_and_rows_come_back(client: PulsarClient, topic: str, kind: int) -> None:
    values = codec(Schema(name="x", type=kind, schema_data=b""))
    given = {1: ["a", None], 5: [True, None], 11: [1.5, None], 18: [1000, None]}.get(kind, [1, None])
    if kind in (14, 16, 19):
        given = [1_000_000, None]
    rows = pa.RecordBatch.from_arrays([pa.array(given, values.columns.field(0).type)], ["value"])
    write(client, topic, values, rows)
    assert client.schema(topic).type == kind
    assert read(client, topic) == rows.to_pylist()
