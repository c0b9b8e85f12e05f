"""Objects as small HTML tables, for notebooks (`_repr_html_`). All text is escaped."""

from __future__ import annotations

import dataclasses
import datetime
import html
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from ledgers import plain_text

MOST_ROWS: Final = 100
"""How many rows a table shows at most."""
_END_MS: Final = 253_402_300_800_000
"""The end of the year 9999, in ms since 1970."""


class Shown:
    """A dataclass that a notebook shows as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return described(self)


def described(value: Any) -> str:
    """Return a dataclass as HTML: a table of its fields, and a table for each field that lists dataclasses."""
    facts, tables = [], []
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        if isinstance(found, tuple) and found and dataclasses.is_dataclass(found[0]):
            names = [inner.name for inner in dataclasses.fields(found[0])]
            rows = [[_shown(name, getattr(one, name)) for name in names] for one in found]
            tables.append(table([_title(name) for name in names], rows))
        else:
            facts.append((_title(field.name), _shown(field.name, found)))
    return table((), facts) + "".join(tables)


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of at most `MOST_ROWS` rows. Without a heading the first cell of each row is the name of the second."""
    given = list(rows)
    lines = [_line("th", heading)] if heading else []
    for row in given[:MOST_ROWS]:
        lines.append(_line("td", row) if heading else f"<tr><th>{_escaped(row[0])}</th>{_cells('td', row[1:])}</tr>")
    if len(given) > MOST_ROWS:
        lines.append(_line("td", [f"and {len(given) - MOST_ROWS} more"]))
    return f"<table>{''.join(lines)}</table>"


def columns(schema: Any) -> str:
    """Return the columns of a Spark schema as text, such as `id bigint, name string`; "none yet" for None."""
    return "none yet" if schema is None else ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)


def _line(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{_cells(tag, cells)}</tr>"


def _cells(tag: str, cells: Sequence[object]) -> str:
    return "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells)


def _escaped(value: object) -> str:
    return "" if value is None else html.escape(plain_text.shown(str(value)))


def _title(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _shown(name: str, value: Any) -> object:
    """Return the value of a field as text. Times in ms become UTC, and schemas a list of columns."""
    if name.endswith("_ms") and isinstance(value, int) and 0 < value < _END_MS:
        return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if hasattr(value, "fieldNames"):
        return columns(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return ", ".join(
            f"{_title(field.name)} {_shown(field.name, getattr(value, field.name))}" for field in dataclasses.fields(value)
        )
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown('', one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(str(_shown("", one)) for one in value)
    return value
