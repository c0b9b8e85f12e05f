"""Hostile Avro. The error for bytes that do not fit the schema names the row, and schemas have limits (issues 13, 19, 20)."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers.avro import strict
from ledgers.avro.parsing import parse
from ledgers.avro.rows import Codec
from ledgers.avro.schema import Record
from ledgers.errors import SchemaError, ValueFormatError
from ledgers.limits import MAX_FIELDS, MAX_FIXED_BYTES, MAX_LEVELS
from tests.support.avro_schemas import records


def of(kind: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of a record with one field, x."""
    return {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind, **more}]}


def decoded(kind: Any, data: bytes) -> list[Any]:
    found = Codec(parse(of(kind))).decode(pa.array([data]), lambda row: f"Row {row} of topic://a/b/c")
    return found.column("x").to_pylist()


ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}
WRONG = {
    "enum index -1": (ENUM, b"\x01"),
    "enum index 3": (ENUM, b"\x06"),
    "union index -1": (["null", "int"], b"\x01\x02"),
    "union index -2": (["null", "int"], b"\x03"),
    "union index 2": (["null", "int"], b"\x04\x02"),
    "long of 21 bytes": ("long", b"\x80" * 20 + b"\x00"),
    "long of 10 bytes and 65 bits": ("long", b"\xff" * 9 + b"\x02"),
    "int of 33 bits": ("int", b"\x80\x80\x80\x80\x20"),
    "boolean of byte 7": ("boolean", b"\x07"),
    "map with one key twice": ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\x00"),
    "map with one key in two blocks": ({"type": "map", "values": "int"}, b"\x02\x02a\x02\x02\x02a\x04\x00"),
    "string that is not UTF-8": ("string", b"\x02\xff"),
    "key that is not UTF-8": ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\x00"),
    "string of negative length": ("string", b"\x01"),
    "string longer than the value": ("string", b"\x0aab"),
    "bytes of 2**62": ("bytes", b"\xfe" + b"\xff" * 7 + b"\x7f"),
    "array that never ends": ({"type": "array", "items": "int"}, b"\x02\x02"),
    "array of 2**62 items": ({"type": "array", "items": "int"}, b"\xfe" + b"\xff" * 7 + b"\x7f\x02"),
    "has a block whose size is wrong": ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00"),
    "trailing bytes": ("int", b"\x02\x02"),
    "no bytes": ("int", b""),
    "decimal of 100 kB": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38},
        b"\x80\xb5\x18" + b"\x01" * 200_000,
    ),
    "decimal of 39 digits": ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22\x7f" + b"\xff" * 16),
}


@pytest.mark.parametrize(("kind", "data"), WRONG.values(), ids=WRONG)
def test_bytes_that_are_no_value_of_the_schema_are_refused_by_topic_and_row(kind: Any, data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(ValueFormatError, match=r"Row 0 of topic://a/b/c") as raised:
        decoded(kind, data)
    assert len(str(raised.value)) < 1000
    assert time.process_time() - begun < 2


def test_the_wrong_row_is_named_among_correct_rows() -> None:
    rows = pa.array([b"\x00", b"\x02", b"\x01", b"\x04"])
    with pytest.raises(ValueFormatError, match=r"Row 2 .*symbol -1 of 3"):
        Codec(parse(of(ENUM))).decode(rows, lambda row: f"Row {row}")


RIGHT = {
    "array in blocks with sizes": ({"type": "array", "items": "int"}, b"\x01\x02\x02\x02\x04\x00", [[1, 2]]),
    "number with zeros in front": ("long", b"\x82\x80\x00", [1]),
    "NaN with a payload": ("double", b"\x01\x00\x00\x00\x00\x00\xf4\x7f", None),
    "decimal with signs in front": (
        {"type": "bytes", "logicalType": "decimal", "precision": 5},
        b"\x14" + b"\xff" * 9 + b"\xfe",
        None,
    ),
    "map in two blocks": ({"type": "map", "values": "int"}, b"\x02\x02a\x02\x02\x02b\x04\x00", [[("a", 1), ("b", 2)]]),
}


@pytest.mark.parametrize(("kind", "data", "value"), RIGHT.values(), ids=RIGHT)
def test_avro_that_is_written_in_another_way_is_read(kind: Any, data: bytes, value: Any) -> None:
    found = decoded(kind, data)
    assert value is None or found == value


@given(records(), st.data())
@settings(max_examples=40)
def test_damaged_values_are_read_or_refused(schema: dict[str, Any], data: st.DataObject) -> None:
    codec = Codec(parse(schema))
    junk = data.draw(st.binary(max_size=30))
    with contextlib.suppress(ValueFormatError):
        codec.decode(pa.array([junk]), lambda row: f"Row {row}")
        strict.check(codec.record, junk)  # if the codec can decode the value, all of its bytes are valid Avro


# --- schemas ----------------------------------------------------------------------------------------------------------


def twins(levels: int) -> dict[str, Any]:
    kind: Any = "int"
    for level in range(levels):
        inner = kind if level == 0 else f"t{level - 1}"
        kind = {"type": "record", "name": f"t{level}", "fields": [{"name": "a", "type": kind}, {"name": "b", "type": inner}]}
    return kind


def nested(levels: int, wrap: Callable[[Any, int], Any]) -> dict[str, Any]:
    kind: Any = "int"
    for level in range(levels):
        kind = wrap(kind, level)
    return of(kind)


def as_record(kind: Any, level: int) -> Any:
    return {"type": "record", "name": f"n{level}", "fields": [{"name": "x", "type": kind}]}


def as_array(kind: Any, level: int) -> Any:
    return {"type": "array", "items": kind}


def as_wrapped(kind: Any, level: int) -> Any:
    return {"type": kind if isinstance(kind, dict) else {"type": kind}}


BOMBS: dict[str, Any] = {
    **{f"fixed of {size!r} bytes": of({"type": "fixed", "name": "f", "size": size}) for size in (0, -1, 1.5, True, "9", None)},
    "fixed too large": of({"type": "fixed", "name": "f", "size": MAX_FIXED_BYTES + 1}),
    "fixed without a size": of({"type": "fixed", "name": "f"}),
    "array of fixed(0)": of({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}),
    "array of null": of({"type": "array", "items": "null"}),
    "array of a record without fields": of({"type": "array", "items": {"type": "record", "name": "n", "fields": []}}),
    "18 levels of twins": twins(18),
    "39 levels of twins": twins(39),
    "records too deep": nested(MAX_LEVELS, as_record),
    "arrays too deep": nested(MAX_LEVELS, as_array),
    "arrays 5000 deep": nested(900, as_array),
    "types in types": nested(300, as_wrapped),
    "too many fields": {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"c{n}", "type": "int"} for n in range(MAX_FIELDS)],
    },
    "a reference chain too deep": {
        "type": "record",
        "name": "r",
        "fields": [
            {
                "name": f"c{n}",
                "type": {"type": "record", "name": f"c{n}", "fields": [{"name": "x", "type": f"c{n - 1}" if n else "int"}]},
            }
            for n in range(MAX_LEVELS + 5)
        ],
    },
    **{
        f"a field named {name!r:.20}": {"type": "record", "name": "r", "fields": [{"name": name, "type": "int"}]}
        for name in (None, "", 7, [], {}, "a\x1b[2J", "a\u202eb", "\x00", "x" * 5000)
    },
    **{
        f"a record named {name!r:.20}": {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]}
        for name in (None, "", 7, [], {}, "a\x1b")
    },
    "a namespace that is a number": {"type": "record", "name": "r", "namespace": 7, "fields": [{"name": "x", "type": "int"}]},
    "aliases that are a number": {"type": "record", "name": "r", "aliases": 7, "fields": [{"name": "x", "type": "int"}]},
    "fields that are a number": {"type": "record", "name": "r", "fields": 7},
    "a field that is a number": {"type": "record", "name": "r", "fields": [7]},
    "a field twice": {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}] * 2},
    "symbols that are a number": of({"type": "enum", "name": "e", "symbols": 7}),
    "no symbols": of({"type": "enum", "name": "e", "symbols": []}),
    "a symbol that is null": of({"type": "enum", "name": "e", "symbols": [None]}),
    "a type that is a number": of(7),
    "a type that is null": of(None),
    "a precision that is huge": of({"type": "bytes", "logicalType": "decimal", "precision": 10**18}),
    "a precision that is true": of({"type": "bytes", "logicalType": "decimal", "precision": True}),
    "a default of too many digits": of("double", default=10**400),
    "a union within a union": of(["null", {"type": ["null", "int"]}]),
    "an empty union": of([]),
}


@pytest.mark.parametrize("schema", BOMBS.values(), ids=BOMBS)
def test_a_hostile_schema_is_refused_at_once(schema: Any) -> None:
    begun = time.process_time()
    for given_as in (schema, json.dumps(schema)):
        with pytest.raises(SchemaError) as raised:
            parse(given_as)
        assert len(str(raised.value)) < 2000
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("text", ["[" * 10**6, "1e9999999", '"int"', "[]", "null", "{}", '{"type":"record"}', '{"type":[]}'])
def test_hostile_text_that_is_no_avro_schema_is_refused_at_once(text: str) -> None:
    with pytest.raises(SchemaError):
        parse(text)


def test_schemas_up_to_the_bounds_are_read() -> None:
    assert isinstance(parse(nested(MAX_LEVELS - 1, as_record)), Record)
    assert isinstance(parse(nested(MAX_LEVELS - 1, as_array)), Record)
    assert isinstance(parse(twins(12)), Record)
    assert parse(of({"type": "fixed", "name": "f", "size": MAX_FIXED_BYTES}))


WORDS = st.sampled_from(
    ["type", "name", "fields", "items", "values", "symbols", "size", "record", "enum", "fixed", "array", "map", "int", "null", "r"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)


@given(records(), st.data())
@settings(max_examples=60)
def test_a_schema_with_any_value_replaced_is_read_or_refused(schema: dict[str, Any], data: st.DataObject) -> None:
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in pairs:
            places.append((value, key))
            walk(inner)

    walk(schema)
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(JSON)
    with contextlib.suppress(SchemaError):
        Codec(parse(json.dumps(schema)))


def test_values_written_by_fastavro_are_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = of({"type": "map", "values": ["null", "double"]})
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"x": {"a": 1.5, "b": None}})
    monkeypatch.setattr(strict, "check", None)
    codec = Codec(parse(schema))
    assert codec.decode(pa.array([stream.getvalue()] * 3), str).num_rows == 3
