"""Avro schemas from JSON: every reference resolved, every default checked (Avro 1.12, Schema Declaration).

What the columns of a topic cannot express is a SchemaError that names the column: unions other than of null and one type,
records within themselves, records without fields, aliases of fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from ledgers.avro.schema import DECIMAL, NO_DEFAULT, Array, Enum, Extra, Field, Fixed, Map, Optional, Plain, Primitive, Record, Type
from ledgers.errors import SchemaError

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL: Final[Mapping[str, str]] = {
    "date": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "uuid": "string",
}
"""Logical types that columns have, with the type they stand on; decimals stand on bytes or fixed. Any other one that Avro defines
is refused; one that Avro does not define is ignored, as Avro says."""
_REFUSED: Final[Mapping[str, str]] = {
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-nanos": "long",
    "duration": "fixed",
}
MAX_PRECISION: Final = 38


def parse(text: str | Mapping[str, Any]) -> Record:
    """A record's schema from JSON. Raises SchemaError for what is no Avro schema, no record, or has no columns."""
    try:
        found = json.loads(text) if isinstance(text, str) else dict(text)
    except ValueError as error:
        raise SchemaError(f"The Avro schema is not JSON: {error}.", advice="Give the text of an .avsc file.") from error
    try:
        fastavro.parse_schema(found, _write_hint=False)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SchemaError(
            f"This is no Avro schema: {type(error).__name__}: {error}.", advice="Give the text of an .avsc file."
        ) from error
    if not isinstance(found, dict) or found.get("type") != "record":
        raise SchemaError(
            "The Avro schema is not a record.", advice='The rows of a topic are records: {"type": "record", "fields": ...}.'
        )
    record = _Parsing().type(found, "", "")
    assert isinstance(record, Record)
    return record


class _Parsing:
    """Named types by full name; None: begun and not complete."""

    def __init__(self) -> None:
        self.named: dict[str, Plain | None] = {}

    def type(self, found: Any, path: str, namespace: str) -> Type:
        if isinstance(found, list):
            return self._union(found, path, namespace)
        if isinstance(found, str):
            if found in PRIMITIVES:
                return self._primitive(found, {}, path)
            return self._reference(found, path, namespace)
        kind = found["type"]
        if isinstance(kind, dict | list):  # a type wrapped in an object: {"type": {"type": "array", ...}}
            return self.type(kind, path, namespace)
        match kind:
            case "array":
                return Array(self.type(found["items"], _inside(path, "element"), namespace), _extra(found, "items"))
            case "map":
                return Map(self.type(found["values"], _inside(path, "value"), namespace), _extra(found, "values"))
            case "record" | "error":
                return self._record(found, path, namespace)
            case "enum" | "fixed":
                return self._named(found, path, namespace)
        if kind in PRIMITIVES:
            return self._primitive(kind, found, path)
        return self._reference(kind, path, namespace)

    def _union(self, found: list[Any], path: str, namespace: str) -> Optional:
        others = [one for one in found if one != "null" and one != {"type": "null"}]
        if len(found) != 2 or len(others) != 1:
            raise SchemaError(
                f"The column {path} is a union of {len(found)} types, which a topic's column cannot be.",
                advice="Write a union of null and one type, or a column for each type.",
            )
        inner = self.type(others[0], path, namespace)
        assert not isinstance(inner, Optional), "Avro has no unions within unions"
        return Optional(inner, null_first=found[1] is others[0])

    def _reference(self, name: str, path: str, namespace: str) -> Plain:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = self.named.get(full, self.named.get(name))
        if known is None:
            raise SchemaError(
                f"The column {path} is a {name} within itself, which columns cannot be.",
                advice="Write such values as bytes or as text, or to a fixed depth.",
            )
        return known

    def _primitive(self, kind: str, found: Mapping[str, Any], path: str) -> Primitive:
        if kind == "null":
            raise SchemaError(f"The column {path} is of type null.", advice='Give it a type: ["null", "string"], for example.')
        logical, precision, scale = _logical(kind, found, path)
        return Primitive(kind, logical, precision, scale, _extra(found, *_LOGICAL_KEYS) if logical else _extra(found))

    def _named(self, found: Mapping[str, Any], path: str, namespace: str) -> Enum | Fixed:
        name, aliases = _full_name(found, namespace), tuple(found.get("aliases", ()))
        made: Enum | Fixed
        if found["type"] == "enum":
            extra = _extra(found, "name", "namespace", "aliases", "symbols", "default")
            made = Enum(name, tuple(found["symbols"]), found.get("default"), aliases, extra)
        else:
            logical, precision, scale = _logical("fixed", found, path)
            extra = _extra(found, "name", "namespace", "aliases", "size", *(_LOGICAL_KEYS if logical else ()))
            made = Fixed(name, found["size"], logical, precision, scale, aliases, extra)
        self.named[name] = made
        return made

    def _record(self, found: Mapping[str, Any], path: str, namespace: str) -> Record:
        name = _full_name(found, namespace)
        self.named[name] = None
        inner = name.rpartition(".")[0]
        fields = []
        for one in found.get("fields", ()):
            below = f"{path}.{one['name']}" if path else one["name"]
            if one.get("aliases"):
                raise SchemaError(
                    f"The column {below} has aliases, but a topic's columns keep their names.",
                    advice="Add a column of the new name, and keep the old one.",
                )
            kind = self.type(one["type"], below, inner)
            default = one.get("default", NO_DEFAULT)
            if default is not NO_DEFAULT:
                default_value(kind, default, below)
            fields.append(Field(one["name"], kind, default, _extra(one, "name", "default", "aliases")))
        if not fields:
            where = f"The column {path}" if path else "The Avro schema"
            raise SchemaError(f"{where} is a record without fields.", advice="A topic keeps columns: give it at least one.")
        extra = _extra(found, "name", "namespace", "aliases", "fields")
        made = Record(name, tuple(fields), tuple(found.get("aliases", ())), extra=extra)
        self.named[name] = made
        return made


_LOGICAL_KEYS = ("logicalType", "precision", "scale")


def _extra(found: Mapping[str, Any], *known: str) -> Extra:
    return {key: value for key, value in found.items() if key != "type" and key not in known}


def _full_name(found: Mapping[str, Any], namespace: str) -> str:
    name: str = found["name"]
    space = found.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _inside(path: str, part: str) -> str:
    return f"{path}.{part}"


def _logical(kind: str, found: Mapping[str, Any], path: str) -> tuple[str | None, int, int]:
    logical = str(found.get("logicalType", ""))
    if _REFUSED.get(logical) == kind:
        raise SchemaError(
            f"The column {path} is of the logical type {logical}, which a topic cannot keep.",
            advice=f"Declare it {kind} without the logical type, or timestamp-micros, or a string.",
        )
    if logical != DECIMAL or kind not in ("bytes", "fixed"):
        return (logical if LOGICAL.get(logical) == kind else None), 0, 0
    precision, scale = found.get("precision"), found.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        raise SchemaError(f"The column {path} is a decimal of precision {precision} and scale {scale}.", advice="Give both.")
    if precision > MAX_PRECISION:
        raise SchemaError(
            f"The column {path} is a decimal of {precision} digits; a topic keeps {MAX_PRECISION}.",
            advice="Declare a smaller precision, or bytes without the logical type.",
        )
    return DECIMAL, precision, scale


# --- defaults -----------------------------------------------------------------------------------------------------

_RANGES: Final = {"int": 2**31, "long": 2**63}


def default_value(kind: Type, found: Any, path: str) -> Any:
    """A default as a value without logical types: bytes as bytes, maps as lists of pairs. Raises SchemaError if it does not fit."""
    if isinstance(kind, Optional):
        return None if found is None else default_value(kind.type, found, path)
    value = _default(kind, found, path)
    if value is NO_DEFAULT:
        raise SchemaError(f"The default of the column {path} is {found!r}, which is no value of its type.", advice="Mend it.")
    return value


def _default(kind: Plain, found: Any, path: str) -> Any:
    match kind:
        case Primitive(kind="boolean") if isinstance(found, bool):
            return found
        case Primitive(kind="int" | "long" as name) if type(found) is int and -_RANGES[name] <= found < _RANGES[name]:
            return found
        case Primitive(kind="float" | "double") if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found)
        case Primitive(kind="string") if isinstance(found, str):
            return found
        case Primitive(kind="bytes") if isinstance(found, str) and found.isascii() | (max(map(ord, found), default=0) < 256):
            return found.encode("latin-1")
        case Fixed(size=size) if isinstance(found, str) and len(found) == size and max(map(ord, found), default=0) < 256:
            return found.encode("latin-1")
        case Enum(symbols=symbols) if found in symbols:
            return found
        case Array(items=items) if isinstance(found, list):
            return [default_value(items, one, _inside(path, "element")) for one in found]
        case Map(values=values) if isinstance(found, dict):
            return [(key, default_value(values, one, _inside(path, "value"))) for key, one in found.items()]
        case Record(fields=fields) if isinstance(found, dict):
            return {f.name: default_value(f.type, found.get(f.name, f.default), f"{path}.{f.name}") for f in fields}
    return NO_DEFAULT
