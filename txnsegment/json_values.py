"""Values as JSON represents them, and back: `plain` and `parsed` are the inverse of each other."""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from decimal import Decimal
from typing import Any, Self

from pyspark.sql import types as T

from ledgers.json_text import decimal_of


def plain(value: Any, kind: T.DataType) -> Any:
    """Return a value as JSON represents it: binaries in base64; decimals, times and intervals as text; maps as objects if their
    keys are text.
    """
    if value is None:
        return None
    match kind:
        case T.StructType():
            return {field.name: plain(value[field.name], field.dataType) for field in kind}
        case T.ArrayType():
            return [plain(one, kind.elementType) for one in value]
        case T.MapType():
            pairs = [(plain(k, kind.keyType), plain(v, kind.valueType)) for k, v in value]
            return dict(pairs) if isinstance(kind.keyType, T.StringType) else [{"key": k, "value": v} for k, v in pairs]
        case T.VariantType():
            return json.loads(T.VariantVal(value["value"], value["metadata"]).toJson())
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal() | datetime.timedelta():
            return str(value)
        case datetime.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case datetime.date():
            return value.isoformat()
    return value


class Fraction(float):
    """A number of JSON with a fraction or an exponent, which remembers its text: a decimal has more digits than a float."""

    def __new__(cls, text: str) -> Self:
        found = super().__new__(cls, text)
        if not math.isfinite(found):
            raise ValueError(f"the number {text:.30} is too large for a float")
        found.text = text
        return found

    text: str


_MOST_FLOAT = 3.4028234663852886e38
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_INTERVAL = re.compile(r"(?:(-?[0-9]+) days?, )?(-?)([0-9]+):([0-9]{2}):([0-9]{2}(?:\.[0-9]{1,6})?)", re.ASCII)


def parsed(value: Any, kind: T.DataType) -> Any:
    """Return the value of a column, as pyarrow takes it, from its JSON form. Raises ValueError for a value of another type."""
    if value is None:
        return None
    match kind:
        case T.StructType():
            unknown = _of(value, dict).keys() - set(kind.fieldNames())
            if unknown:
                raise ValueError(f"there is no field {sorted(unknown)[0]}")
            return {field.name: parsed(value.get(field.name), field.dataType) for field in kind}
        case T.ArrayType():
            return [parsed(one, kind.elementType) for one in _of(value, list)]
        case T.MapType() if isinstance(kind.keyType, T.StringType):
            return [(k, parsed(v, kind.valueType)) for k, v in _of(value, dict).items()]
        case T.MapType():
            pairs = [_of(one, dict) for one in _of(value, list)]
            return [(parsed(one["key"], kind.keyType), parsed(one["value"], kind.valueType)) for one in pairs]
        case T.VariantType():
            variant = T.VariantVal.parseJson(json.dumps(value))
            return {"value": variant.value, "metadata": variant.metadata}
        case T.BooleanType():
            return _of(value, bool)
        case T.StringType():
            return _of(value, str)
        case T.BinaryType():
            return base64.b64decode(_of(value, str), validate=True)
        case T.DateType():
            return datetime.date.fromisoformat(_of(value, str))
        case T.TimestampType() | T.TimestampNTZType():
            return _moment(_of(value, str), zoned=isinstance(kind, T.TimestampType))
        case T.DayTimeIntervalType():
            return _interval(_of(value, str))
        case T.DecimalType():
            return _decimal(value)
        case T.FloatType() | T.DoubleType():
            found = float(value) if value in ("nan", "inf", "-inf") else float(_of(value, int, float))
            if isinstance(kind, T.FloatType) and math.isfinite(found) and abs(found) > _MOST_FLOAT:
                raise ValueError(f"{value!r:.100} is too large")
            return found
    if isinstance(kind, _INTEGERS):
        return _of(value, int)
    raise ValueError(f"values of the type {kind.simpleString()} have no JSON form")


def _of(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{value!r:.100} is {type(value).__name__}, not {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def _moment(text: str, *, zoned: bool) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    if (found.tzinfo is not None) is not zoned:
        raise ValueError(f"{text!r} has {'no time zone, and needs one' if zoned else 'a time zone, but the column has none'}")
    return found


def _interval(text: str) -> datetime.timedelta:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.100} is no interval such as '1 day, 2:03:04.5'")
    days, sign, hours, minutes, seconds = found.groups()
    time = datetime.timedelta(hours=int(hours), minutes=int(minutes), microseconds=int(Decimal(seconds) * 1_000_000))
    return datetime.timedelta(days=int(days or 0)) + (-time if sign else time)


def _decimal(value: Any) -> Decimal:
    try:
        return decimal_of(value.text if isinstance(value, Fraction) else str(_of(value, int, float, str)))  # bounded: Arrow is not
    except ArithmeticError as error:
        raise ValueError(f"{value!r:.100} is no decimal") from error
