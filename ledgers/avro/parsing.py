"""Parsing of Avro schemas from JSON: references are resolved and defaults checked (Avro 1.12, Schema Declaration).

A schema that topic columns cannot express raises a SchemaError that names the column. Such a schema has a union that is not of null
and one type, a recursive record, a record without fields, or an alias of a field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro

from ledgers.avro.schema import (
    DECIMAL,
    NO_DEFAULT,
    Array,
    Enum,
    Extra,
    Field,
    Fixed,
    Map,
    Optional,
    Plain,
    Primitive,
    Record,
    Type,
    plain,
)
from ledgers.errors import SchemaError
from ledgers.json_text import read_json
from ledgers.limits import MAX_FIELDS, MAX_FIXED_BYTES, MAX_LEVELS, MAX_NAME, MAX_SCHEMA_BYTES
from ledgers.plain_text import harmful

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL: Final[Mapping[str, str]] = {
    "date": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "uuid": "string",
}
"""Supported logical types with their underlying type. In addition, decimals are supported on bytes and fixed. Other logical types
of Avro are refused. Logical types unknown to Avro are ignored, as Avro specifies.
"""
_REFUSED: Final[Mapping[str, str]] = {
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-nanos": "long",
    "duration": "fixed",
}
MAX_PRECISION: Final = 38


def parse(text: str | Mapping[str, Any]) -> Record:
    """Parse a record's schema. Raises SchemaError for text that is not an Avro schema, not a record, or has no columns."""
    try:
        found = read_json(text if isinstance(text, str) else json.dumps(dict(text)), most=MAX_SCHEMA_BYTES)
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaError(f"The Avro schema is not JSON: {error}.", advice="Give the text of an .avsc file.") from error
    if not isinstance(found, dict) or found.get("type") != "record":
        raise SchemaError(
            "The Avro schema is not a record.", advice='The rows of a topic are records: {"type": "record", "fields": ...}.'
        )
    parsing = _Parsing()
    try:
        fastavro.parse_schema(found, _write_hint=False)
        record = parsing.type(found, "", "", 0)
    except SchemaError:
        raise
    except Exception as error:  # for invalid schemas fastavro raises errors that share no base class
        raise SchemaError(
            f"This is not an Avro schema: {type(error).__name__}: {error!s:.500}.", advice="Give the text of an .avsc file."
        ) from error
    assert isinstance(record, Record)
    return record


class _Parsing:
    """Parser state. `named`: types by full name (None: incomplete). `sizes`: for each named type, how many types it consists of,
    nested types and itself included, and how many levels are nested in it.
    """

    def __init__(self) -> None:
        self.named: dict[str, Plain | None] = {}
        self.sizes: dict[str, tuple[int, int]] = {}

    def type(self, found: Any, path: str, namespace: str, level: int) -> Type:
        made = self._type(found, path, namespace, level)
        self._measure(made, path, level)
        return made

    def _measure(self, made: Type, path: str, level: int) -> None:
        """Refuse a schema whose columns would exceed memory or stack. Each named type can be used twice in the type above it, so
        the tree of all columns may be exponentially larger than the text of the schema.
        """
        size, levels = self._extent(made)
        if level + levels > MAX_LEVELS:
            raise SchemaError(f"The column {path:.200} has more than {MAX_LEVELS} levels.", advice="Write it flatter.")
        if size > MAX_FIELDS:
            where = f"The column {path:.200}" if path else "The Avro schema"
            raise SchemaError(
                f"{where} has more than {MAX_FIELDS} columns, nested ones included.", advice="Divide it among several topics."
            )

    def _extent(self, made: Type) -> tuple[int, int]:
        match plain(made):
            case Record(name=name) | Fixed(name=name) | Enum(name=name):
                return self.sizes[name]
            case Array(items=inner) | Map(values=inner):
                size, levels = self._extent(inner)
                return size + 1, levels + 1
        return 1, 0

    def _type(self, found: Any, path: str, namespace: str, level: int) -> Type:
        if isinstance(found, list):
            return self._union(found, path, namespace, level)
        if isinstance(found, str):
            if found in PRIMITIVES:
                return self._primitive(found, {}, path)
            return self._reference(found, path, namespace)
        kind = found["type"]
        if isinstance(kind, dict | list):  # a type wrapped in an object: {"type": {"type": "array", ...}}
            return self._type(kind, path, namespace, level)
        match kind:
            case "array":
                return Array(self.type(found["items"], _inside(path, "element"), namespace, level + 1), _extra(found, "items"))
            case "map":
                return Map(self.type(found["values"], _inside(path, "value"), namespace, level + 1), _extra(found, "values"))
            case "record" | "error":
                return self._record(found, path, namespace, level)
            case "enum" | "fixed":
                return self._named(found, path, namespace)
        if kind in PRIMITIVES:
            return self._primitive(kind, found, path)
        return self._reference(kind, path, namespace)

    def _union(self, found: list[Any], path: str, namespace: str, level: int) -> Optional:
        others = [one for one in found if one != "null" and one != {"type": "null"}]
        if len(found) != 2 or len(others) != 1:
            raise SchemaError(
                f"The column {path} is a union of {len(found)} types, which a topic's column cannot represent.",
                advice="Write a union of null and one type, or a column for each type.",
            )
        inner = self._type(others[0], path, namespace, level)
        if isinstance(inner, Optional):
            raise SchemaError(f"The column {path} is a union within a union, which Avro does not have.", advice="Write one union.")
        return Optional(inner, null_first=found[1] is others[0])

    def _reference(self, name: str, path: str, namespace: str) -> Plain:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = self.named.get(full, self.named.get(name))
        if known is None:
            raise SchemaError(
                f"The column {path} is a {name} within itself, which a column cannot represent.",
                advice="Write such values as bytes or as text, or nest them to a fixed depth.",
            )
        return known

    def _primitive(self, kind: str, found: Mapping[str, Any], path: str) -> Primitive:
        if kind == "null":
            raise SchemaError(f"The column {path} is of type null.", advice='Give it a type: ["null", "string"], for example.')
        logical, precision, scale = _logical(kind, found, path)
        return Primitive(kind, logical, precision, scale, _extra(found, *_LOGICAL_KEYS) if logical else _extra(found))

    def _named(self, found: Mapping[str, Any], path: str, namespace: str) -> Enum | Fixed:
        name, aliases = _full_name(found, namespace), _aliases(found)
        made: Enum | Fixed
        if found["type"] == "enum":
            extra = _extra(found, "name", "namespace", "aliases", "symbols", "default")
            symbols = found["symbols"]
            if not isinstance(symbols, list) or not symbols:
                raise SchemaError(f"The enum {name} has no symbols.", advice="Give at least one.")
            made = Enum(name, tuple(symbols), found.get("default"), aliases, extra)
        else:
            logical, precision, scale = _logical("fixed", found, path)
            extra = _extra(found, "name", "namespace", "aliases", "size", *(_LOGICAL_KEYS if logical else ()))
            size = found["size"]
            if type(size) is not int or not 1 <= size <= MAX_FIXED_BYTES:
                raise SchemaError(
                    f"The fixed {name} has {size!r:.100} bytes.", advice=f"Give a whole number from 1 to {MAX_FIXED_BYTES}."
                )
            made = Fixed(name, size, logical, precision, scale, aliases, extra)
        self.named[name], self.sizes[name] = made, (1, 0)
        return made

    def _record(self, found: Mapping[str, Any], path: str, namespace: str, level: int) -> Record:
        if level >= MAX_LEVELS:
            raise SchemaError(f"The column {path:.200} has more than {MAX_LEVELS} levels.", advice="Write it flatter.")
        name = _full_name(found, namespace)
        self.named[name] = None
        inner = name.rpartition(".")[0]
        fields: list[Field] = []
        known: set[str] = set()
        size, levels = 1, 0
        for one in found.get("fields", ()):
            own = _name(one, f"a field of {name:.200}")
            below = f"{path}.{own}" if path else own
            if own in known:
                raise SchemaError(f"The column {below:.200} occurs twice.", advice="Name each field of a record once.")
            known.add(own)
            if one.get("aliases"):
                raise SchemaError(
                    f"The column {below} has aliases, but a topic's columns keep their names.",
                    advice="Add a column of the new name, and keep the old one.",
                )
            kind = self.type(one["type"], below, inner, level + 1)
            inside = self._extent(kind)
            size, levels = size + inside[0], max(levels, inside[1] + 1)
            default = one.get("default", NO_DEFAULT)
            if default is not NO_DEFAULT:
                default_value(kind, default, below)
            fields.append(Field(own, kind, default, _extra(one, "name", "default", "aliases")))
        if not fields:
            where = f"The column {path}" if path else "The Avro schema"
            raise SchemaError(f"{where} is a record without fields.", advice="A topic needs columns: give it at least one.")
        extra = _extra(found, "name", "namespace", "aliases", "fields")
        made = Record(name, tuple(fields), _aliases(found), extra=extra)
        self.named[name], self.sizes[name] = made, (size, levels)
        return made


_LOGICAL_KEYS = ("logicalType", "precision", "scale")


def _extra(found: Mapping[str, Any], *known: str) -> Extra:
    return {key: value for key, value in found.items() if key != "type" and key not in known}


def _full_name(found: Mapping[str, Any], namespace: str) -> str:
    name = _name(found, "a type")
    space = found.get("namespace", namespace) or ""
    if not isinstance(space, str) or len(space) > MAX_NAME or harmful(space):
        raise SchemaError(f"The type {name} has the namespace {space!r:.100}.", advice="Give words with dots between them.")
    return name if "." in name or not space else f"{space}.{name}"


def _name(found: Any, what: str) -> str:
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or harmful(name):
        raise SchemaError(
            f"The Avro schema names {what} {name!r:.100}.",
            advice="Avro's names are letters, digits and underscores, no digit first.",
        )
    return name


def _aliases(found: Mapping[str, Any]) -> tuple[str, ...]:
    aliases = found.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise SchemaError(f"The type {found['name']} has the aliases {aliases!r:.100}.", advice="Give a list of names.")
    return tuple(aliases)


def _inside(path: str, part: str) -> str:
    return f"{path}.{part}"


def _logical(kind: str, found: Mapping[str, Any], path: str) -> tuple[str | None, int, int]:
    logical = str(found.get("logicalType", ""))
    if _REFUSED.get(logical) == kind:
        raise SchemaError(
            f"The column {path} is of the logical type {logical}, which a topic cannot store.",
            advice=f"Declare it {kind} without the logical type, or timestamp-micros, or a string.",
        )
    if logical != DECIMAL or kind not in ("bytes", "fixed"):
        return (logical if LOGICAL.get(logical) == kind else None), 0, 0
    precision, scale = found.get("precision"), found.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        raise SchemaError(f"The column {path} is a decimal of precision {precision} and scale {scale}.", advice="Give both.")
    if precision > MAX_PRECISION:
        raise SchemaError(
            f"The column {path} is a decimal of {precision} digits; the limit is {MAX_PRECISION}.",
            advice="Declare a smaller precision, or bytes without the logical type.",
        )
    return DECIMAL, precision, scale


# --- defaults -----------------------------------------------------------------------------------------------------

_RANGES: Final = {"int": 2**31, "long": 2**63}


def default_value(kind: Type, found: Any, path: str) -> Any:
    """Return a default as a value without logical types: bytes as bytes, maps as lists of pairs. Raises SchemaError if the default
    does not fit the type.
    """
    if isinstance(kind, Optional):
        return None if found is None else default_value(kind.type, found, path)
    value = _default(kind, found, path)
    if value is NO_DEFAULT:
        raise SchemaError(f"The default of the column {path} is {found!r}, which is not a value of its type.", advice="Correct it.")
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
