"""Values of KEY_VALUE schemas: the columns `key` and `value`. A part whose schema is a record is a struct. Pure.

With the encoding INLINE the value of a message has both parts. Each part has its size in 4 bytes (-1: null), and then its bytes.
With SEPARATED the value of a message has the part `value` alone, and the key of the message is the part `key`, in base64.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ledgers.errors import SchemaError, ValueFormatError
from pulsar_protocol.messages import KeyValue, Schema
from pulsar_protocol.value_types import VALUE, Bytes, NameRow, Values, conformed, numbered, refuse_version

KEY_VALUE: Final = 15
KEY: Final = "key"
_BYTES: Final = "Read the topic with valueFormat=binary."
_SIZE: Final = struct.Struct(">i")
_TYPES: Final = {
    "NONE": 0, "BYTES": 0, "STRING": 1, "JSON": 2, "PROTOBUF": 3, "AVRO": 4, "BOOLEAN": 5, "INT8": 6, "INT16": 7, "INT32": 8,
    "INT64": 9, "FLOAT": 10, "DOUBLE": 11, "DATE": 12, "TIME": 13, "TIMESTAMP": 14, "KEY_VALUE": 15, "INSTANT": 16,
    "LOCAL_DATE": 17, "LOCAL_TIME": 18, "LOCAL_DATE_TIME": 19, "PROTOBUF_NATIVE": 20,
}  # fmt: skip
"""The type numbers by the names that Java writes into the properties."""
_NAMES: Final = {number: name for name, number in _TYPES.items() if name != "NONE"}

Make = Callable[[Any], Values]


class KeyValues(Values):
    """The value format of a KEY_VALUE schema. A row has a key and a value, and each of the two has its own schema. `separated`:
    whether the key of a row is the key of its message (otherwise it is in the message's value).
    """

    def __init__(self, key: Values, value: Values, *, separated: bool, schema: Any | None = None) -> None:
        self._key, self._value, self.takes_keys = key, value, separated
        self.schema = _schema(key, value, separated) if schema is None else schema
        self.columns = pa.schema([(KEY, _column(key)), (VALUE, _column(value))])

    @staticmethod
    def of(schema: Any, make: Make, topic: str) -> KeyValues:
        """Return the format of a KEY_VALUE schema. `make`: returns the format of a part. Raises SchemaError."""
        key, value = parts(schema, topic)
        separated = {one.key: one.value for one in schema.properties}.get("kv.encoding.type") == "SEPARATED"
        return KeyValues(make(key), make(value), separated=separated, schema=schema)

    def decode(self, values: Bytes, keys: Bytes | None = None, where: NameRow = numbered) -> pa.RecordBatch:
        if not self.takes_keys:
            pairs = [_split(value, row, where) for row, value in enumerate(values)]
            keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        found = [
            _packed(self._key, [None] * len(values) if keys is None else keys, lambda row: f"{where(row)}, in its key,"),
            _packed(self._value, values, where),
        ]
        return pa.RecordBatch.from_arrays(found, schema=self.columns)

    def encode(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None]:
        whole = conformed(batch, self.columns)
        values = _unpacked(self._value, whole.column(1), where)
        if self.takes_keys:
            return values
        return [_joined(key, value) for key, value in zip(self._keys(whole, where), values, strict=True)]

    def keys_of(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None] | None:
        return self._keys(conformed(batch, self.columns), where) if self.takes_keys else None

    def _keys(self, whole: pa.RecordBatch, where: NameRow) -> list[bytes | None]:
        return _unpacked(self._key, whole.column(0), lambda row: f"{where(row)}, in its key,")

    def of_version(self, written: Any | None, name: str) -> Values:
        if written is None or written.type != KEY_VALUE:
            raise refuse_version(name, "it is not of the type KEY_VALUE")
        key, value = parts(written, name)
        separated = {one.key: one.value for one in written.properties}.get("kv.encoding.type") == "SEPARATED"
        made = (self._key.of_version(key, f"The key of {name}"), self._value.of_version(value, f"The value of {name}"))
        if made == (self._key, self._value) and separated == self.takes_keys:
            return self
        return KeyValues(*made, separated=separated, schema=self.schema)


def parts(schema: Any, topic: str) -> tuple[Any, Any]:
    """Return the schemas of key and value. Raises SchemaError."""
    properties = {one.key: one.value for one in schema.properties}
    try:
        data, found = schema.schema_data, []
        for part in (KEY, VALUE):
            size = max(0, _SIZE.unpack_from(data)[0])
            if size > len(data) - 4:
                raise SchemaError(f"The KEY_VALUE schema of {topic} ends within the schema of its {part}.", advice=_BYTES)
            given = json.loads(properties.get(f"{part}.schema.properties") or "{}")
            found.append(
                Schema(
                    name=properties.get(f"{part}.schema.name", ""),
                    type=_TYPES[properties.get(f"{part}.schema.type", "BYTES")],
                    schema_data=data[4 : 4 + size],
                    properties=[KeyValue(key=str(key), value=str(value)) for key, value in given.items()],
                )
            )
            data = data[4 + size :]
    except (struct.error, ValueError, KeyError, AttributeError) as error:
        raise SchemaError(
            f"The KEY_VALUE schema of {topic} could not be parsed: {type(error).__name__}: {error}.",
            advice=_BYTES,
        ) from error
    return found[0], found[1]


def _schema(key: Values, value: Values, separated: bool) -> Any:
    data, properties = b"", {"kv.encoding.type": "SEPARATED" if separated else "INLINE"}
    for part, of in ((KEY, key), (VALUE, value)):
        own = Schema(name="Bytes", type=0, schema_data=b"") if of.schema is None else of.schema
        data += _SIZE.pack(len(own.schema_data)) + own.schema_data
        properties[f"{part}.schema.name"], properties[f"{part}.schema.type"] = own.name, _NAMES[own.type]
        properties[f"{part}.schema.properties"] = json.dumps({one.key: one.value for one in own.properties})
    return Schema(
        name="KeyValue",
        type=KEY_VALUE,
        schema_data=data,
        properties=[KeyValue(key=name, value=text) for name, text in properties.items()],
    )


def _alone(part: Values) -> bool:
    """Return whether the part is one column, not a record."""
    return part.columns.names == [VALUE] and not hasattr(part, "record")


def _column(part: Values) -> pa.DataType:
    return part.columns.field(0).type if _alone(part) else pa.struct(list(part.columns))


def _packed(part: Values, given: Bytes, where: NameRow) -> pa.Array:
    """Return the column of one part, decoded from its bytes in each row."""
    batch = part.decode(given, None, where)
    if _alone(part):
        return batch.column(0)
    mask = pa.array([one is None for one in given], pa.bool_())
    return pa.StructArray.from_arrays(batch.columns, fields=list(part.columns), mask=mask)


def _unpacked(part: Values, column: pa.Array, where: NameRow) -> list[bytes | None]:
    """Return the bytes of one part for each row, encoded from its column."""
    if _alone(part):
        return part.encode(pa.RecordBatch.from_arrays([column], [VALUE]), where)
    there = [row for row, valid in enumerate(column.is_valid().to_pylist()) if valid]
    rows = column.filter(column.is_valid())
    batch = pa.RecordBatch.from_arrays([rows.field(i) for i in range(rows.type.num_fields)], part.columns.names)
    found: list[bytes | None] = [None] * len(column)
    for row, value in zip(there, part.encode(batch, lambda row: where(there[row])), strict=True):
        found[row] = value
    return found


def _split(value: bytes | None, row: int, where: NameRow) -> Sequence[bytes | None]:
    if value is None:
        return None, None
    found: list[bytes | None] = []
    at = 0
    for part in (KEY, VALUE):
        size = _SIZE.unpack_from(value, at)[0] if len(value) - at >= 4 else -2
        if size < -1 or size > len(value) - at - 4:
            raise ValueFormatError(
                f"{where(row)} is no KEY_VALUE: its {len(value)} bytes end within the field {part}.",
                advice="It was not written with this schema. Read the topic with valueFormat=binary.",
            )
        found.append(None if size < 0 else value[at + 4 : at + 4 + size])
        at += 4 + max(0, size)
    if at != len(value):
        raise ValueFormatError(
            f"{where(row)} is no KEY_VALUE: {len(value) - at} bytes follow the field {VALUE}.",
            advice="It was not written with this schema. Read the topic with valueFormat=binary.",
        )
    return found


def _joined(key: bytes | None, value: bytes | None) -> bytes | None:
    """Return an inline value. A row of two nulls is a null value."""
    if key is None and value is None:
        return None
    sized = [_SIZE.pack(-1) if part is None else _SIZE.pack(len(part)) + part for part in (key, value)]
    return b"".join(sized)
