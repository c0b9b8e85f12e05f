"""Compatibility of Avro schemas: Avro's rules of schema resolution, in the modes of Confluent and Pulsar. Pure.

The check is stricter than Avro in one point: logical types must agree, because many programs would misread values of another
logical type. Only the precision of a decimal may grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledgers.avro.modes import Compatibility
from ledgers.avro.schema import DECIMAL, NO_DEFAULT, Array, Enum, Fixed, Map, Optional, Plain, Primitive, Record, Type
from ledgers.errors import SchemaError

_PROMOTED: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
"""The promotions of Avro's schema resolution, as pairs of the written type and the type by which it may be read."""


def check(mode: Compatibility, new: Record, earlier: Sequence[tuple[int, Record]]) -> None:
    """Check a new schema against the earlier versions, newest first. Raises SchemaError that names the version and the columns."""
    for version, old in earlier if mode.transitive else earlier[:1]:
        found = []
        if mode.reads_old:
            found += [f"it cannot read what version {version} wrote: {problem}" for problem in problems(new, old)]
        if mode.read_by_old:
            found += [f"version {version} cannot read what it writes: {problem}" for problem in problems(old, new)]
        if found:
            raise SchemaError(
                f"The schema is not compatible ({mode}) with version {version}: {'; '.join(found[:20])}.",
                advice="Give new columns a default, widen types only, or choose another mode (--compatibility).",
            )


def problems(reader: Type, writer: Type, path: str = "") -> list[str]:
    """Return the reasons why values of `writer` cannot be read as `reader`, by column. The result is empty if all values can be
    read.
    """
    if isinstance(writer, Optional):
        if isinstance(reader, Optional):
            return problems(reader.type, writer.type, path)
        return [f"{_named(path)} may be null", *problems(reader, writer.type, path)]
    if isinstance(reader, Optional):
        return problems(reader.type, writer, path)
    match reader, writer:
        case Record(), Record():
            return [*_names(reader, writer, path), *_fields(reader, writer, path)]
        case Array(), Array():
            return problems(reader.items, writer.items, f"{path}.element")
        case Map(), Map():
            return problems(reader.values, writer.values, f"{path}.value")
        case Enum(), Enum():
            known = frozenset(reader.symbols)
            lost = [s for s in writer.symbols if s not in known] if reader.default is None else []
            unknown = [f"{_named(path)} may be {', '.join(lost[:10])}, which is none of its symbols"] if lost else []
            return [*_names(reader, writer, path), *unknown]
        case Fixed(), Fixed():
            size = [f"{_named(path)} has {writer.size} bytes, not {reader.size}"] if reader.size != writer.size else []
            return [*_names(reader, writer, path), *size, *_logical(reader, writer, path)]
        case Primitive(), Primitive():
            if reader.kind != writer.kind and (writer.kind, reader.kind) not in _PROMOTED:
                return [_types(reader, writer, path)]
            return _logical(reader, writer, path)
    return [_types(reader, writer, path)]


def _fields(reader: Record, writer: Record, path: str) -> list[str]:
    written = {f.name: f for f in writer.fields}
    found = []
    for field in reader.fields:
        below = f"{path}.{field.name}" if path else field.name
        if field.name in written:
            found += problems(field.type, written[field.name].type, below)
        elif field.default is NO_DEFAULT:
            found.append(f"{_named(below)} is not there and has no default")
    return found


def _names(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed, path: str) -> list[str]:
    """Compare names without namespaces, as Avro does. The generated name of a derived schema fits every name."""
    if (isinstance(reader, Record) and reader.derived) or (isinstance(writer, Record) and writer.derived):
        return []
    short = writer.name.rpartition(".")[2]
    if short == reader.name.rpartition(".")[2] or writer.name in reader.aliases or short in reader.aliases:
        return []
    return [f"{_named(path)} is of the type {writer.name}, not {reader.name}"]


def _logical(reader: Primitive | Fixed, writer: Primitive | Fixed, path: str) -> list[str]:
    if reader.logical == writer.logical == DECIMAL and reader.scale == writer.scale and reader.precision >= writer.precision:
        return []
    if reader.logical != DECIMAL and reader.logical == writer.logical:
        return []
    return [_types(reader, writer, path)]


def _types(reader: Plain, writer: Plain, path: str) -> str:
    return f"{_named(path)} is {_shown(writer)}, not {_shown(reader)}"


def _shown(kind: Plain) -> str:
    match kind:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return f"decimal({kind.precision},{kind.scale})"
        case Primitive():
            return kind.logical or kind.kind
    return type(kind).__name__.lower()


def _named(path: str) -> str:
    return f"the column {path}" if path else "the row"
