"""The pictures of docs/architecture.md, as SVG, from tables of the code. docs/generate.py writes them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Set
from enum import StrEnum

from metadata.instream.txn_rules import TRANSITIONS
from metadata.rules.transitions import HEADER_TRANSITIONS

WIDE, HIGH, GAP, TOP = 210, 34, 12, 34


def _svg(width: int, height: int, label: str, inside: str) -> str:
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<style>
rect {{ fill: #eef3fb; stroke: #5b7db1 }}
text {{ font: 14px sans-serif; fill: #1c2a3f }}
.name {{ text-anchor: middle }}
.title {{ font-weight: bold }}
.arrow {{ stroke: #5b7db1; marker-end: url(#tip) }}
</style>
<marker id="tip" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#5b7db1"/>
</marker>
<path d="M0 0H{width}V{height}H0z" fill="#fff"/>
{inside}</svg>
"""


def _box(x: int, y: int, name: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="5"/>'
        f'<text x="{x + WIDE // 2}" y="{y + 22}" class="name">{name}</text>\n'
    )


def _title(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" class="title">{text}</text>\n'


def layers(project: str) -> dict[str, list[list[str]]]:
    """Return the import layers of pyproject.toml, from the top down: of the packages (under the name "") and of `metadata`."""
    contracts = tomllib.loads(project)["tool"]["importlinter"]["contracts"]
    found = {one["containers"][0] if "containers" in one else "": one["layers"] for one in contracts if one["type"] == "layers"}
    split = {name: [layer.split(" | ") for layer in found[name]] for name in ("", "metadata")}
    split[""][1].append("pyspark_txnsegment")  # no contract names this module, Spark's entry point
    return split


def layers_picture(project: str) -> str:
    """Return the picture of the import layers: a box imports only boxes below it."""
    packages, rooms = layers(project).values()
    half = (len(rooms) + 1) // 2
    inside = ""
    for column, stack, title in (
        (0, packages, "packages"),
        (2, rooms[:half], "rooms of metadata"),
        (3, rooms[half:], "and below these"),
    ):
        left = column * (WIDE + GAP) + GAP
        inside += _title(left, 20, title)
        for row, names in enumerate(stack):
            inside += "".join(_box(left + n * (WIDE + GAP), TOP + row * (HIGH + GAP), name) for n, name in enumerate(names))
    height = TOP + max(len(packages), half) * (HIGH + GAP)
    return _svg(4 * (WIDE + GAP) + GAP, height, "import layers", inside)


def states_picture() -> str:
    """Return the picture of the states of a transaction, of both models: each arrow is a transition that the rules allow."""
    inside, top = "", 0
    tables: tuple[tuple[str, Mapping[StrEnum, Set[StrEnum]]], ...] = (
        ("topic://: the header", HEADER_TRANSITIONS),
        ("persistent://: the transaction log", TRANSITIONS),
    )
    for title, table in tables:
        inside += _title(GAP, top + 20, title)
        steps = {before: sorted(after - {before}) for before, after in table.items()}  # staying in a state changes nothing
        column = dict.fromkeys(steps, 0)
        for before in steps:  # the tables name a state before those that follow it
            for after in steps[before]:
                column[after] = max(column[after], column[before] + 1)
        rows = {one: [state for state in steps if column[state] == column[one]].index(one) for one in steps}
        place = {one: (GAP + column[one] * (WIDE + 5 * GAP), top + TOP + rows[one] * (HIGH + GAP)) for one in steps}
        for before, (x, y) in place.items():
            inside += _box(x, y, str(before))
            for to_x, to_y in (place[after] for after in steps[before]):
                inside += f'<path d="M{x + WIDE} {y + HIGH // 2}L{to_x} {to_y + HIGH // 2}" class="arrow"/>\n'
        top += TOP + (max(rows.values()) + 1) * (HIGH + GAP) + GAP
    return _svg(3 * WIDE + 12 * GAP, top, "states of a transaction", inside)
