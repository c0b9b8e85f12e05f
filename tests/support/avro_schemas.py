"""Random Avro schemas, random values of a schema, and random changes to a schema, for property tests."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d", "e")
_PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
_MOMENTS = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")


class Names:
    """A source of unused type names."""

    def __init__(self) -> None:
        self.given = itertools.count()

    def next(self) -> str:
        return f"n{next(self.given)}"


@st.composite
def decimals(draw: st.DrawFn, names: Names) -> dict[str, Any]:
    size = draw(st.sampled_from([None, 2, 9, 16]))
    digits = draw(st.integers(1, {None: 38, 2: 4, 9: 21, 16: 38}[size]))
    head = {"type": "bytes"} if size is None else {"type": "fixed", "name": names.next(), "size": size}
    return head | {"logicalType": "decimal", "precision": digits, "scale": draw(st.integers(0, digits))}


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int, *, logical: bool) -> Any:
    kinds = ["plain"] * 3 + ["optional"] * 2 + ["enum", "fixed"]
    kinds += ["logical"] * 2 if logical else []
    kinds += ["array", "map", "record"] if depth else []
    match draw(st.sampled_from(kinds)):
        case "plain":
            return draw(st.sampled_from(_PLAIN))
        case "optional":
            inner = draw(types(names, depth, logical=logical).filter(lambda t: not isinstance(t, list)))
            return draw(st.sampled_from([["null", inner], [inner, "null"]]))
        case "enum":
            return {"type": "enum", "name": names.next(), "symbols": draw(st.sampled_from([["X"], ["X", "Y"], ["Z", "X", "Y"]]))}
        case "fixed":
            return {"type": "fixed", "name": names.next(), "size": draw(st.integers(1, 4))}
        case "array":
            return {"type": "array", "items": draw(types(names, depth - 1, logical=logical))}
        case "map":
            return {"type": "map", "values": draw(types(names, depth - 1, logical=logical))}
        case "record":
            return draw(records(names, depth - 1, logical=logical))
    one = draw(st.sampled_from(["decimal", "date", "uuid", *_MOMENTS]))
    if one == "decimal":
        return draw(decimals(names))
    return {"type": {"date": "int", "uuid": "string"}.get(one, "long"), "logicalType": one}


@st.composite
def records(draw: st.DrawFn, names: Names | None = None, depth: int = 2, *, logical: bool = True) -> dict[str, Any]:
    names = names or Names()
    name = names.next()
    chosen = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    fields = [{"name": field, "type": draw(types(names, depth, logical=logical))} for field in chosen]
    return {"type": "record", "name": name, "fields": fields}


_MICROS = st.integers(-(2**53), 2**53)
_TWO_SPELLINGS = frozenset(-(1 << bits) for bits in range(7, 128, 8))
"""Unscaled decimals (-128, -32768, ..) that fastavro writes with one byte too many. Our codec does not write that byte."""


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of the schema, in the form that the writer of fastavro takes."""
    if isinstance(kind, list):
        return st.one_of(*(st.none() if one == "null" else values(one) for one in kind))
    name = kind if isinstance(kind, str) else kind["type"]
    logical = None if isinstance(kind, str) else kind.get("logicalType")
    if logical == "decimal":
        most = 10 ** kind["precision"] - 1
        numbers = st.integers(-most, most)
        if name == "bytes":
            numbers = numbers.filter(lambda n: n not in _TWO_SPELLINGS)
        return numbers.map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind["scale"])))
    if logical == "date":
        return st.dates()
    if logical is not None and "timestamp" in logical:
        zone = None if logical.startswith("local") else datetime.UTC
        step = 1000 if logical.endswith("millis") else 1
        begin = datetime.datetime(1970, 1, 1, tzinfo=zone)
        return _MICROS.map(lambda n: begin + datetime.timedelta(microseconds=n - n % step))
    if logical == "uuid":
        return st.uuids()
    match name:
        case "boolean":
            return st.booleans()
        case "int":
            return st.integers(-(2**31), 2**31 - 1)
        case "long":
            return st.integers(-(2**63), 2**63 - 1)
        case "float":
            return st.floats(width=32, allow_nan=False)
        case "double":
            return st.floats(allow_nan=False)
        case "bytes":
            return st.binary(max_size=6)
        case "string":
            return st.text(max_size=6)
        case "fixed":
            return st.binary(min_size=kind["size"], max_size=kind["size"])
        case "enum":
            return st.sampled_from(kind["symbols"])
        case "array":
            return st.lists(values(kind["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=3), values(kind["values"]), max_size=3)
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in kind["fields"]})


def witnesses(kind: Any) -> list[Any]:
    """Return values that together use every branch, symbol and field. A schema that can read all of them can read every value of
    this schema.
    """
    if isinstance(kind, list):
        return [found for one in kind for found in ([None] if one == "null" else witnesses(one))]
    match kind if isinstance(kind, str) else kind["type"]:
        case "boolean":
            return [True]
        case "int" | "long":
            return [1]
        case "float" | "double":
            return [1.5]
        case "bytes":
            return [b"x"]
        case "string":
            return ["x"]
        case "fixed":
            return [b"x" * kind["size"]]
        case "enum":
            return list(kind["symbols"])
        case "array":
            return [[one] for one in witnesses(kind["items"])]
        case "map":
            return [{"k": one} for one in witnesses(kind["values"])]
    by_field = {field["name"]: witnesses(field["type"]) for field in kind["fields"]}
    first = {name: found[0] for name, found in by_field.items()}
    return [first | {name: one} for name, found in by_field.items() for one in found]


_DEFAULTS: dict[str, Any] = {"boolean": True, "int": 7, "long": 7, "float": 1.5, "double": 1.5, "bytes": "x", "string": "x"}


@st.composite
def changed(draw: st.DrawFn, kind: Any) -> Any:
    """Return a schema that differs from this one in few places, or not at all."""
    if isinstance(kind, list):
        inner = next(one for one in kind if one != "null")
        made = draw(changed(inner))
        return draw(st.sampled_from([kind, [made, "null"] if made != "null" and not isinstance(made, list) else kind, made]))
    if isinstance(kind, str):
        return draw(st.sampled_from([kind, kind, ["null", kind], "int", "long", "double", "string", "bytes"]))
    match kind["type"]:
        case "enum":
            symbols = draw(st.lists(st.sampled_from(["X", "Y", "Z"]), min_size=1, unique=True))
            default = draw(st.sampled_from([{}, {"default": symbols[0]}]))
            return kind | {"symbols": symbols, "name": draw(_name(kind["name"]))} | default
        case "fixed":
            return kind | {"size": draw(st.sampled_from([kind["size"], 3])), "name": draw(_name(kind["name"]))}
        case "array":
            return kind | {"items": draw(changed(kind["items"]))}
        case "map":
            return kind | {"values": draw(changed(kind["values"]))}
    fields = []
    for field in kind["fields"]:
        match draw(st.sampled_from(["same", "same", "change", "drop"])):
            case "same":
                fields.append(field)
            case "change":
                fields.append(field | {"type": draw(changed(field["type"]))})
    free = [name for name in NAMES if name not in {f["name"] for f in kind["fields"]}]
    for name in draw(st.lists(st.sampled_from(free), max_size=1)) if free else []:
        new = draw(st.sampled_from(_PLAIN))
        fields.append({"name": name, "type": new, **draw(st.sampled_from([{}, {"default": _DEFAULTS[new]}]))})
    return kind | {"fields": fields or kind["fields"], "name": draw(_name(kind["name"]))}


def _name(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([name] * 9 + [f"{name}x"])
