"""Schemas of topics: writable types, evolution by writes, and the union of several topics' schemas.

A topic stores Spark's schema JSON, nullable at every level. It evolves by added columns and by lossless widening: byte < short <
int < long, float < double, decimals by precision and scale. Every other change is a SchemaError. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import NoReturn

from pyspark.sql import types as T

from ledgers.errors import SchemaError
from ledgers.limits import MAX_LEVELS

RESERVED = ("__topic", "__segment", "__messageId", "__publishTime", "__txnId")
"""Names of the metadata columns, which topics cannot use."""

_INTEGERS: tuple[type[T.DataType], ...] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FLOATS: tuple[type[T.DataType], ...] = (T.FloatType, T.DoubleType)
_PLAIN = (
    *(T.BooleanType, *_INTEGERS, *_FLOATS, T.DecimalType, T.StringType, T.BinaryType),
    *(T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.VariantType),
)
_ADVICE: dict[type[T.DataType], str] = {
    T.NullType: "Cast the column to the type it should have, e.g. cast(null as string).",
    T.YearMonthIntervalType: "Spark cannot pass it to Python; write the number of months as an int.",
    T.CalendarIntervalType: "Write a day-time interval, or its parts as columns.",
    T.TimeType: "Spark's Parquet reader cannot read it back; write it as a string or as microseconds in a bigint.",
    T.CharType: "Declare it string; Spark does so by itself when it reads char columns of tables.",
    T.VarcharType: "Declare it string; Spark does so by itself when it reads varchar columns of tables.",
}


def check_writable(schema: T.StructType) -> None:
    """Raise SchemaError, before any row is written, for a schema that a topic cannot store. The error names column and type.

    Refused are: void, year-month and calendar intervals, TIME and other types that Arrow or Parquet cannot represent; structs
    without fields; names that differ only by case; names of metadata columns (at the top level).
    """
    if not schema.fields:
        raise SchemaError("There is no column to write.", advice="Select at least one column.")
    for field in schema.fields:
        for name in RESERVED:
            if field.name.lower() == name.lower():
                raise SchemaError(
                    f"The column {field.name} has the name of the metadata column {name}.",
                    advice=f"Rename or drop it before writing. Reserved are: {', '.join(RESERVED)}.",
                )
    check_types(schema)


def check_types(schema: T.StructType) -> None:
    """Check as `check_writable` does, but accept metadata columns and a schema without columns."""
    _check_struct(schema, "", 1)


def _check_struct(struct: T.StructType, path: str, level: int) -> None:
    seen: dict[str, str] = {}
    for field in struct.fields:
        lower = field.name.lower()
        seen_before = lower in seen
        other = seen.setdefault(lower, field.name)
        if seen_before:
            same = "occurs twice" if other == field.name else f"differs only by case from {path}{other}"
            raise SchemaError(f"The column {path}{field.name} {same}.", advice="Rename one of them before writing.")
        _check_type(field.dataType, path + field.name, level)


def _check_type(kind: T.DataType, path: str, level: int) -> None:
    if level > MAX_LEVELS:
        raise SchemaError(f"The column {path:.200} has more than {MAX_LEVELS} levels.", advice="Write it flatter.")
    if isinstance(kind, T.StructType):
        if not kind.fields:
            raise SchemaError(f"The column {path} is a struct without fields.", advice="Parquet cannot hold it; drop it.")
        _check_struct(kind, f"{path}.", level + 1)
    elif isinstance(kind, T.ArrayType):
        _check_type(kind.elementType, f"{path}.element", level + 1)
    elif isinstance(kind, T.MapType):
        _check_type(kind.keyType, f"{path}.key", level + 1)
        _check_type(kind.valueType, f"{path}.value", level + 1)
    elif not isinstance(kind, _PLAIN):
        advice = next((text for t, text in _ADVICE.items() if isinstance(kind, t)), "Cast it to another type before writing.")
        raise SchemaError(f"The column {path} has the type {kind.simpleString()}, which a topic cannot store.", advice=advice)


def has_floats(kind: T.DataType) -> bool:
    """Return whether the type is that of floating-point numbers, or a struct with some."""
    if isinstance(kind, T.StructType):
        return any(has_floats(field.dataType) for field in kind)
    return isinstance(kind, T.FloatType | T.DoubleType)


def quoted(name: str) -> str:
    """Return a column's name in the quoted form of Spark's expressions."""
    return "`" + name.replace("`", "``") + "`"


def nullable(schema: T.StructType) -> T.StructType:
    """Return the schema with every level nullable. (The columns of `spark.range` and of literals are NOT NULL.)"""
    return T.StructType([T.StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in schema.fields])


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return nullable(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def evolve(topic: T.StructType | None, incoming: T.StructType) -> T.StructType:
    """Return the topic's schema after a write of `incoming`: columns added at the end, types widened, nullable at every level.

    Columns are matched by their exact name. If the incoming type is narrower, the topic's type stays. Returns `topic` itself if
    nothing changes. Raises SchemaError, which names the column and both types, for every other change.
    """
    check_writable(incoming)
    if topic is None:
        return nullable(incoming)

    def refuse(path: str, old: T.DataType, new: T.DataType) -> NoReturn:
        raise SchemaError(
            f"The column {path} is {new.simpleString()} in this write, but {old.simpleString()} in the topic.",
            advice="Cast it to the topic's type. A topic only widens: byte < short < int < long, float < double, larger decimals.",
        )

    grown = _widen_struct(topic, nullable(incoming), "", refuse)
    if grown == topic:
        return topic
    check_writable(grown)
    return grown


def growth(old: T.StructType, new: T.StructType, path: str = "") -> list[str]:
    """Return what `evolve` has changed from `old` to `new`, one text for each column that was added or widened."""
    found: list[str] = []
    for field in new.fields:
        name = f"{path}{field.name}"
        before = next((one.dataType for one in old.fields if one.name == field.name), None)
        if before is None:
            found.append(f"the column {name} ({field.dataType.simpleString()}) is new")
        elif isinstance(before, T.StructType) and isinstance(field.dataType, T.StructType):
            found += growth(before, field.dataType, f"{name}.")
        elif before != field.dataType:
            found.append(f"the column {name} is {before.simpleString()} and would be {field.dataType.simpleString()}")
    return found


def union(schemas: Sequence[T.StructType], names: Sequence[str]) -> T.StructType:
    """Return one schema for the rows of several topics: columns by name, widened as in `evolve`, in order of appearance.

    `names`: the topics' names. Raises SchemaError, which names the column, the topics and the types, for a conflict.
    """
    if not schemas:
        raise ValueError("no schemas to unite")
    whole = schemas[0]
    for index, schema in enumerate(schemas[1:], 1):

        def refuse(path: str, old: T.DataType, new: T.DataType, index: int = index) -> NoReturn:
            earlier = next(name for name, s in zip(names, schemas[:index], strict=False) if _has(s, path))
            raise SchemaError(
                f"The column {path} is {old.simpleString()} in {earlier}, but {new.simpleString()} in {names[index]}.",
                advice="Read the topics separately, or use the option `columns` to select columns that agree.",
            )

        whole = _widen_struct(whole, schema, "", refuse)
    check_writable(whole)
    return whole


def _has(schema: T.StructType, path: str) -> bool:
    return any(path == f.name or path.startswith(f"{f.name}.") for f in schema.fields)


Refuse = Callable[[str, T.DataType, T.DataType], NoReturn]


def _widen_struct(old: T.StructType, new: T.StructType, path: str, refuse: Refuse) -> T.StructType:
    incoming = {f.name: f for f in new.fields}
    fields = []
    for field in old.fields:
        other = incoming.pop(field.name, None)
        kind = field.dataType if other is None else _widen(field.dataType, other.dataType, path + field.name, refuse)
        fields.append(T.StructField(field.name, kind, True, field.metadata))
    return T.StructType(fields + [f for f in new.fields if f.name in incoming])


def _widen(old: T.DataType, new: T.DataType, path: str, refuse: Refuse) -> T.DataType:
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        return _widen_struct(old, new, f"{path}.", refuse)
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return T.ArrayType(_widen(old.elementType, new.elementType, f"{path}.element", refuse), True)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        key = _widen(old.keyType, new.keyType, f"{path}.key", refuse)
        return T.MapType(key, _widen(old.valueType, new.valueType, f"{path}.value", refuse), True)
    for family in (_INTEGERS, _FLOATS):
        if type(old) in family and type(new) in family:
            return max(old, new, key=lambda kind: family.index(type(kind)))
    if isinstance(old, T.DecimalType) and isinstance(new, T.DecimalType):
        scale = max(old.scale, new.scale)
        precision = max(old.precision - old.scale, new.precision - new.scale) + scale
        return T.DecimalType(precision, scale) if precision <= 38 else refuse(path, old, new)
    if isinstance(old, T.DayTimeIntervalType) and isinstance(new, T.DayTimeIntervalType):
        return T.DayTimeIntervalType(min(old.startField, new.startField), max(old.endField, new.endField))
    return old if old == new else refuse(path, old, new)


def project(full: T.StructType, wanted: T.StructType) -> T.StructType:
    """Check the schema that a user requested, and return it nullable. The user may leave out, reorder or widen columns.

    Raises SchemaError for an unknown name (with the nearest one) and for a type to which the column cannot be widened.
    """
    _project(full, wanted, "")
    check_writable(wanted)
    return nullable(wanted)


def _project(full: T.StructType, wanted: T.StructType, path: str) -> None:
    have = {f.name: f for f in full.fields}
    for field in wanted.fields:
        if field.name not in have:
            raise _unknown(field.name, path, list(have))
        _project_type(have[field.name].dataType, field.dataType, path + field.name)


def _project_type(have: T.DataType, want: T.DataType, path: str) -> None:
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        return _project(have, want, f"{path}.")
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        return _project_type(have.elementType, want.elementType, f"{path}.element")
    if isinstance(have, T.MapType) and isinstance(want, T.MapType):
        _project_type(have.keyType, want.keyType, f"{path}.key")
        return _project_type(have.valueType, want.valueType, f"{path}.value")

    def refuse(path: str, old: T.DataType, new: T.DataType) -> NoReturn:
        raise SchemaError(
            f"The column {path} is {old.simpleString()}; it cannot be read as {new.simpleString()}.",
            advice="Read it with its own type and cast it after.",
        )

    if _widen(have, want, path, refuse) != want:
        refuse(path, have, want)
    return None


def columns(full: T.StructType, names: Sequence[str]) -> T.StructType:
    """Return the named columns in the given order. Raises SchemaError for an unknown name (with the nearest one) and for a repeated
    name.
    """
    have = {f.name: f for f in full.fields}
    for index, name in enumerate(names):
        if name not in have:
            raise _unknown(name, "", list(have))
        if name in names[:index]:
            raise SchemaError(f"The column {name} is named twice.", advice="Name every column once.")
    return T.StructType([have[name] for name in names])


def _unknown(name: str, path: str, have: list[str]) -> SchemaError:
    lower = {n.lower(): n for n in have}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    advice = f"Did you mean {path}{lower[near[0]]}?" if near else f"There are: {', '.join(have)}."
    return SchemaError(f"There is no column {path}{name}.", advice=advice)
