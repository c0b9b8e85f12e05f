"""Converts JSON objects to plain Avro values and back, in the forms that Pulsar's Java client (Jackson) writes and reads. Pure.

| Avro | JSON |
|---|---|
| boolean, int, long, float, double, string | boolean, number, number, number, number, string (NaN and infinities as strings) |
| bytes, fixed | base64 |
| enum | its symbol |
| decimal | number |
| date | [year, month, day] |
| timestamp | seconds since 1970 with a fraction |
| local timestamp | [year, month, day, hour, minute, second, nanoseconds] |
| array, map, record | list, object, object; fields that are null are left out |

When JSON is read, a date or time may also be text in ISO 8601, or a whole number in the unit of the logical type.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

from ledgers.avro.arrays import Unfit
from ledgers.avro.parsing import default_value
from ledgers.avro.schema import NO_DEFAULT, Array, Enum, Field, Fixed, Map, Optional, Plain, Primitive, Record, Type, plain
from ledgers.json_text import decimal_of

Read = Callable[[Any], Any]
Write = Callable[[Any], str]
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_RANGES: Final = {"int": 2**31, "long": 2**63}
_EXACT: Final = Context(prec=60)
_DAY: Final = 86_400_000_000
_text = json.encoder.encode_basestring


@dataclass(frozen=True, slots=True)
class Fraction:
    """The text of a number with a fraction or an exponent. A float would lose digits of it."""

    text: str


def needs_fractions(kind: Type) -> bool:
    """Return whether numbers with a fraction must be read as `Fraction`, not as floats, because a value needs all digits."""
    match plain(kind):
        case Primitive(logical=logical, kind=name):
            return logical is not None or name == "string"
        case Fixed(logical=logical):
            return logical is not None
        case Array(items=inner) | Map(values=inner):
            return needs_fractions(inner)
        case Record(fields=fields):
            return any(needs_fractions(field.type) for field in fields)
    return False


# --- JSON to values ---------------------------------------------------------------------------------------------------------


def reader(kind: Type, path: str) -> Read:
    """Return a function that converts a parsed JSON value of this type. The function raises an Unfit that names the field (`path`).
    It accepts null for every type, because every column may be null.
    """
    read = _reader(plain(kind), path)

    def of(found: Any) -> Any:
        if found is None:
            return None
        try:
            value = read(found)
        except (ValueError, OverflowError, TypeError, ArithmeticError) as error:
            raise Unfit(f"the field {path or 'of the row'} is {found!r:.100}: {error}") from error
        if value is None:
            raise Unfit(f"the field {path or 'of the row'} is {found!r:.100}, which is no {_named(plain(kind))}")
        return value

    return of


def _named(kind: Plain) -> str:
    return (kind.logical or kind.kind) if isinstance(kind, Primitive) else type(kind).__name__.lower()


def _reader(kind: Plain, path: str) -> Read:
    match kind:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return partial(_unscaled, precision=kind.precision, scale=kind.scale)
        case Primitive(logical="date"):
            return _date
        case Primitive(logical=str() as logical) if "timestamp" in logical:
            unit = 1000 if logical.endswith("millis") else 1_000_000
            local = logical.startswith("local")
            return lambda found: _timestamp(found, unit, local)
        case Primitive(kind="boolean"):
            return lambda found: found if isinstance(found, bool) else None
        case Primitive(kind="int" | "long" as name):
            most = _RANGES[name]
            return lambda found: found if type(found) is int and -most <= found < most else None
        case Primitive(kind="float" | "double"):
            return _float
        case Primitive(kind="bytes"):
            return _base64
        case Primitive():
            return _string
        case Fixed(size=size):
            return lambda found: data if len(data := _base64(found) or b"") == size else None
        case Enum(symbols=symbols, default=default):
            known = frozenset(symbols)
            return lambda found: found if isinstance(found, str) and found in known else default
        case Array(items=items):
            of_item = reader(items, f"{path}.element")
            return lambda found: [of_item(one) for one in found] if isinstance(found, list) else None
        case Map(values=inner):
            of_value = reader(inner, f"{path}.value")
            return lambda found: [(key, of_value(one)) for key, one in found.items()] if isinstance(found, dict) else None
        case Record(fields=fields):
            return _record(fields, path)


def _record(fields: tuple[Field, ...], path: str) -> Read:
    parts = [_part(field, f"{path}.{field.name}" if path else field.name) for field in fields]

    def read(found: Any) -> Any:
        if not isinstance(found, dict):
            return None
        return {name: of(found[name]) if name in found else default for name, of, default in parts}

    return read


def _part(field: Field, path: str) -> tuple[str, Read, Any]:
    default = None if field.default is NO_DEFAULT else default_value(field.type, field.default, path)
    return field.name, reader(field.type, path), default


def _float(found: Any) -> float | None:
    if isinstance(found, str):
        return float(found) if found in ("NaN", "Infinity", "-Infinity") else None
    if isinstance(found, bool) or not isinstance(found, int | float | Fraction):
        return None
    number = float(found.text if isinstance(found, Fraction) else found)
    if not math.isfinite(number):
        raise ValueError("it is too large")
    return number


def _base64(found: Any) -> bytes | None:
    if not isinstance(found, str):
        return None
    try:
        return base64.b64decode(found, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64 ({error})") from error


def _string(found: Any) -> str | None:
    """Return the text of a JSON string or number. Numbers are accepted, because Java's BigDecimal and BigInteger are strings in
    Avro and numbers in JSON.
    """
    if isinstance(found, str):
        return found
    if isinstance(found, Fraction):
        return found.text
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else None


def _unscaled(found: Any, precision: int, scale: int) -> bytes | None:
    if isinstance(found, bool) or not isinstance(found, int | Fraction | str):
        return None
    number = decimal_of(found.text if isinstance(found, Fraction) else str(found)).scaleb(scale, _EXACT)
    if number != number.to_integral_value() or abs(number) >= 10**precision:
        raise ValueError(f"it does not fit decimal({precision},{scale})")
    whole = int(number)
    return whole.to_bytes((whole.bit_length() + 8) // 8, "big", signed=True)


def _date(found: Any) -> int | None:
    match found:
        case bool():
            return None
        case int() if -(2**31) <= found < 2**31:
            return found
        case [int() as year, int() as month, int() as day]:
            return datetime.date(year, month, day).toordinal() - _EPOCH
        case str():
            return datetime.date.fromisoformat(found).toordinal() - _EPOCH
    return None


def _timestamp(found: Any, unit: int, local: bool) -> int | None:
    """Return how many units have passed since 1970. `unit`: how many units a second has."""
    micros: int
    match found:
        case bool():
            return None
        case int():
            return found if -(2**63) <= found < 2**63 else None
        case Fraction():
            return int((decimal_of(found.text) * unit).to_integral_value("ROUND_FLOOR"))
        case [int() as year, int() as month, int() as day, int() as hour, int() as minute, *rest] if local and len(rest) <= 2:
            second, nanos = [*rest, 0, 0][:2]
            micros = _micros(datetime.datetime(year, month, day, hour, minute, second), local) + nanos // 1000
        case str():
            micros = _micros(datetime.datetime.fromisoformat(found), local)
        case _:
            return None
    return micros // (1_000_000 // unit)


def _micros(moment: datetime.datetime, local: bool) -> int:
    if local != (moment.tzinfo is None):
        raise ValueError("it has a time zone" if local else "it has no time zone")
    gap = moment - datetime.datetime(1970, 1, 1, tzinfo=None if local else datetime.UTC)
    return gap // datetime.timedelta(microseconds=1)


# --- values to JSON ---------------------------------------------------------------------------------------------------------


def writer(kind: Type) -> Write:
    """Return a function that writes a plain Avro value of this type as JSON."""
    if isinstance(kind, Optional):
        write = _writer(kind.type)
        return lambda value: "null" if value is None else write(value)
    return _writer(kind)


def _writer(kind: Plain) -> Write:
    match kind:
        case Primitive(logical="decimal", scale=scale) | Fixed(logical="decimal", scale=scale):
            return lambda value: f"{Decimal(int.from_bytes(value, 'big', signed=True)).scaleb(-scale, _EXACT):f}"
        case Primitive(logical="date"):
            return _write_date
        case Primitive(logical=str() as logical) if "timestamp" in logical:
            factor = 1000 if logical.endswith("millis") else 1
            write = _write_local if logical.startswith("local") else _write_seconds
            return lambda value: write(value * factor)
        case Primitive(kind="boolean"):
            return lambda value: "true" if value else "false"
        case Primitive(kind="int" | "long"):
            return str
        case Primitive(kind="float" | "double"):
            return _write_float
        case Primitive(kind="bytes") | Fixed():
            return lambda value: f'"{base64.b64encode(value).decode()}"'
        case Primitive() | Enum():
            return _text
        case Array(items=items):
            item = writer(items)
            return lambda value: f"[{','.join([item(one) for one in value])}]"
        case Map(values=inner):
            of = writer(inner)
            return lambda value: f"{{{','.join([f'{_text(key)}:{of(one)}' for key, one in value.items()])}}}"
        case Record(fields=fields):
            parts = [(field.name, f"{_text(field.name)}:", _writer(plain(field.type))) for field in fields]
            return lambda value: (
                f"{{{','.join([head + write(value[name]) for name, head, write in parts if value[name] is not None])}}}"
            )


def _write_float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _write_seconds(micros: int) -> str:
    sign, most = ("-", -micros) if micros < 0 else ("", micros)
    return f"{sign}{most // 1_000_000}.{most % 1_000_000:06d}000"


def _write_date(days: int) -> str:
    try:
        day = datetime.date.fromordinal(days + _EPOCH)
    except (ValueError, OverflowError):
        return str(days)
    return f"[{day.year},{day.month},{day.day}]"


def _write_local(micros: int) -> str:
    days, rest = divmod(micros, _DAY)
    date = _write_date(days)
    if not date.startswith("["):
        raise Unfit(f"a local timestamp is {days} days from 1970, outside the years 1 to 9999")
    seconds, fraction = divmod(rest, 1_000_000)
    return f"{date[:-1]},{seconds // 3600},{seconds // 60 % 60},{seconds % 60},{fraction * 1000}]"
