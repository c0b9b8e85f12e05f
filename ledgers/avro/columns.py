"""Mapping of Avro types to topic columns and back, and the evolution of an Avro schema with the columns of its topic. Pure.

| Avro | column |
|---|---|
| boolean, int, long, float, double | boolean, int, bigint, float, double |
| bytes, fixed | binary; with the logical type decimal: decimal |
| string, enum; uuid | string |
| date | date |
| timestamp-millis, -micros | timestamp |
| local-timestamp-millis, -micros | timestamp_ntz |
| array, map, record | array, map of strings, struct |
| union of null and one type | that type: every column may be null |

In a schema derived from columns, tinyint and smallint become int, and every column is a union of null and its type with default
null.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from pyspark.sql import types as T

from ledgers.avro.schema import (
    DECIMAL,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Optional,
    Plain,
    Primitive,
    Record,
    Type,
    plain,
    with_fields,
)
from ledgers.errors import SchemaError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final[dict[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
}
_LOGICAL: Final[dict[str, T.DataType]] = {
    "date": T.DateType(),
    "timestamp-millis": T.TimestampType(),
    "timestamp-micros": T.TimestampType(),
    "local-timestamp-millis": T.TimestampNTZType(),
    "local-timestamp-micros": T.TimestampNTZType(),
    "uuid": T.StringType(),
}
_AVRO: Final[dict[type[T.DataType], Primitive]] = {
    T.BooleanType: Primitive("boolean"),
    T.ByteType: Primitive("int"),
    T.ShortType: Primitive("int"),
    T.IntegerType: Primitive("int"),
    T.LongType: Primitive("long"),
    T.FloatType: Primitive("float"),
    T.DoubleType: Primitive("double"),
    T.BinaryType: Primitive("bytes"),
    T.StringType: Primitive("string"),
    T.DateType: Primitive("int", "date"),
    T.TimestampType: Primitive("long", "timestamp-micros"),
    T.TimestampNTZType: Primitive("long", "local-timestamp-micros"),
}


def columns_of(record: Record) -> T.StructType:
    """Return the columns of this schema, nullable at every level."""
    return T.StructType([T.StructField(field.name, _column(field.type), True) for field in record.fields])


def _column(kind: Type) -> T.DataType:
    kind = plain(kind)
    match kind:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return T.DecimalType(kind.precision, kind.scale)
        case Primitive():
            return _PRIMITIVES[kind.kind] if kind.logical is None else _LOGICAL[kind.logical]
        case Fixed():
            return T.BinaryType()
        case Enum():
            return T.StringType()
        case Array():
            return T.ArrayType(_column(kind.items), True)
        case Map():
            return T.MapType(T.StringType(), _column(kind.values), True)
        case Record():
            return columns_of(kind)


# --- columns as Avro ----------------------------------------------------------------------------------------------


def derived(struct: T.StructType, name: str) -> Record:
    """Derive an Avro schema from the columns of a topic that has no registered schema. `name`: the full name of the record, words
    separated by dots.

    Raises SchemaError that names the column if Avro cannot express its name or type.
    """
    full = ".".join(re.sub(r"[^A-Za-z0-9_]|^(?=[0-9])", "_", word) for word in name.split("."))
    return _record(struct, "", full)


def _record(struct: T.StructType, path: str, name: str) -> Record:
    return Record(name, tuple(_field(field, path, name) for field in struct), derived=True)


def _field(field: T.StructField, path: str, record: str) -> Field:
    below = f"{path}.{field.name}" if path else field.name
    if not _NAME.fullmatch(field.name):
        raise SchemaError(
            f"The column {below} has a name that Avro does not have.",
            advice="Avro's names are letters, digits and underscores, no digit first: rename the column.",
        )
    return Field(field.name, Optional(_type(field.dataType, below, f"{record}.{field.name}")), None)


def _type(kind: T.DataType, path: str, name: str) -> Plain:
    match kind:
        case T.StructType():
            return _record(kind, path, name)
        case T.ArrayType():
            return Array(Optional(_type(kind.elementType, f"{path}.element", name)))
        case T.MapType() if isinstance(kind.keyType, T.StringType):
            return Map(Optional(_type(kind.valueType, f"{path}.value", name)))
        case T.DecimalType():
            return Primitive("bytes", DECIMAL, kind.precision, kind.scale)
    found = _AVRO.get(type(kind))
    if found is None:
        raise SchemaError(
            f"The column {path} has the type {kind.simpleString()}, which Avro does not have.",
            advice="Cast it to a type that Avro has: a map's keys to strings, an interval to a bigint, a variant to a string.",
        )
    return found


# --- a registered schema with more or wider columns ----------------------------------------------------------------


def grown(record: Record, old: T.StructType, new: T.StructType) -> Record:
    """Return a registered schema, extended for a write that has evolved the columns of its topic from `old` to `new`. New columns
    are added at the end with default null. Wider types replace narrower ones. Columns of `old` that the schema lacks are not added.
    Raises SchemaError as `derived` does.
    """
    return _grown_record(record, old, new, "")


def _grown_record(record: Record, old: T.StructType, new: T.StructType, path: str) -> Record:
    there, before = {f.name for f in record.fields}, set(old.fieldNames())
    kept = [
        Field(f.name, _grown(f.type, old[f.name].dataType, new[f.name].dataType, _below(path, f.name)), f.default, f.extra)
        for f in record.fields
    ]
    added = [_field(f, path, record.name) for f in new if f.name not in before and f.name not in there]
    return with_fields(record, kept + added)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _grown(kind: Type, old: T.DataType, new: T.DataType, path: str) -> Type:
    if old == new:
        return kind
    if isinstance(kind, Optional):
        return Optional(_grown_plain(kind.type, old, new, path), kind.null_first)
    return _grown_plain(kind, old, new, path)


def _grown_plain(kind: Plain, old: T.DataType, new: T.DataType, path: str) -> Plain:
    match kind, old, new:
        case Record(), T.StructType(), T.StructType():
            return _grown_record(kind, old, new, path)
        case Array(), T.ArrayType(), T.ArrayType():
            return Array(_grown(kind.items, old.elementType, new.elementType, f"{path}.element"), kind.extra)
        case Map(), T.MapType(), T.MapType():
            return Map(_grown(kind.values, old.valueType, new.valueType, f"{path}.value"), kind.extra)
        case Primitive(), T.DecimalType(), T.DecimalType():
            return Primitive("bytes", DECIMAL, new.precision, new.scale, kind.extra)
        case Primitive(), _, _:
            return _type(new, path, "")
    _no_room(kind, new, path)


def _no_room(kind: Plain, new: T.DataType, path: str) -> NoReturn:
    raise SchemaError(
        f"The column {path} would become {new.simpleString()}, but the {type(kind).__name__.lower()} in its Avro schema cannot.",
        advice="First register an Avro schema with that type (txnsegment topics schema TOPIC --set FILE).",
    )
