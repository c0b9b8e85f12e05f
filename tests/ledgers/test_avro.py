"""Avro schemas become columns and back, Avro bytes become rows and back, and schemas are checked for compatibility."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.read import SchemaResolutionError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from ledgers.arrow import arrow_schema, conform
from ledgers.avro.columns import columns_of, derived, grown
from ledgers.avro.compatibility import check, problems
from ledgers.avro.modes import Compatibility
from ledgers.avro.parsing import parse
from ledgers.avro.rows import Codec
from ledgers.avro.schema import dump
from ledgers.errors import SchemaError, ValueFormatError
from ledgers.schema import evolve
from tests.ledgers.test_schema import struct
from tests.support.avro_schemas import changed, records, values, witnesses

COLUMN = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def row_named(row: int) -> str:
    return f"row {row}"


def of(kind: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of a record with one field, x."""
    return {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind, **more}]}


def written(schema: Mapping[str, Any], rows: list[Any]) -> list[bytes]:
    """Return the bytes that fastavro writes for the rows."""
    parsed, found = fastavro.parse_schema(dict(schema)), []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        found.append(stream.getvalue())
    return found


# --- schemas ------------------------------------------------------------------------------------------------------


@given(records())
def test_a_schema_parsed_and_written_is_the_same(schema: dict[str, Any]) -> None:
    assert dump(parse(schema)) == schema
    assert parse(json.dumps(schema)) == parse(schema)


def test_docs_and_aliases_are_kept_and_type_names_are_resolved() -> None:
    text = """{"type": "record", "name": "Order", "namespace": "shop", "doc": "an order", "aliases": ["Purchase"], "fields": [
        {"name": "to", "doc": "where", "type": {"type": "record", "name": "Place", "fields": [{"name": "zip", "type": "string"}]}},
        {"name": "bill", "type": ["null", "Place"], "default": null},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}, "default": "B"},
        {"name": "odd", "type": {"type": "string", "logicalType": "unheard-of", "by": "somebody"}}]}"""
    found = dump(parse(text))
    assert (found["name"], found["doc"], found["aliases"]) == ("shop.Order", "an order", ["Purchase"])
    assert found["fields"][0]["doc"] == "where"
    assert found["fields"][1]["type"] == ["null", "shop.Place"]
    assert found["fields"][3]["type"] == {"type": "string", "logicalType": "unheard-of", "by": "somebody"}
    assert columns_of(parse(text)) == struct("struct<to:struct<zip:string>,bill:struct<zip:string>,kind:string,odd:string>")
    assert dump(parse(found)) == found


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["null", "int", "string"], ["column x", "union of 3"]),
        (["int"], ["column x", "union of 1"]),
        (["int", "string"], ["column x", "union"]),
        ("null", ["column x", "type null"]),
        ({"type": "array", "items": ["int", "string"]}, ["column x.element", "union"]),
        ({"type": "map", "values": "null"}, ["column x.value", "null"]),
        ({"type": "record", "name": "s", "fields": []}, ["column x", "without fields"]),
        ({"type": "record", "name": "s", "fields": [{"name": "y", "type": ["null", "s"]}]}, ["column x.y", "within itself"]),
        ({"type": "int", "logicalType": "time-millis"}, ["column x", "time-millis", "int"]),
        ({"type": "fixed", "name": "f", "size": 12, "logicalType": "duration"}, ["column x", "duration"]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, ["column x", "39 digits", "38"]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4}, ["scale"]),
        ("nonsense", ["not an Avro schema", "nonsense"]),
    ],
)
def test_a_type_without_a_column_type_is_refused_by_name(kind: Any, words: list[str]) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(of(kind))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ('"int"', "not a record"),
        ('{"type": "array", "items": "int"}', "not a record"),
        ('{"type": "record", "name": "r", "fields": []}', "without fields"),
        ('{"type": "record", "name": "r"}', "without fields"),
        ('{"type": "record", "name": "r", "fields": [{"name": "x", "type": "int", "aliases": ["y"]}]}', "x has aliases"),
        ('{"type": "record", "name": "r", "fields": [{"name": "x", "type": "int", "default": "7"}]}', "(?i)default"),
        ('{"type": "record", "name": "r", "fields": [{"name": "x", "type": "int", "default": 2147483648}]}', "(?i)default"),
        ('{"type": "record", "name": "r", "fields": [{"name": "x", "type": "bytes", "default": "\\u0100"}]}', "(?i)default"),
    ],
)
def test_text_that_is_no_avro_schema_is_refused(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse(text)


_WIDE = (
    "struct<b:boolean,i:int,l:bigint,f:float,d:double,s:string,n:binary,dec:decimal(38,9),day:date,t:timestamp,u:timestamp_ntz,"
    "arr:array<struct<k:int,l:array<string>>>,m:map<string,struct<z:date>>>"
)


def test_columns_as_avro_and_back_are_the_same() -> None:
    made = derived(struct(_WIDE), "public.default.my-topic")
    assert columns_of(made) == struct(_WIDE)
    text = dump(made)
    assert text["name"] == "public.default.my_topic"
    assert all(f["type"][0] == "null" and f["default"] is None for f in text["fields"])
    assert columns_of(parse(text)) == struct(_WIDE)
    assert columns_of(derived(struct("struct<x:tinyint,y:smallint>"), "t")) == struct("struct<x:int,y:int>")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (T.StructType().add("a b", T.LongType()), ["column a b", "name"]),
        (T.StructType().add("s", T.StructType().add("1x", T.LongType())), ["column s.1x"]),
        (T.StructType().add("m", T.MapType(T.LongType(), T.LongType())), ["column m", "map<bigint,bigint>"]),
        (T.StructType().add("arr", T.ArrayType(T.VariantType())), ["column arr.element", "variant"]),
        (T.StructType().add("i", T.DayTimeIntervalType()), ["column i", "interval"]),
    ],
)
def test_columns_that_avro_does_not_have_are_refused_by_name(columns: T.StructType, words: list[str]) -> None:
    with pytest.raises(SchemaError) as caught:
        derived(columns, "t")
    for word in words:
        assert word in str(caught.value)


def test_a_registered_schema_grows_with_the_columns() -> None:
    schema = of({"type": "record", "name": "s", "fields": [{"name": "k", "type": "int"}]}, doc="kept") | {"doc": "kept too"}
    schema["fields"].append({"name": "y", "type": ["float", "null"]})
    old = columns_of(parse(schema))
    new = evolve(old, struct("struct<x:struct<k:bigint,more:string>,y:double,z:array<int>>"))
    found = dump(grown(parse(schema), old, new))
    assert found["doc"] == "kept too"
    x, y, z = found["fields"]
    assert x["doc"] == "kept"
    assert x["type"]["fields"] == [
        {"name": "k", "type": "long"},
        {"name": "more", "type": ["null", "string"], "default": None},
    ]
    assert y["type"] == ["double", "null"]
    assert z == {"name": "z", "type": ["null", {"type": "array", "items": ["null", "int"]}], "default": None}
    with pytest.raises(SchemaError, match=r"column z.*variant"):
        grown(parse(schema), old, evolve(old, T.StructType().add("z", T.VariantType())))
    wide = columns_of(parse(schema)).add("gone", T.LongType())  # the schema leaves this column out, but the topic still has it
    assert dump(grown(parse(schema), wide, evolve(wide, struct("struct<n:int>"))))["fields"][2]["name"] == "n"


# --- rows ---------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.data())
def test_avro_to_rows_to_avro_is_the_identity(data: st.DataObject) -> None:
    schema = data.draw(records())
    given = written(schema, data.draw(st.lists(values(schema), min_size=1, max_size=5)))
    codec = Codec(parse(schema))
    # an array that Spark passes may be a slice of a longer array
    padded = pa.array([b"before", *given, b"after"], pa.binary()).slice(1, len(given))
    rows = codec.decode(padded, row_named)
    assert rows.schema == codec.arrow == arrow_schema(columns_of(codec.record))
    assert codec.encode(rows, row_named).to_pylist() == given
    if len(given) > 2:
        assert codec.encode(rows.slice(1, 1), row_named).to_pylist() == given[1:2]


@settings(max_examples=60)
@given(st.data())
def test_bytes_of_another_schema_are_refused_or_read_whole(data: st.DataObject) -> None:
    schema = data.draw(records(depth=1))
    codec = Codec(parse(schema))
    (good,) = written(schema, [data.draw(values(schema))])
    spoiled = data.draw(st.one_of(st.binary(max_size=12), st.just(good + b"\0"), st.just(good[:-1])))
    try:
        rows = codec.decode(pa.array([good, spoiled, good], pa.binary()), row_named)
    except ValueFormatError:
        with pytest.raises(ValueFormatError, match="row 1"):
            codec.decode(pa.array([good, spoiled, good], pa.binary()), row_named)
        return
    first, second, third = codec.encode(rows, row_named).to_pylist()
    assert (first, third) == (good, good)
    again = codec.decode(pa.array([second], pa.binary()), row_named)
    assert codec.encode(again, row_named).to_pylist() == [second]
    # values with a NaN are not compared, because a NaN is not equal to itself
    if rows == codec.decode(pa.array([good, spoiled, good], pa.binary()), row_named):
        assert again == rows.slice(1, 1)


def test_a_nan_stays_a_nan() -> None:
    codec, nan = Codec(parse(of("float"))), bytes.fromhex("0000c07f")
    assert codec.encode(codec.decode(pa.array([nan]), row_named), row_named).to_pylist() == [nan]


def test_a_decimal_with_leading_bytes_is_the_same_number() -> None:
    codec = Codec(parse(of({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2})))
    rows = codec.decode(pa.array([b"\x02\x80", b"\x04\xff\x80"]), row_named)
    assert rows.column("x").to_pylist() == [Decimal("-1.28")] * 2
    assert codec.encode(rows, row_named).to_pylist() == [b"\x02\x80"] * 2


def test_values_are_the_columns_values() -> None:
    kinds = {
        "dec": {"type": "fixed", "name": "f", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "kind": {"type": "enum", "name": "e", "symbols": ["A", "B"]},
        "m": {"type": "map", "values": ["null", {"type": "array", "items": {"type": "int", "logicalType": "date"}}]},
    }
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    codec = Codec(parse(schema))
    bare = [{"dec": Decimal("-12.50"), "at": 1_000, "kind": "B", "m": {"k": [19_000], "n": None}}]
    (row,) = codec.decode(pa.array(written(schema, bare)), row_named).to_pylist()
    assert row["dec"] == Decimal("-12.50")
    assert row["at"].isoformat() == "1970-01-01T00:00:01+00:00"
    assert row["kind"] == "B"
    assert [(k, v and v[0].isoformat()) for k, v in row["m"]] == [("k", "2022-01-08"), ("n", None)]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("int", None, ["row 1", "column x is null"]),
        ({"type": "array", "items": "boolean"}, [None], ["row 1", "column x.element is null"]),
        ({"type": "map", "values": "string"}, [("k", None)], ["row 1", "column x.value is null"]),
        (
            {"type": "array", "items": {"type": "map", "values": "int"}},
            [[("k", 1), ("k", 2)]],
            ["row 1", "x.element has a duplicate key"],
        ),
        ({"type": "record", "name": "s", "fields": [{"name": "y", "type": "int"}]}, {"y": None}, ["row 1", "column x.y is null"]),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "B", ["row 1", "column x is 'B'", "symbols of e"]),
        ({"type": "fixed", "name": "f", "size": 2}, b"123", ["row 1", "column x has 3 bytes", "2"]),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused(kind: Any, value: Any, words: list[str]) -> None:
    codec = Codec(parse(of(kind)))
    good = codec.decode(pa.array(written(of(kind), witnesses(of(kind))[:1])), row_named)
    bad = pa.RecordBatch.from_arrays([pa.array([value], good.schema.field("x").type)], schema=good.schema)
    with pytest.raises(ValueFormatError) as caught:
        codec.encode(pa.concat_batches([good, bad, good]), row_named)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("int", b"", ["row 1", "0 bytes"]),
        ("int", b"\x02\x02", ["row 1", "-1 bytes", "0202"]),
        ("string", b"\x02\xff", ["row 1", "Unicode"]),
        (["null", "int"], b"\x04", ["row 1", "IndexError"]),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", ["row 1", "IndexError"]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x04\x03\xe7", ["row 1", "column x has 3 digits"]),
        (MILLIS, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", ["row 1", "bounds"]),
        ("int", None, ["row 1", "null"]),
    ],
)
def test_bad_bytes_name_their_row(kind: Any, data: bytes | None, words: list[str]) -> None:
    codec = Codec(parse(of(kind)))
    value: Any = Decimal(1) if isinstance(kind, dict) and kind.get("logicalType") == "decimal" else 1
    value = {"string": "x"}.get(kind, value) if isinstance(kind, str) else "A" if "symbols" in kind else value
    (good,) = written(of(kind), [{"x": value}])
    with pytest.raises(ValueFormatError) as caught:
        codec.decode(pa.array([good, data, good], pa.binary()), row_named)
    for word in words:
        assert word in str(caught.value)


def test_fields_that_a_part_lacks_are_their_defaults_and_nulls_stay() -> None:
    inner = {"type": "record", "name": "s", "fields": [{"name": "k", "type": "int"}, {"name": "new", "type": "int", "default": 7}]}
    schema = of({"type": "array", "items": ["null", inner]})
    schema["fields"] += [
        {"name": "at", "type": {"type": "int", "logicalType": "date"}, "default": 1},
        {"name": "m", "type": {"type": "map", "values": "long"}, "default": {"k": 5}},
        {"name": "dec", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "default": "\u0064"},
        {"name": "opt", "type": ["int", "null"], "default": 9},
        {"name": "none", "type": ["null", "int"], "default": None},
    ]
    codec = Codec(parse(schema))
    old = pa.RecordBatch.from_pylist(
        [{"x": [{"k": 1}, None]}, {"x": []}, {"x": [{"k": 2}]}], pa.schema([("x", pa.list_(pa.struct([("k", pa.int32())])))])
    )
    rows = conform(codec.filled(old), codec.arrow).to_pylist()
    assert [row["x"] for row in rows] == [[{"k": 1, "new": 7}, None], [], [{"k": 2, "new": 7}]]
    assert {(str(r["at"]), str(r["m"]), str(r["dec"]), r["opt"], r["none"]) for r in rows} == {
        ("1970-01-02", "[('k', 5)]", "1.00", 9, None)
    }
    codec.encode(conform(codec.filled(old), codec.arrow), row_named)
    there = pa.RecordBatch.from_pylist([{"opt": None}], pa.schema([("opt", pa.int32())]))
    assert codec.filled(there).column("opt").to_pylist() == [None]


def test_rows_unreadable_as_avro_are_refused_at_the_write() -> None:
    schema = of({"type": "record", "name": "s", "fields": [{"name": "k", "type": "int"}]})
    schema["fields"] += [{"name": "y", "type": "int", "default": 1}, {"name": "z", "type": ["null", "int"]}]
    codec = Codec(parse(schema))
    kind = pa.struct([("k", pa.int32())])
    codec.refuse_nulls(pa.RecordBatch.from_pylist([{"x": {"k": 1}, "more": 1}]), "t")
    codec.refuse_nulls(pa.RecordBatch.from_pylist([{"x": {"k": 1}, "y": 1, "z": None}]), "t")
    for rows, words in (
        (pa.RecordBatch.from_pylist([{"y": 1}]), "column x is missing"),
        (pa.RecordBatch.from_pylist([{"x": None}], pa.schema([("x", kind)])), "column x is null"),
        (pa.RecordBatch.from_pylist([{"x": {"k": None}}], pa.schema([("x", kind)])), "column x.k is null"),
        (pa.RecordBatch.from_pylist([{"x": {"j": 1}}]), "column x.k is missing"),
        (pa.RecordBatch.from_pylist([{"x": {"k": 1}, "y": None}], pa.schema([("x", kind), ("y", pa.int32())])), "column y is null"),
    ):
        with pytest.raises(SchemaError, match=f"write to t the {words}"):
            codec.refuse_nulls(rows, "t")


# --- which schemas fit each other ---------------------------------------------------------------------------------


@settings(max_examples=400)
@given(st.data())
def test_compatibility_agrees_with_avro_schema_resolution(data: st.DataObject) -> None:
    """`problems` finds none if and only if fastavro can read values of the old schema with the new schema."""
    old = data.draw(records(logical=False))
    new = data.draw(changed(old))
    fits = not problems(parse(new), parse(old))
    resolved = True
    for value in written(old, witnesses(old)):
        try:
            fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(old), fastavro.parse_schema(new))
        except SchemaResolutionError:
            resolved = False
    assert fits == resolved


@settings(max_examples=100)
@given(records())
def test_every_schema_fits_itself(schema: dict[str, Any]) -> None:
    assert problems(parse(schema), parse(schema)) == []
    for mode in Compatibility:
        check(mode, parse(schema), [(0, parse(schema))])


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (_decimal(5, 2), _decimal(7, 2), None),
        (_decimal(7, 2), _decimal(5, 2), "column x is decimal(7,2), not decimal(5,2)"),
        (_decimal(7, 2), _decimal(8, 3), "column x is decimal(7,2), not decimal(8,3)"),
        (_decimal(7, 2), "bytes", "column x is decimal(7,2), not bytes"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "timestamp-millis",
        ),
        ("int", {"type": "int", "logicalType": "date"}, "column x is int, not date"),
        ("string", {"type": "string", "logicalType": "uuid"}, "column x is string, not uuid"),
    ],
)
def test_logical_types_must_agree(old: Any, new: Any, says: str | None) -> None:
    found = problems(parse(of(new)), parse(of(old)))
    assert not found if says is None else says in found[0]


_TWO = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}]}
_REQUIRED = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}


@pytest.mark.parametrize(
    ("mode", "new", "earlier", "says"),
    [
        ("none", _REQUIRED, [COLUMN], None),
        ("backward", _TWO, [COLUMN], None),
        ("backward", _REQUIRED, [COLUMN], "cannot read what version 0 wrote: the column y is not there and has no default"),
        ("backward", _REQUIRED, [_REQUIRED, COLUMN], None),
        ("backward_transitive", _REQUIRED, [_REQUIRED, COLUMN], "version 0"),
        ("backward", of("long"), [COLUMN], None),
        ("forward", of("long"), [COLUMN], "version 0 cannot read what it writes: the column x is long, not int"),
        ("forward", _REQUIRED, [COLUMN], None),
        ("forward", COLUMN, [_REQUIRED], "version 0 cannot read what it writes: the column y is not there"),
        ("forward_transitive", COLUMN, [COLUMN, _REQUIRED], "version 0"),
        ("full", _TWO, [COLUMN], None),
        ("full", of("long"), [COLUMN], "cannot read"),
        ("full", COLUMN, [_TWO], None),
        ("full_transitive", COLUMN, [_TWO, COLUMN], None),
        ("full_transitive", _TWO, [_TWO, COLUMN, of("long")], "version 0"),
    ],
)
def test_each_compatibility_mode_accepts_and_refuses_as_documented(
    mode: str, new: Any, earlier: list[Any], says: str | None
) -> None:
    versions = [(number, parse(schema)) for number, schema in reversed(list(enumerate(reversed(earlier))))]
    if says is None:
        check(Compatibility(mode), parse(new), versions)
        return
    with pytest.raises(SchemaError, match=mode) as caught:
        check(Compatibility(mode), parse(new), versions)
    assert says in str(caught.value)
