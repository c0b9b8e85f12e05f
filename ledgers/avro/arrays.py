"""Converts columns of plain Avro values (values without logical types) to topic columns and back: dates, timestamps, decimals, enum
symbols and nulls, at every depth.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ledgers.avro.parsing import default_value
from ledgers.avro.schema import NO_DEFAULT, Array, Enum, Field, Fixed, Map, Optional, Plain, Primitive, Record, Type, plain
from ledgers.limits import MAX_DECIMAL_BYTES

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_EXACT: Final = Context(prec=60)


class Unfit(Exception):
    """A value does not fit its schema or column. The text names the column and the reason."""


def _stored_type(kind: Type) -> pa.DataType:
    """Return the Arrow type of the plain values, without logical types."""
    kind = plain(kind)
    match kind:
        case Primitive():
            return _PRIMITIVES[kind.kind]
        case Fixed():
            return pa.binary()
        case Enum():
            return pa.string()
        case Array():
            return pa.list_(_stored_type(kind.items))
        case Map():
            return pa.map_(pa.string(), _stored_type(kind.values))
        case Record():
            return pa.struct([(f.name, _stored_type(f.type)) for f in kind.fields])


def array(values: list[Any], kind: Type) -> pa.Array:
    return pa.array([_pairs(value, kind) for value in values] if _has_map(kind) else values, _stored_type(kind))


def _has_map(kind: Type) -> bool:
    match plain(kind):
        case Map():
            return True
        case Array(items=items):
            return _has_map(items)
        case Record(fields=fields):
            return any(_has_map(f.type) for f in fields)
    return False


def _pairs(value: Any, kind: Type) -> Any:
    """Return a value with its maps as lists of pairs, which every pyarrow version accepts."""
    if value is None:
        return None
    match plain(kind):
        case Map(values=values):
            pairs = value.items() if isinstance(value, dict) else value
            return [(key, _pairs(one, values)) for key, one in pairs]
        case Array(items=items):
            return [_pairs(one, items) for one in value]
        case Record(fields=fields):
            return {f.name: _pairs(value[f.name], f.type) for f in fields}
    return value


def values(array: pa.Array, kind: Type, path: str) -> list[Any]:
    """Return the values of a column that `stored` made, in the form that fastavro encodes: each map is a dict. Raises Unfit for a
    duplicate key.
    """
    found: list[Any] = array.to_pylist()
    return [_dicts(value, kind, path) for value in found] if _has_map(kind) else found


def _dicts(value: Any, kind: Type, path: str) -> Any:
    if value is None:
        return None
    match plain(kind):
        case Map(values=inner):
            found = {key: _dicts(one, inner, f"{path}.value") for key, one in value}
            if len(found) != len(value):
                raise Unfit(f"the column {path} has a duplicate key")
            return found
        case Array(items=items):
            return [_dicts(one, items, f"{path}.element") for one in value]
        case Record(fields=fields):
            return {f.name: _dicts(value[f.name], f.type, f"{path}.{f.name}") for f in fields}
    return value


def default(field: Field, path: str, rows: int) -> pa.Array | None:
    """Return a column with the field's default in each of `rows` rows. Return None if the default is null or missing:
    `conform` fills such columns with nulls.
    """
    if field.default is NO_DEFAULT or field.default is None:
        return None
    value = default_value(field.type, field.default, path)
    return logical(array([value] * rows, field.type), field.type, path)


def logical(array: pa.Array, kind: Type, path: str) -> pa.Array:
    """Convert plain values to the column's logical type. Raises Unfit, pa.ArrowException."""
    kind = plain(kind)
    match kind:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return _decimals(array, kind.precision, kind.scale, path)
        case Primitive(logical="date"):
            return array.cast(pa.date32())
        case Primitive(logical=str() as moment) if "timestamp" in moment:
            zone = None if moment.startswith("local") else "UTC"
            unit = "ms" if moment.endswith("millis") else "us"
            return array.cast(pa.timestamp(unit, zone)).cast(pa.timestamp("us", zone))
        case Primitive() | Fixed() | Enum():
            return array
    return _nested(array, kind, path, logical)


def _decimals(array: pa.Array, precision: int, scale: int, path: str) -> pa.Array:
    most = 10**precision
    found: list[Decimal | None] = []
    for data in array.to_pylist():
        if data is not None and len(data) > MAX_DECIMAL_BYTES:
            raise Unfit(f"the column {path} has {len(data)} bytes, more than a decimal({precision},{scale}) takes")
        unscaled = None if data is None else int.from_bytes(data, "big", signed=True)
        if unscaled is not None and not -most < unscaled < most:
            raise Unfit(f"the column {path} has {len(str(abs(unscaled)))} digits, more than decimal({precision},{scale})")
        found.append(None if unscaled is None else Decimal(unscaled).scaleb(-scale, _EXACT))
    return pa.array(found, pa.decimal128(precision, scale))


def stored(array: pa.Array, kind: Type, path: str) -> pa.Array:
    """Convert a column's values to plain Avro values. Raises Unfit."""
    if array.null_count and not isinstance(kind, Optional):
        raise Unfit(f"the column {path} is null, which its schema does not allow")
    kind = plain(kind)
    match kind:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            size = kind.size if isinstance(kind, Fixed) else None
            return pa.array([_unscaled(value, kind.scale, size) for value in array.to_pylist()], pa.binary())
        case Primitive(logical="date"):
            return array.cast(pa.int32())
        case Primitive(logical="timestamp-micros" | "local-timestamp-micros"):
            return array.cast(pa.int64())
        case Primitive(logical="timestamp-millis" | "local-timestamp-millis"):
            return _floor_thousandth(array.cast(pa.int64()))
        case Enum():
            return _symbols(array, kind, path)
        case Fixed():
            lengths = set(pc.unique(pc.binary_length(array)).to_pylist()) - {None, kind.size}
            if lengths:
                raise Unfit(f"the column {path} has {lengths.pop()} bytes, not the {kind.size} of its fixed")
            return array
        case Primitive():
            return array
    return _nested(array, kind, path, stored)


def _unscaled(value: Decimal | None, scale: int, size: int | None) -> bytes | None:
    """Encode a decimal as bytes. `size`: the length of a value of Avro's type fixed. This length always suffices, because fastavro
    refuses a fixed that is too short for the decimal's precision. If `size` is None, the result has the fewest bytes that can
    represent the value.
    """
    if value is None:
        return None
    number = int(value.scaleb(scale, _EXACT))
    least = ((number if number >= 0 else -number - 1).bit_length() + 8) // 8
    return number.to_bytes(least if size is None else size, "big", signed=True)


def _floor_thousandth(array: pa.Array) -> pa.Array:
    cut = pc.divide(array, 1000)  # rounds towards zero
    return pc.subtract(cut, pc.less(pc.subtract(array, pc.multiply(cut, 1000)), 0).cast(pa.int64()))


def _symbols(array: pa.Array, kind: Enum, path: str) -> pa.Array:
    known = pc.or_kleene(pc.is_in(array, pa.array(kind.symbols, pa.string())), array.is_null())
    if pc.all(known).as_py() in (True, None):
        return array
    if kind.default is None:
        other = array.filter(pc.invert(known))[0].as_py()
        raise Unfit(f"the column {path} is {other!r:.100}, which is none of the symbols of {kind.name}")
    return pc.if_else(known, array, kind.default)


def filled(array: pa.Array, kind: Type, path: str) -> pa.Array:
    """Add the defaults of missing fields to one column (see `Codec.filled`). Only structs can lack a field."""
    kind = plain(kind)
    if isinstance(kind, Primitive | Fixed | Enum) or pa.types.is_null(array.type):
        return array
    return _nested(array, kind, path, filled, default)


def refuse_nulls(array: pa.Array, kind: Type, path: str) -> pa.Array:
    """Return the column unchanged. Raises Unfit for a null that the schema does not allow."""
    if array.null_count and not isinstance(kind, Optional):
        raise Unfit(f"the column {path} is null")
    kind = plain(kind)
    return array if isinstance(kind, Primitive | Fixed | Enum) else _nested(array, kind, path, refuse_nulls, refuse_missing)


def refuse_missing(field: Field, path: str, rows: int) -> None:
    if rows and not isinstance(field.type, Optional) and field.default is NO_DEFAULT:
        raise Unfit(f"the column {path} is missing")


# --- nested types -----------------------------------------------------------------------------------------------------

Each = Callable[[pa.Array, Type, str], pa.Array]
Missing = Callable[[Field, str, int], "pa.Array | None"]
"""Handles a record's field that a struct lacks: (field, path, number of rows) -> a column, or None."""


def _all_there(field: Field, path: str, rows: int) -> None:
    raise Unfit(f"the column {path} is missing")


def _nested(array: pa.Array, kind: Plain, path: str, each: Each, missing: Missing = _all_there) -> pa.Array:
    """Apply `each` to the children of a nested column. Values under a null parent are undefined, so they are removed before this.
    `missing` handles each field of a record that the column lacks.
    """
    match kind:
        case Array():
            return _list(array, lambda items: each(items, kind.items, f"{path}.element"))
        case Map():
            return _map(array, lambda items: each(items, kind.values, f"{path}.value"))
        case Record():
            return _struct(array, kind, path, each, missing)
    raise AssertionError(f"{kind} has no nested type")


def _list(array: pa.ListArray, of_items: Callable[[pa.Array], pa.Array]) -> pa.Array:
    items = array.flatten()
    made = of_items(items)
    if made is items:
        return array
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, made, mask=array.is_null() if array.null_count else None)


def _map(array: pa.MapArray, of_items: Callable[[pa.Array], pa.Array]) -> pa.Array:
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    lists = pa.Array.from_buffers(
        pa.list_(entries.type),
        len(array),
        array.buffers()[:2],
        null_count=array.null_count,
        offset=array.offset,
        children=[entries],
    )

    def of_entries(found: pa.StructArray) -> pa.Array:
        keys, items = found.field(0), found.field(1)
        made = of_items(items)
        return found if made is items else pa.StructArray.from_arrays([keys, made], ["key", "value"])

    made = _list(lists, of_entries)
    if made is lists:
        return array
    whole = pa.map_(array.type.key_type, made.type.value_type.field(1).type)
    pairs = pa.StructArray.from_arrays([made.values.field(0), made.values.field(1)], fields=[whole.key_field, whole.item_field])
    return pa.Array.from_buffers(whole, len(made), made.buffers()[:2], null_count=made.null_count, children=[pairs])


def _struct(array: pa.StructArray, kind: Record, path: str, each: Each, missing: Missing) -> pa.Array:
    names = [field.name for field in array.type]
    there = array.filter(array.is_valid()) if array.null_count else array
    children, changed = {name: there.field(index) for index, name in enumerate(names)}, False
    for field in kind.fields:
        below = f"{path}.{field.name}"
        child = children.get(field.name)
        made = missing(field, below, len(there)) if child is None else each(child, field.type, below)
        if made is not None and made is not child:
            children[field.name], changed = made, True
    if not changed:
        return array
    if not array.null_count:
        return pa.StructArray.from_arrays(list(children.values()), list(children))
    counted = pc.subtract(pc.cumulative_sum(array.is_valid().cast(pa.int64())), 1)
    places = pc.if_else(array.is_valid(), counted, pa.scalar(None, pa.int64()))
    return pa.StructArray.from_arrays([c.take(places) for c in children.values()], list(children), mask=array.is_null())
