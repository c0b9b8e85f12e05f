"""Spark's types in Arrow, and the conversion of batches to the schema of a part or a Spark reader.

A part uses exactly the Arrow form that Spark derives for Python data sources. The Parquet file then has day-time intervals as plain
INT64 microseconds, and variants as structs of two binaries. Spark's own Parquet reader accepts both. The Arrow schema in the file's
metadata restores all types (tested for every type, nested too: tests/spark/test_spark_types.py).
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from ledgers.errors import SchemaError
from ledgers.schema import check_types

_NO_NULLS = "Give each row a value in this column."
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
Numbers = Literal["wider", "fitting", "python"]
"""Which numbers `conform` converts. `wider`: only to a wider type. `fitting`: also integers to a narrower integer type, if each
value fits. `python`: also integers and floats to any float type, because Python's numbers do not say which type they are meant for.
"""


def arrow_schema(struct: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a reader of these columns: normal (not large) types, timestamps in us and
    UTC.

    Raises SchemaError for types that a topic cannot store.
    """
    check_types(struct)
    return to_arrow_schema(struct, timezone="UTC")


def conform(batch: pa.RecordBatch, target: pa.Schema, numbers: Numbers = "wider") -> pa.RecordBatch:
    """Return the batch with exactly the columns and types of `target`. Columns are matched by name, at every level.

    Columns are reordered, and missing columns are filled with nulls. Integers, floats and decimals are widened. Timestamps of any
    zone become UTC. Large and dictionary types become normal types. Columns that fit already are not copied.

    `numbers`: see `Numbers`. Raises SchemaError, which names the column, for a column that `target` lacks, a type or an integer
    that does not fit, and a null in a column that allows none.
    """
    if batch.schema.equals(target, check_metadata=True) and not any(_has_variant(f.type) for f in target):
        return batch
    names = batch.schema.names
    _refuse_strangers(names, target.names, "")
    columns = [
        _conform(batch.column(names.index(f.name)), f, f.name, numbers) if f.name in names else _nulls(batch.num_rows, f, f.name)
        for f in target
    ]
    if not columns:
        return batch.select([]).replace_schema_metadata(target.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _refuse_strangers(names: list[str], known: list[str], inside: str) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(f"The column {inside}{twice} occurs twice in a batch.", advice="Give every column a unique name.")
    strangers = [name for name in names if name not in known]
    if strangers:
        raise SchemaError(
            f"A batch has the column {inside}{strangers[0]}, which is not expected here.",
            advice=f"Expected are: {', '.join(known)}.",
        )


def _nulls(rows: int, field: pa.Field, path: str) -> pa.Array:
    if not field.nullable and rows:
        raise SchemaError(
            f"The column {path} is missing in a batch and may not be null.",
            advice="Add it to all batches, with a value in each row.",
        )
    return pa.nulls(rows, field.type)


def _conform(array: pa.Array, field: pa.Field, path: str, numbers: Numbers) -> pa.Array:
    """Return one column in the type of `field`, with the names, nullability and metadata of its nested fields."""
    if not field.nullable and array.null_count:
        raise SchemaError(f"The column {path} holds nulls, but may not.", advice=_NO_NULLS)
    kind = field.type
    if array.type.equals(kind, check_metadata=True) and not _has_variant(kind):
        return array
    if pa.types.is_dictionary(array.type):
        return _conform(_decoded(array), field, path, numbers)
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _struct(array, kind, path, numbers)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        return _map(array, kind, path, numbers)
    if pa.types.is_list(kind) and (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return _list(array, kind, path, numbers)
    narrowed = numbers != "wider" and array.type in _INTEGERS and kind in _INTEGERS
    rounded = numbers == "python" and pa.types.is_floating(kind) and (array.type in _INTEGERS or pa.types.is_floating(array.type))
    if not (narrowed or rounded or _fits(array.type, kind)):
        raise SchemaError(
            f"The column {path} has the type {array.type} in a batch, but should have {kind}.",
            advice=f"Cast {path} to {_spark_name(kind)} before the write.",
        )
    try:
        made = array.cast(kind)
        if rounded:
            _refuse_overflow(array, made)
        return made
    except pa.ArrowException as error:
        if narrowed or rounded:
            raise SchemaError(
                f"The column {path} has a value that {kind} cannot hold: {error}.",
                advice=f"The type of the column is {_spark_name(kind)}. Write only values that it holds.",
            ) from error
        raise SchemaError(
            f"The column {path} cannot be converted from {array.type} to {kind}: {error}.",
            advice="Round the values to microseconds before the write."
            if pa.types.is_timestamp(kind)
            else "Lower spark.sql.execution.arrow.maxRecordsPerBatch if single batches hold more than 2 GB of it.",
        ) from error


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary array. Arrow cannot take values from a view (Polars has dictionaries of views), so a view
    is converted before.
    """
    values = array.dictionary
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def _refuse_overflow(array: pa.Array, made: pa.Array) -> None:
    """Raise ArrowInvalid if a finite number became infinite in a narrower type."""
    import pyarrow.compute as pc  # imported late, see `_child`

    if pa.types.is_floating(array.type) and pc.any(pc.and_(pc.is_finite(array), pc.is_inf(made))).as_py():
        raise pa.ArrowInvalid("a number is too large")


def _spark_name(kind: pa.DataType) -> str:
    """Return the name of a type in Spark, by which `cast` takes it."""
    try:
        name: str = from_arrow_type(kind).simpleString()
    except PySparkException:
        return str(kind)
    return name


def _fits(source: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values of `source` can be cast to `kind` without loss. `ledgers.schema.evolve` allows the same casts."""
    types = pa.types
    fits = source == kind
    if types.is_null(source):
        fits = True
    elif kind in _INTEGERS:
        fits = source in _INTEGERS and source.bit_width <= kind.bit_width
    elif types.is_floating(kind):
        fits = types.is_floating(source) and source.bit_width <= kind.bit_width
    elif types.is_decimal(kind):
        fits = types.is_decimal(source) and kind.scale >= source.scale and _whole(kind) >= _whole(source)
    elif types.is_timestamp(kind):
        fits = types.is_timestamp(source) and (source.tz is None) == (kind.tz is None)
    elif types.is_duration(kind):
        fits = types.is_duration(source)
    elif types.is_string(kind):
        fits = types.is_string(source) or types.is_large_string(source) or types.is_string_view(source)
    elif types.is_binary(kind):
        fits = types.is_binary(source) or types.is_large_binary(source) or types.is_binary_view(source)
    return bool(fits)


def _whole(kind: pa.DataType) -> int:
    return int(kind.precision - kind.scale)


def _struct(array: pa.StructArray, kind: pa.StructType, path: str, numbers: Numbers) -> pa.Array:
    names = [field.name for field in array.type]
    wanted = [kind.field(i) for i in range(kind.num_fields)]
    _refuse_strangers(names, [field.name for field in wanted], f"{path}.")
    valid = array.is_valid() if array.null_count else None
    children = []
    for field in wanted:
        inner = f"{path}.{field.name}"
        child = array.field(names.index(field.name)) if field.name in names else None
        if child is None:
            children.append(_nulls(len(array), field, inner))
        else:
            children.append(_child(child, field, valid, inner, numbers))
    buffer = None if valid is None else valid.buffers()[1]
    return pa.Array.from_buffers(kind, len(array), [buffer], null_count=array.null_count, children=children)


def _child(child: pa.Array, field: pa.Field, valid: pa.Array | None, path: str, numbers: Numbers) -> pa.Array:
    """Return one field of a struct, converted to `field`. Spark gives a null variant as a null struct, whose non-nullable binaries
    are null, too. Parquet's writer refuses nulls in these binaries, so this function makes them empty.
    """
    if valid is None or field.nullable or not child.null_count:
        return _conform(child, field.with_nullable(True) if valid is not None else field, path, numbers)
    import pyarrow.compute as pc  # imported late, because a process that only plans a read uses `arrow_schema` alone

    if pc.any(pc.and_(valid, child.is_null())).as_py():
        raise SchemaError(f"The column {path} holds nulls, but may not.", advice=_NO_NULLS)
    if pa.types.is_binary(child.type) or pa.types.is_large_binary(child.type):
        return _conform(child.fill_null(b""), field, path, numbers)
    return _conform(child, field.with_nullable(True), path, numbers)


def _has_variant(kind: pa.DataType) -> bool:
    """Return whether the type contains a variant, the only struct with non-nullable fields."""
    if pa.types.is_map(kind):
        return _has_variant(kind.key_type) or _has_variant(kind.item_type)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    strict = pa.types.is_struct(kind) and not all(field.nullable for field in fields)
    return strict or any(_has_variant(field.type) for field in fields)


def _list(array: pa.ListArray | pa.LargeListArray, kind: pa.ListType, path: str, numbers: Numbers) -> pa.Array:
    if pa.types.is_large_list(array.type):
        small = pa.list_(array.type.value_field)
        try:
            array = array.cast(small)
        except pa.ArrowException as error:
            raise SchemaError(
                f"The column {path} holds a list that is too long: {error}.", advice="Divide the rows into smaller batches."
            ) from error
    values = _conform(array.values, kind.value_field, f"{path}.element", numbers)
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], null_count=array.null_count, offset=array.offset, children=[values]
    )


def _map(array: pa.MapArray, kind: pa.MapType, path: str, numbers: Numbers) -> pa.Array:
    keys = _conform(array.keys, kind.key_field, f"{path}.key", numbers)
    items = _conform(array.items, kind.item_field, f"{path}.value", numbers)
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], null_count=array.null_count, offset=array.offset, children=[entries]
    )
