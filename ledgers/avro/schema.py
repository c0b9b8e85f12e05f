"""Avro schemas as a tree, and their JSON form (Avro 1.12, Schema Declaration). `ledgers.avro.parsing` parses JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from ledgers.errors import SchemaError

DECIMAL: Final = "decimal"
NO_DEFAULT: Final = object()

Extra: TypeAlias = Mapping[str, Any]
"""Other attributes of a declaration (documentation, custom properties): kept but not interpreted."""


@dataclass(frozen=True)
class Primitive:
    """A primitive type. `precision` and `scale` belong to a decimal."""

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    extra: Extra = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Fixed:
    name: str
    size: int
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    aliases: tuple[str, ...] = ()
    extra: Extra = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Enum:
    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()
    extra: Extra = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Array:
    items: Type
    extra: Extra = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Map:
    values: Type
    extra: Extra = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Field:
    """A field of a record. `default`: the default value in JSON form, or NO_DEFAULT."""

    name: str
    type: Type
    default: Any = NO_DEFAULT
    extra: Extra = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Record:
    """A record type. `name`: the full name. `derived`: whether it was made from a topic's columns, with a generated name."""

    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()
    derived: bool = False
    extra: Extra = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Optional:
    """A union of null and one type. `null_first`: whether null is the first of the two."""

    type: Plain
    null_first: bool = True


Plain: TypeAlias = "Primitive | Fixed | Enum | Array | Map | Record"
Type: TypeAlias = "Plain | Optional"


def plain(kind: Type) -> Plain:
    """Return the type without null."""
    return kind.type if isinstance(kind, Optional) else kind


def dump(record: Record) -> dict[str, Any]:
    """Return the schema in JSON form. Raises SchemaError if two different types have the same name."""
    made: dict[str, Any] = _dump(record, {})
    return made


def _dump(kind: Type, written: dict[str, Plain]) -> Any:
    match kind:
        case Optional():
            inner = _dump(kind.type, written)
            return ["null", inner] if kind.null_first else [inner, "null"]
        case Primitive(logical=None) if not kind.extra:
            return kind.kind
        case Primitive():
            return {"type": kind.kind, **_dump_logical(kind), **kind.extra}
        case Array():
            return {"type": "array", "items": _dump(kind.items, written), **kind.extra}
        case Map():
            return {"type": "map", "values": _dump(kind.values, written), **kind.extra}
    if kind.name in written:
        if written[kind.name] != kind:
            raise SchemaError(
                f"The type {kind.name} stands for two different types in one Avro schema.",
                advice="Register a schema with different names for them (txnsegment topics schema TOPIC --set FILE).",
            )
        return kind.name
    written[kind.name] = kind
    aliases = {"aliases": list(kind.aliases)} if kind.aliases else {}
    match kind:
        case Fixed():
            return {"type": "fixed", "name": kind.name, **aliases, "size": kind.size, **_dump_logical(kind), **kind.extra}
        case Enum():
            default = {} if kind.default is None else {"default": kind.default}
            return {"type": "enum", "name": kind.name, **aliases, "symbols": list(kind.symbols), **default, **kind.extra}
        case Record():
            return {
                "type": "record",
                "name": kind.name,
                **aliases,
                **kind.extra,
                "fields": [
                    {
                        "name": f.name,
                        "type": _dump(f.type, written),
                        **({} if f.default is NO_DEFAULT else {"default": f.default}),
                        **f.extra,
                    }
                    for f in kind.fields
                ],
            }


def _dump_logical(kind: Primitive | Fixed) -> dict[str, Any]:
    if kind.logical is None:
        return {}
    return {"logicalType": kind.logical} | ({"precision": kind.precision, "scale": kind.scale} if kind.logical == DECIMAL else {})


def bare(kind: Type, names: list[str]) -> Any:
    """Return the schema that determines the encoded bytes: without logical types and defaults. Each named type gets a generated
    unique name, which is appended to `names`.
    """
    match kind:
        case Optional():
            inner = bare(kind.type, names)
            return ["null", inner] if kind.null_first else [inner, "null"]
        case Primitive():
            return kind.kind
        case Array():
            return {"type": "array", "items": bare(kind.items, names)}
        case Map():
            return {"type": "map", "values": bare(kind.values, names)}
    names.append(f"t{len(names)}")
    head = {"name": names[-1]}
    match kind:
        case Fixed():
            return head | {"type": "fixed", "size": kind.size}
        case Enum():
            return head | {"type": "enum", "symbols": list(kind.symbols)}
        case Record():
            return head | {"type": "record", "fields": [{"name": f.name, "type": bare(f.type, names)} for f in kind.fields]}


def with_fields(record: Record, fields: list[Field]) -> Record:
    return replace(record, fields=tuple(fields))
