"""Tests of the conversion of values of Pulsar's schemas to Arrow and back: values with the bytes that Pulsar's Java client 5.0.0-M1
writes, random values, and values that do not fit.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers.avro.compatibility import problems
from ledgers.avro.parsing import parse
from ledgers.errors import SchemaError, ValueFormatError
from pulsar_protocol.key_values import KeyValues
from pulsar_protocol.messages import KeyValue, Schema
from pulsar_protocol.primitive_values import PRIMITIVES, PrimitiveValues
from pulsar_protocol.record_values import AvroValues, JsonValues
from pulsar_protocol.value_types import BytesValues, Values
from pulsar_protocol.values import codec, codec_for
from tests.support.avro_schemas import changed, records, values

UTC = datetime.UTC
JAVA: list[tuple[int, str, Any]] = [
    (1, "c3a9", "é"),
    (5, "01", True),
    (5, "00", False),
    (6, "fe", -2),
    (7, "fffe", -2),
    (8, "fffffffe", -2),
    (8, "00000102", 258),
    (9, "fffffffffffffffe", -2),
    (10, "3fc00000", 1.5),
    (11, "3ff8000000000000", 1.5),
    (12, "ffffffffffffffff", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    (12, "0000018bcfe5687b", datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
    (13, "00000000000003e8", datetime.time(0, 0, 1)),
    (14, "0000018bcfe5687b", datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
    (17, "ffffffffffffffff", datetime.date(1969, 12, 31)),
    (17, "0000000000004d46", datetime.date(2024, 2, 29)),
]
"""Each line has the type number of a schema, the bytes that Java encodes (`Schema.STRING.encode("é")` and so on), and the value.
This project reads the value from the bytes, and writes the same bytes.
"""
CUT: list[tuple[int, str, Any]] = [
    (13, "fffffffffffffffb", datetime.time(23, 59, 59, 995_000)),
    (16, "000000006553f100075bcd15", datetime.datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)),
    (16, "ffffffffffffffff3b9ac9ff", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    (18, "00004e945d100315", datetime.time(23, 59, 59, 123_456)),
    (19, "0000000000004d4600004e945d100315", datetime.datetime(2024, 2, 29, 23, 59, 59, 123_456)),
    (19, "ffffffffffffffff00004e9455b43605", datetime.datetime(1969, 12, 31, 23, 59, 59)),
]
"""Java's bytes of values with nanoseconds or outside of a day. The third item is the value, cut to microseconds."""


def plain(kind: int) -> Values:
    return codec(Schema(type=kind))


@pytest.mark.parametrize(("kind", "data", "value"), JAVA)
def test_java_s_bytes_are_read_and_written(kind: int, data: str, value: Any) -> None:
    found = plain(kind).decode([bytes.fromhex(data)])
    assert found.column("value").to_pylist() == [value]
    assert plain(kind).encode(found) == [bytes.fromhex(data)]


@pytest.mark.parametrize(("kind", "data", "value"), CUT)
def test_java_s_nanoseconds_are_cut(kind: int, data: str, value: Any) -> None:
    column = plain(kind).decode([bytes.fromhex(data)]).column("value")
    if pa.types.is_time64(column.type):
        column = column.cast(pa.time64("us"), safe=False)
    assert column.to_pylist() == [value]


GOOD: dict[int, Any] = {5: True}
_TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=5),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.timestamp("us", "UTC"): st.integers(-(2**60), 2**60),
    pa.timestamp("us"): st.integers(-(2**60), 2**60),
    pa.time64("ns"): st.integers(0, 86_399_999).map(lambda n: n * 1_000_000),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
}


@given(st.data(), st.sampled_from(sorted(PRIMITIVES)))
def test_every_column_of_a_primitive_schema_comes_back(data: st.DataObject, kind: int) -> None:
    column = PRIMITIVES[kind].column
    step = 1000 if kind in (12, 14) else 1
    numbers = data.draw(st.lists(st.none() | _TYPES[column], max_size=5))
    if pa.types.is_timestamp(column):
        numbers = [None if n is None else n // step * step for n in numbers]
    batch = pa.RecordBatch.from_arrays([pa.array(numbers, column)], ["value"])
    made = plain(kind).encode(batch)
    assert [one is None for one in made] == [n is None for n in numbers]
    assert plain(kind).decode(made).equals(batch)


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        (1, "ff", "no text in UTF-8"),
        (5, "", "0 bytes, not 1"),
        (8, "000102", "3 bytes, not 4"),
        (12, "7fffffffffffffff", "outside the range"),
        (16, "000000006553f100ffffffff", "outside the range"),
        (16, "7fffffffffffffff00000000", "outside the range"),
        (17, "0000000100000000", "outside the range"),
        (18, "ffffffffffffffff", "outside the range"),
        (18, "00004e94914f0000", "outside the range"),
        (19, "0000000000004d46ffffffffffffffff", "outside the range"),
    ],
)
def test_bytes_that_do_not_fit_a_primitive_name_the_message(kind: int, data: str, problem: str) -> None:
    good = plain(kind).encode(
        pa.RecordBatch.from_arrays([pa.array(["a" if kind == 1 else GOOD.get(kind, 1)], PRIMITIVES[kind].column)], ["value"])
    )
    with pytest.raises(ValueFormatError, match=problem) as caught:
        plain(kind).decode([good[0], None, bytes.fromhex(data)], None, lambda row: f"The message 4:7:{row} of topic://a/b/c")
    assert "The message 4:7:2 of topic://a/b/c" in caught.value.message
    assert "value" in caught.value.message


def test_without_a_schema_values_stay_bytes() -> None:
    assert codec(None).decode([b"\x00", None, b""]).column("value").to_pylist() == [b"\x00", None, b""]
    assert codec(None).schema is None
    assert codec(Schema(type=0)).encode(codec(None).decode([b"\x00", None])) == [b"\x00", None]


# --- records ----------------------------------------------------------------------------------------------------------------

JAVA_RECORD = json.loads(
    """{"type":"record","name":"Row","namespace":"Truth","fields":[
    {"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}],"default":null},
    {"name":"big","type":["null","long"],"default":null},
    {"name":"color","type":["null",{"type":"enum","name":"Color","symbols":["RED","BLUE"]}],"default":null},
    {"name":"d","type":"double"},{"name":"day","type":["null",{"type":"int","logicalType":"date"}],"default":null},
    {"name":"f","type":"float"},{"name":"flag","type":"boolean"},{"name":"id","type":"int"},
    {"name":"inner","type":["null",{"type":"record","name":"Inner","fields":[{"name":"a","type":"int"},
        {"name":"b","type":["null","string"],"default":null}]}],"default":null},
    {"name":"m","type":["null",{"type":"map","values":"int"}],"default":null},
    {"name":"name","type":["null","string"],"default":null},
    {"name":"raw","type":["null",{"type":"bytes","java-class":"[B"}],"default":null},
    {"name":"tags","type":["null",{"type":"array","items":"string","java-class":"java.util.List"}],"default":null}]}"""
)
"""The schema that Java derives from a class with these fields."""
JAVA_AVRO = bytes.fromhex(
    "028089818283898506000202000000000000f83f028cb50200002040010e02020202620202026b020002026e020601c80002040278027900"
)
JAVA_JSON = (
    b'{"id":7,"name":"n","d":1.5,"flag":true,"raw":"AcgA","tags":["x","y"],"m":{"k":1},"inner":{"a":1,"b":"b"},'
    b'"color":"BLUE","f":2.5,"at":1700000000.123456789,"day":[2024,2,29]}'
)
"""JAVA_AVRO and JAVA_JSON are one object of that class, as Java's AVRO and JSON schemas encode it."""
ROW = {
    "at": datetime.datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC),
    "big": None,
    "color": "BLUE",
    "d": 1.5,
    "day": datetime.date(2024, 2, 29),
    "f": 2.5,
    "flag": True,
    "id": 7,
    "inner": {"a": 1, "b": "b"},
    "m": [("k", 1)],
    "name": "n",
    "raw": b"\x01\xc8\x00",
    "tags": ["x", "y"],
}


def schema(kind: int, record: dict[str, Any]) -> Any:
    return Schema(name="", type=kind, schema_data=json.dumps(record).encode())


@pytest.mark.parametrize(("kind", "data"), [(4, JAVA_AVRO), (2, JAVA_JSON)])
def test_java_s_object_is_a_row(kind: int, data: bytes) -> None:
    of = codec(schema(kind, JAVA_RECORD))
    rows = of.decode([None, data])
    assert rows.to_pylist() == [dict.fromkeys(ROW), ROW]
    assert of.decode(of.encode(rows.slice(1))).to_pylist() == [ROW]


def test_avro_is_written_as_java_writes_it() -> None:
    of = codec(schema(4, JAVA_RECORD))
    assert of.encode(of.decode([JAVA_AVRO])) == [JAVA_AVRO]


def test_json_is_written_as_java_writes_it() -> None:
    of = codec(schema(2, JAVA_RECORD))
    (made,) = of.encode(of.decode([JAVA_JSON]))
    assert made is not None
    cut = JAVA_JSON.replace(b"123456789", b"123456000")
    assert json.loads(made, parse_float=str) == json.loads(cut, parse_float=str)
    assert b"big" not in made  # Java leaves out fields that are null


def test_json_from_other_writers_is_read() -> None:
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "x", "type": "double"},
        {"name": "n", "type": "int", "default": 5},
    ]
    of = codec(schema(2, {"type": "record", "name": "r", "fields": fields}))
    found = of.decode(
        [
            b'{"at":"2024-02-29T01:02:03Z","local":"2024-02-29T01:02:03","day":"2024-02-29","price":"1.50","x":"NaN","more":[]}',
            b'{"at":1000, "local":[2024,2,29,1,2], "day":1, "price":-2, "x":3, "n":null}',
        ]
    ).to_pylist()
    assert found[0] | {"x": 0} == {
        "at": datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC),
        "local": datetime.datetime(2024, 2, 29, 1, 2, 3),
        "day": datetime.date(2024, 2, 29),
        "price": Decimal("1.50"),
        "x": 0,
        "n": 5,
    }
    assert found[1] == {
        "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "local": datetime.datetime(2024, 2, 29, 1, 2),
        "day": datetime.date(1970, 1, 2),
        "price": Decimal("-2.00"),
        "x": 3.0,
        "n": None,
    }


@given(st.data())
def test_rows_come_back_from_avro_and_from_json(data: st.DataObject) -> None:
    kind = data.draw(records())
    rows = data.draw(st.lists(st.none() | values(kind), max_size=3))
    written: list[bytes | None] = [None if row is None else written_by_fastavro(kind, row) for row in rows]
    avro, text = codec(schema(4, kind)), codec(schema(2, kind))
    batch = avro.decode(written)
    assert batch.schema.equals(avro.columns)
    assert text.columns.equals(avro.columns)
    full = batch.filter(pa.array([row is not None for row in rows], pa.bool_()))
    assert avro.encode(full) == [one for one in written if one is not None]
    assert text.decode(text.encode(full)).equals(full)
    for index, row in enumerate(rows):
        if row is None:
            assert set(batch.slice(index, 1).to_pylist()[0].values()) == {None}


def written_by_fastavro(kind: Any, row: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(kind), row)
    return stream.getvalue()


@given(st.data())
def test_an_older_version_is_read_by_avro_s_schema_resolution(data: st.DataObject) -> None:
    old = data.draw(records(logical=False))
    new = data.draw(changed(old))
    row = data.draw(values(old))
    written = written_by_fastavro(old, row)
    reader = codec(schema(4, new))
    if problems(parse(new), parse(old)):
        with pytest.raises(SchemaError, match="version 3 of topic://a/b/c cannot be read"):
            reader.of_version(schema(4, old), "version 3 of topic://a/b/c")
        return
    older = reader.of_version(schema(4, old), "version 3")
    try:
        expected = fastavro.schemaless_reader(BytesIO(written), fastavro.parse_schema(old), fastavro.parse_schema(new))
    except UnicodeDecodeError:  # the newer schema reads a field of bytes as a string
        with pytest.raises(ValueFormatError, match="The message 1 "):
            older.decode([None, written])
        return
    found = older.decode([written, None]).to_pylist()
    batch = pa.RecordBatch.from_pylist([expected], AvroValues(parse(new)).columns)
    assert found == [*batch.to_pylist(), dict.fromkeys(reader.columns.names)]


def test_bytes_of_an_older_version_that_are_no_text_name_the_message() -> None:
    old, new = ({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]} for kind in ("bytes", "string"))
    older = codec(schema(4, new)).of_version(schema(4, old), "version 3")
    good, bad = (written_by_fastavro(old, {"a": value}) for value in (b"x", b"\x80"))
    assert older.decode([good]).to_pylist() == [{"a": "x"}]
    with pytest.raises(ValueFormatError, match=r"The message 2 .*newer schema r"):
        older.decode([good, None, bad])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "is not JSON"),
        (b'"x"', "the field of the row"),
        (b"null", "it is null"),
        (b'{"a":{"n":1.5}}', "the field a.n is .*1.5.*which is no int"),
        (b'{"a":{"n":3000000000}}', "the field a.n"),
        (b'{"s":"x"}', "the field s"),
        (b'{"b":"%"}', "the field b is '%': it is not base64"),
        (b'{"d":[2024,13,1]}', "the field d"),
        (b'{"p":1.555}', r"the field p is .*it does not fit decimal\(4,2\)"),
    ],
)
def test_json_that_does_not_fit_names_the_message_and_the_field(data: bytes, problem: str) -> None:
    fields = [
        {"name": "a", "type": {"type": "record", "name": "i", "fields": [{"name": "n", "type": "int"}]}},
        {"name": "s", "type": {"type": "enum", "name": "e", "symbols": ["A"]}},
        {"name": "b", "type": "bytes"},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
    ]
    of = codec(schema(2, {"type": "record", "name": "r", "fields": fields}))
    with pytest.raises(ValueFormatError, match=problem) as caught:
        of.decode([b"{}", None, data], None, lambda row: f"The message {row} of topic://a/b/c")
    assert "The message 2 of topic://a/b/c" in caught.value.message


def test_avro_that_does_not_fit_names_the_message() -> None:
    of = codec(schema(4, JAVA_RECORD))
    with pytest.raises(ValueFormatError, match="The message 2 of topic://a/b/c") as caught:
        of.decode([None, JAVA_AVRO, JAVA_AVRO[:-1]], None, lambda row: f"The message {row} of topic://a/b/c")
    assert "valueFormat=binary" in caught.value.advice


@pytest.mark.parametrize("kind", [2, 4])
def test_a_null_in_a_required_field_is_refused(kind: int) -> None:
    of = codec(schema(kind, {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}))
    with pytest.raises(ValueFormatError, match=r"The message 1 .*column n is null"):
        of.encode(pa.RecordBatch.from_pydict({"n": pa.array([1, None], pa.int32())}))


# --- schemas ----------------------------------------------------------------------------------------------------------------


def test_the_schema_of_columns_is_the_one_that_java_derives() -> None:
    columns = pa.schema([("name", pa.string()), ("at", pa.timestamp("us", "UTC")), ("inner", pa.struct([("a", pa.int32())]))])
    made = codec_for(columns, "avro", "Truth.Row")
    assert made.columns.names == columns.names
    found = json.loads(made.schema.schema_data)
    assert (found["name"], made.schema.type) == ("Truth.Row", 4)
    assert found["fields"][0] == {"name": "name", "type": ["null", "string"], "default": None}
    assert found["fields"][1]["type"] == ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    assert {one.key: one.value for one in made.schema.properties}["__alwaysAllowNull"] == "true"
    rows = pa.RecordBatch.from_pylist([{"name": "x", "at": None, "inner": {"a": 1}}], made.columns)
    for kind in ("avro", "json"):
        again = codec(codec_for(columns, kind, "Row").schema)
        assert again.decode(again.encode(rows)).equals(rows)


def test_elements_of_arrays_and_maps_are_not_null_as_in_java() -> None:
    made = codec_for(pa.schema([("tags", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))]))
    found = json.loads(made.schema.schema_data)["fields"]
    assert found[0]["type"] == ["null", {"type": "array", "items": "string"}]
    assert found[1]["type"] == ["null", {"type": "map", "values": {"type": "array", "items": "int"}}]
    with pytest.raises(ValueFormatError, match=r"The message 1 .*tags.element"):
        made.encode(pa.RecordBatch.from_pydict({"tags": [["x"], [None]], "m": [None, [("k", [1])]]}, made.columns))


def test_kinds_of_new_schemas() -> None:
    assert isinstance(codec_for(pa.schema([("v", pa.binary())]), "bytes"), BytesValues)
    assert isinstance(codec_for(pa.schema([("v", pa.string())]), "json"), JsonValues)
    found = codec_for(pa.schema([("value", pa.int64())]), "primitive")
    assert isinstance(found, PrimitiveValues)
    assert (found.kind, found.schema.name) == (9, "INT64")


@pytest.mark.parametrize(
    ("columns", "kind", "problem"),
    [
        (pa.schema([("a", pa.string())]), "bytes", "one binary column"),
        (pa.schema([("a", pa.decimal128(4, 2))]), "primitive", "No primitive schema"),
        (pa.schema([("a b", pa.string())]), "avro", "The column a b"),
        (pa.schema([("a", pa.duration("us"))]), "json", "The column a"),
        (pa.schema([("a", pa.string())]), "xml", "no schema of the kind xml"),
    ],
)
def test_columns_that_no_schema_has_are_refused(columns: pa.Schema, kind: Any, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem) as caught:
        codec_for(columns, kind)
    assert caught.value.advice


@pytest.mark.parametrize(
    "found",
    [
        Schema(type=3),
        Schema(type=20),
        Schema(type=4, schema_data=b"\xff"),
        Schema(type=4, schema_data=b'"string"'),
        Schema(type=2, schema_data=b'{"type":"record","name":"r","fields":[{"name":"a","type":["int","string"]}]}'),
        Schema(type=15, schema_data=b"\x00\x00\x00\x09x"),
        Schema(type=15, schema_data=b""),
        Schema(type=15, schema_data=bytes(8), properties=[KeyValue(key="key.schema.type", value="XML")]),
    ],
)
def test_a_schema_that_is_no_columns_names_the_topic_and_the_way_out(found: Any) -> None:
    with pytest.raises(SchemaError, match="topic://a/b/c") as caught:
        codec(found, "topic://a/b/c")
    assert "valueFormat=binary" in caught.value.advice


def test_another_type_is_no_version() -> None:
    for of in (
        plain(8),
        codec(schema(4, JAVA_RECORD)),
        codec(schema(2, JAVA_RECORD)),
        KeyValues(plain(1), plain(8), separated=False),
    ):
        with pytest.raises(SchemaError, match="The version 2 of t cannot be read: it is not of the type"):
            of.of_version(Schema(type=1), "The version 2 of t")
        assert of.of_version(of.schema, "The version 2 of t") is of


# --- keys and values --------------------------------------------------------------------------------------------------------


def java_key_value(encoding: str) -> Any:
    given = {
        "key.schema.properties": "{}",
        "value.schema.properties": "{}",
        "value.schema.type": "INT32",
        "key.schema.name": "String",
        "value.schema.name": "INT32",
        "kv.encoding.type": encoding,
        "key.schema.type": "STRING",
    }
    return Schema(
        name="KeyValue", type=15, schema_data=bytes(8), properties=[KeyValue(key=key, value=one) for key, one in given.items()]
    )


def test_java_s_inline_pairs_are_read_and_written() -> None:
    of = codec(java_key_value("INLINE"))
    data = [bytes.fromhex(one) for one in ("00000001610000000400000005", "ffffffff0000000400000005", "0000000161ffffffff")]
    rows = of.decode([*data, None])
    assert rows.to_pylist() == [
        {"key": "a", "value": 5},
        {"key": None, "value": 5},
        {"key": "a", "value": None},
        {"key": None, "value": None},
    ]
    assert of.encode(rows) == [*data, None]
    assert of.keys_of(rows) is None


def test_java_s_separated_pairs_are_read_and_written() -> None:
    of = codec(java_key_value("SEPARATED"))
    rows = of.decode([bytes.fromhex("00000005"), None], [b"a", b"b"])
    assert of.takes_keys
    assert rows.to_pylist() == [{"key": "a", "value": 5}, {"key": "b", "value": None}]
    assert (of.encode(rows), of.keys_of(rows)) == ([bytes.fromhex("00000005"), None], [b"a", b"b"])


@given(st.data(), st.booleans())
def test_pairs_of_records_come_back(data: st.DataObject, separated: bool) -> None:
    kinds = [data.draw(records(depth=1)) for _ in range(2)]
    of = KeyValues(codec(schema(4, kinds[0])), codec(schema(2, kinds[1])), separated=separated)
    again = codec(of.schema, "t")
    assert again.columns.equals(of.columns)
    rows = data.draw(st.lists(st.tuples(*(st.none() | values(kind) for kind in kinds)), max_size=3))
    keys = [None if key is None else written_by_fastavro(kinds[0], key) for key, _ in rows]
    of_values = codec(schema(4, kinds[1]))
    made = of_values.decode([None if value is None else written_by_fastavro(kinds[1], value) for _, value in rows])
    struct = pa.StructArray.from_arrays(
        made.columns, fields=list(made.schema), mask=pa.array([value is None for _, value in rows], pa.bool_())
    )
    key_column = (
        KeyValues(of_values.__class__(parse(kinds[0])), of_values, separated=True).decode([None] * len(rows), keys).column(0)  # type: ignore[call-arg]
    )
    batch = pa.RecordBatch.from_arrays([key_column, struct], schema=of.columns)
    assert again.decode(of.encode(batch), of.keys_of(batch)).equals(batch)


@pytest.mark.parametrize("data", ["", "00000001", "0000000161", "fffffffe", "ffffffffffffffff00", "000000016100000004000005"])
def test_damaged_pairs_name_the_message(data: str) -> None:
    with pytest.raises(ValueFormatError, match="The message 1 "):
        codec(java_key_value("INLINE")).decode([None, bytes.fromhex(data)])


def test_a_field_of_a_key_that_does_not_fit_is_named() -> None:
    of = codec(java_key_value("SEPARATED"))
    with pytest.raises(ValueFormatError, match=r"The message 0 .*in its key"):
        of.decode([bytes(4)], [b"\xff"])
