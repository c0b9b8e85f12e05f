"""Parses Spark's schema JSON in records and manifests. Types that a topic cannot store, or that import code, are refused."""

from __future__ import annotations

import re
from typing import Any, Final

from pyspark.sql.types import StructType

from ledgers.errors import SchemaError
from ledgers.json_text import read_json
from ledgers.schema import check_types

_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*-?([0-9]{1,9})\s*\)")


def columns_from_json(text: str) -> StructType:
    """Parse the columns. Raises ValueError for text that is not Spark's JSON of a struct that a topic can store."""
    found = read_json(text)
    _check_type(found)
    if not isinstance(found, dict) or found["type"] != "struct":
        raise ValueError("the columns are not a struct")
    try:
        columns = StructType.fromJson(found)
        check_types(columns)
    except SchemaError as error:
        raise ValueError(error.message) from error
    except Exception as error:  # for unknown types PySpark raises errors that share no base class
        raise ValueError(f"Spark cannot read these columns: {type(error).__name__}: {error}") from error
    return columns


def _check_type(found: Any) -> None:
    """Raise ValueError for an unknown type. User-defined types are refused, because PySpark would import the module that the JSON
    names.
    """
    match found:
        case str():
            decimal = _DECIMAL.fullmatch(found)
            if decimal is not None and not int(decimal[2]) <= int(decimal[1]) <= 38:
                raise ValueError(f"{found} is not a column type")
        case {"type": "struct", "fields": [*fields]}:
            for field in fields:
                match field:
                    case {"name": str(), "type": kind} if isinstance(field.get("metadata") or {}, dict):
                        _check_type(kind)
                    case _:
                        raise ValueError(f"{field!r:.100} is not a field of a struct")
        case {"type": "array", "elementType": kind}:
            _check_type(kind)
        case {"type": "map", "keyType": keys, "valueType": values}:
            _check_type(keys)
            _check_type(values)
        case _:
            raise ValueError(f"{found!r:.100} is not a column type")
