"""The rules for schemas, as tables of cases: supported types, growth of schemas, unions of topics."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    CalendarIntervalType,
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimeType,
    YearMonthIntervalType,
)

from ledgers.errors import SchemaError
from ledgers.schema import RESERVED, check_writable, columns, evolve, nullable, project, union


def struct(text: str) -> StructType:
    """Return a schema from a DDL text, without a Spark session."""
    found = _ddl(text)
    assert isinstance(found, StructType)
    return found


def _ddl(text: str) -> DataType:
    text = text.strip()
    if text.startswith("struct<"):
        fields = [part.partition(":") for part in _split(text[7:-1])]
        return StructType([StructField(name.strip(), _ddl(kind)) for name, _, kind in fields])
    if text.startswith("array<"):
        from pyspark.sql.types import ArrayType

        return ArrayType(_ddl(text[6:-1]))
    if text.startswith("map<"):
        from pyspark.sql.types import MapType

        key, value = _split(text[4:-1])
        return MapType(_ddl(key), _ddl(value))
    from pyspark.sql.types import _parse_datatype_json_string

    names = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}
    return _parse_datatype_json_string(f'"{names.get(text, text)}"')


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "<(") - (c in ">)")
        if c == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += c
    return [*parts, current]


ROW = "struct<id:long,s:struct<a:integer,b:string>,l:array<integer>,m:map<string,float>,d:decimal(9,2)>"


@pytest.mark.parametrize("kind", [NullType(), YearMonthIntervalType(), CalendarIntervalType(), TimeType(), StructType([])])
@pytest.mark.parametrize("nested", [False, True])
def test_types_that_a_topic_cannot_keep(kind: DataType, nested: bool) -> None:
    inner = StructType([StructField("x", kind)])
    schema = StructType([StructField("id", IntegerType()), StructField("s", inner)]) if nested else inner
    with pytest.raises(SchemaError) as caught:
        check_writable(schema)
    assert ("s.x" if nested else " x ") in str(caught.value)
    assert caught.value.advice


@pytest.mark.parametrize("name", [*RESERVED, *(name.upper() for name in RESERVED)])
def test_names_of_metadata_columns(name: str) -> None:
    with pytest.raises(SchemaError, match=name):
        check_writable(StructType([StructField(name, StringType())]))
    check_writable(StructType([StructField("s", StructType([StructField(name, StringType())]))]))


@pytest.mark.parametrize("text", ["struct<a:integer,A:integer>", "struct<a:integer,a:integer>", "struct<s:struct<x:long,X:long>>"])
def test_names_that_differ_by_case_only(text: str) -> None:
    with pytest.raises(SchemaError, match=r"differs only by case|occurs twice"):
        check_writable(struct(text))


def test_no_columns() -> None:
    with pytest.raises(SchemaError, match="no column"):
        check_writable(StructType([]))


GROWS = [
    (ROW, ROW, ROW),
    ("struct<a:integer>", "struct<b:long,a:integer>", "struct<a:integer,b:long>"),
    ("struct<a:byte>", "struct<a:short>", "struct<a:short>"),
    ("struct<a:short>", "struct<a:long>", "struct<a:long>"),
    ("struct<a:long>", "struct<a:byte>", "struct<a:long>"),
    ("struct<a:float>", "struct<a:double>", "struct<a:double>"),
    ("struct<a:double>", "struct<a:float>", "struct<a:double>"),
    ("struct<a:decimal(9,2)>", "struct<a:decimal(12,2)>", "struct<a:decimal(12,2)>"),
    ("struct<a:decimal(9,2)>", "struct<a:decimal(9,4)>", "struct<a:decimal(11,4)>"),
    ("struct<a:decimal(38,10)>", "struct<a:decimal(20,2)>", "struct<a:decimal(38,10)>"),
    ("struct<s:struct<a:integer>>", "struct<s:struct<b:string,a:long>>", "struct<s:struct<a:long,b:string>>"),
    ("struct<l:array<struct<a:byte>>>", "struct<l:array<struct<a:integer>>>", "struct<l:array<struct<a:integer>>>"),
    ("struct<m:map<integer,float>>", "struct<m:map<long,double>>", "struct<m:map<long,double>>"),
    ("struct<a:long,b:string>", "struct<b:string>", "struct<a:long,b:string>"),
    ("struct<i:interval day>", "struct<i:interval hour to second>", "struct<i:interval day to second>"),
]


@pytest.mark.parametrize(("topic", "incoming", "grown"), GROWS)
def test_a_topic_grows(topic: str, incoming: str, grown: str) -> None:
    before = struct(topic)
    after = evolve(before, struct(incoming))
    assert after == struct(grown)
    assert (after is before) == (topic == grown)
    assert evolve(after, struct(incoming)) is after
    assert union([before, struct(incoming)], ["t1", "t2"]) == struct(grown)


REFUSED = [
    ("integer", "string", "a"),
    ("integer", "double", "a"),
    ("integer", "decimal(20,0)", "a"),
    ("long", "float", "a"),
    ("decimal(38,0)", "decimal(38,10)", "a"),
    ("timestamp", "timestamp_ntz", "a"),
    ("date", "timestamp", "a"),
    ("string", "binary", "a"),
    ("array<integer>", "integer", "a"),
    ("array<integer>", "array<string>", "a.element"),
    ("map<string,integer>", "map<string,boolean>", "a.value"),
    ("struct<x:struct<y:integer>>", "struct<x:struct<y:date>>", "a.x.y"),
    ("variant", "string", "a"),
]


@pytest.mark.parametrize(("old", "new", "path"), REFUSED)
def test_anything_else_is_refused_naming_column_types_and_topics(old: str, new: str, path: str) -> None:
    with pytest.raises(SchemaError) as caught:
        evolve(struct(f"struct<a:{old}>"), struct(f"struct<a:{new}>"))
    assert f" {path} " in str(caught.value)
    with pytest.raises(SchemaError) as caught:
        union([struct("struct<z:long>"), struct(f"struct<a:{old}>"), struct(f"struct<a:{new}>")], ["t1", "t2", "t3"])
    assert all(name in str(caught.value) for name in (f" {path} ", "t2", "t3"))
    assert "t1" not in str(caught.value)


def test_a_column_that_differs_by_case_from_the_topics() -> None:
    with pytest.raises(SchemaError, match="differs only by case"):
        evolve(struct("struct<a:long>"), struct("struct<A:long>"))


def test_a_new_topic_is_nullable_at_every_level() -> None:
    tight = StructType([StructField("s", StructType([StructField("a", IntegerType(), False)]), False, {"k": 1})])
    found = evolve(None, tight)
    assert found == nullable(tight)
    assert found["s"].nullable
    assert found["s"].dataType["a"].nullable
    assert found["s"].metadata == {"k": 1}


def test_a_user_schema_subsets_reorders_and_widens() -> None:
    wanted = struct("struct<l:array<long>,s:struct<b:string>,id:long,d:decimal(12,4)>")
    assert project(struct(ROW), wanted) == wanted


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("struct<idd:long>", "Did you mean id"),
        ("struct<ID:long>", "Did you mean id"),
        ("struct<s:struct<c:string>>", "s.c"),
        ("struct<id:integer>", "cannot be read as int"),
        ("struct<l:string>", "cannot be read as string"),
        ("struct<zzzzzzz:string>", "There are: id, s, l, m, d"),
    ],
)
def test_a_user_schema_that_does_not_fit(wanted: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        project(struct(ROW), struct(wanted))


def test_columns_by_name() -> None:
    assert columns(struct(ROW), ["m", "id"]).names == ["m", "id"]
    with pytest.raises(SchemaError, match="Did you mean id"):
        columns(struct(ROW), ["Id"])
    with pytest.raises(SchemaError, match="twice"):
        columns(struct(ROW), ["id", "id"])
