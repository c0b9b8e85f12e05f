"""Converts values of Pulsar topics into Arrow columns and back, by the topic's schema.

    values = codec(client.schema(topic), topic)      # values.columns: the columns
    batch = values.decode([b"..", None, ..])         # rows; a null value gives a row of nulls
    data = values.encode(batch)                      # list[bytes | None]
    keys = values.keys_of(batch)                     # the keys that are in the rows (KEY_VALUE, separated), else None
    client.register(segment, codec_for(columns, "avro").schema)

`codec` and `codec_for` are pure. `SchemaVersions` asks the client.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from ledgers.avro.columns import derived
from ledgers.avro.schema import Array, Field, Map, Optional, Record, Type, plain, with_fields
from ledgers.errors import SchemaError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.first_schema import KEEP_SCHEMAS
from pulsar_protocol.key_values import KEY_VALUE, KeyValues
from pulsar_protocol.primitive_values import PRIMITIVES, PrimitiveValues
from pulsar_protocol.record_values import AVRO, JSON, AvroValues, JsonValues, record_of
from pulsar_protocol.value_types import VALUE, Bytes, BytesValues, NameRow, Values

__all__ = ["VALUE", "Bytes", "Kind", "NameRow", "SchemaVersions", "Values", "codec", "codec_for"]

Kind = Literal["avro", "json", "bytes", "primitive"]
_OTHERS: Final = {3: "PROTOBUF", 20: "PROTOBUF_NATIVE", 21: "AUTO_CONSUME", 22: "EXTERNAL"}


def codec(schema: Any | None, topic: str = "the topic") -> Values:
    """Return the value format of a `messages.Schema` (None: no schema, so the values are bytes). `topic`: the topic's name, for
    errors.

    Raises SchemaError for a schema whose values cannot be columns.
    """
    if schema is None or schema.type == 0:
        return BytesValues()
    if schema.type in PRIMITIVES:
        return PrimitiveValues(schema.type, schema)
    match schema.type:
        case int(kind) if kind == AVRO:
            return AvroValues(record_of(schema, topic), schema)
        case int(kind) if kind == JSON:
            return JsonValues(record_of(schema, topic), schema)
        case int(kind) if kind == KEY_VALUE:
            return KeyValues.of(schema, lambda part: codec(part, topic), topic)
    raise SchemaError(
        f"The schema of {topic} is of the type {_OTHERS.get(schema.type, schema.type)}, which txnsegment does not decode.",
        advice="Read the topic with valueFormat=binary and decode the bytes yourself.",
    )


def codec_for(columns: pa.Schema, kind: Kind = "avro", name: str = "Row") -> Values:
    """Return the value format for a new topic with these columns. A producer registers its `schema`.

    The kinds `avro` and `json` give a record, as Pulsar's Java client derives it from a class with nullable fields. Each field is a
    union of null and its type, with the default null. Elements of arrays and maps are never null, because Java's schemas could not
    read null elements. The kind `bytes` gives no schema, for one binary column. The kind `primitive` gives the schema of the one
    column.

    `name`: the full name of the record. The broker's check of compatibility may refuse Java consumers with a class of another name.
    Raises a SchemaError that names the column.
    """
    match kind:
        case "avro" | "json":
            try:
                struct = from_arrow_schema(columns)
            except PySparkException as error:
                raise SchemaError(f"A column has a type that Spark does not have: {error}.", advice="Cast it.") from error
            made = derived(struct, name)
            record = with_fields(made, [_as_java(field) for field in made.fields])
            return AvroValues(record) if kind == "avro" else JsonValues(record)
        case "bytes":
            if len(columns) == 1 and pa.types.is_binary(columns.field(0).type):
                return BytesValues()
            raise SchemaError(
                f"Without a schema a topic takes one binary column, not {', '.join(map(str, columns))}.",
                advice="Give one binary column, or write with a schema (valueFormat=columns).",
            )
        case "primitive":
            for number in (1, 5, 6, 7, 8, 9, 10, 11, 17, 16, 19, 18):
                if len(columns) == 1 and PRIMITIVES[number].column == columns.field(0).type:
                    return PrimitiveValues(number)
            raise SchemaError(
                f"No primitive schema has the columns {', '.join(map(str, columns))}.",
                advice="Give one column of a simple type, or write records (AVRO, JSON).",
            )
    raise SchemaError(f"There is no schema of the kind {kind}.", advice="Give avro, json, bytes or primitive.")


def _as_java(field: Field) -> Field:
    return Field(field.name, _without_null_elements(field.type), field.default, field.extra)


def _without_null_elements(kind: Type) -> Type:
    """Return a derived type whose arrays and maps have no null elements. Schemas that Java derives have no null elements, and
    cannot read them.
    """
    match kind:
        case Optional():
            inner = plain(_without_null_elements(kind.type))
            return Optional(inner, kind.null_first)
        case Array():
            return Array(plain(_without_null_elements(kind.items)))
        case Map():
            return Map(plain(_without_null_elements(kind.values)))
        case Record():
            return with_fields(kind, [_as_java(field) for field in kind.fields])
    return kind


class SchemaVersions:
    """The value formats of a topic's schema versions. The broker is asked for each version once. `values`: the format that has the
    reader's columns. `binary`: whether the reader wants the bytes of all values, and no schema.
    """

    def __init__(self, client: PulsarClient, topic: str, values: Values, *, binary: bool = False) -> None:
        self._client, self._topic, self.values, self._binary = client, topic, values, binary
        self._known: dict[bytes, Values] = {b"": values}

    @staticmethod
    def latest(client: PulsarClient, topic: str) -> SchemaVersions:
        """Return the versions of a topic's schema. All of them are read into the columns of the latest version. Raises SchemaError,
        or the error that the broker reports.
        """
        return SchemaVersions(client, topic, codec(client.schema(topic), topic))

    def of(self, version: bytes) -> Values:
        """Return the format that reads values of a version into the reader's columns. `version`: `MessageMetadata.schema_version`
        (empty: the message names no version). Raises a SchemaError that names topic and version, or the error that the broker
        reports.
        """
        if self._binary:
            return self.values
        known = self._known.get(version)
        if known is None:
            name = f"The schema version {int.from_bytes(version, 'big')} of {self._topic}"
            known = self._known[version] = self.values.of_version(self._find(version, name), name)
        return known

    def _find(self, version: bytes, name: str) -> Any:
        found = self._client.schema(self._topic, version)
        if found is None:
            raise SchemaError(
                f"{name} does not exist any more, and rows of the topic were written with it.",
                advice="If the topic has no schema any more, register the one that these rows were written with (pulsar-admin "
                "schemas upload) before anything else is written. The option valueFormat=binary reads the bytes of the rows. "
                f"{KEEP_SCHEMAS}",
            )
        if isinstance(self.values, BytesValues) and found.type != 0:
            raise SchemaError(
                f"{name} has columns, and the topic had no schema when the read began.",
                advice="Start the read again. A stream then has the columns of the schema.",
            )
        return found
