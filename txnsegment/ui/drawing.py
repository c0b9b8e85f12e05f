"""Small charts as SVG, drawn on the server. Colours come from the style sheet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from txnsegment.formats import duration

WIDTH, HEIGHT = 360, 110
_LEFT, _TOP, _RIGHT, _BOTTOM = 4, 24, 356, 92


class Line(NamedTuple):
    """A line of a chart. `points`: (time in ms, value), ascending by time. A value of None interrupts the line."""

    name: str
    points: Sequence[tuple[int, float | None]]


def chart(title: str, lines: Sequence[Line], text: Callable[[float], str]) -> str:
    """Return a chart of one or two lines over time. `text`: writes a value, with its unit."""
    known = [(at, value) for line in lines for at, value in line.points if value is not None]
    ats = [at for line in lines for at, _ in line.points]
    top = max((value for _, value in known), default=0.0)
    first, last = min(ats, default=0), max(ats, default=0)

    def x(at: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * ((at - first) / (last - first) if last > first else 1)

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value / top if top else 0)

    newest = ", ".join(f"{line.name} {text(value)}".strip() for line in lines if (value := _newest(line)) is not None)
    said = f"{title}: {newest or 'no data yet'}"
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label={quoteattr(said)}>',
        f'<text x="{_LEFT}" y="14" class="title">{escape(title)}</text>',
        f'<text x="{_RIGHT}" y="14" text-anchor="end" class="now">{escape(newest or "no data yet")}</text>',
        f'<line x1="{_LEFT}" y1="{_BOTTOM}" x2="{_RIGHT}" y2="{_BOTTOM}" class="axis"/>',
    ]
    for number, line in enumerate(lines):
        for run in _runs(line.points):
            if len(run) == 1:
                parts.append(f'<circle cx="{x(run[0][0]):.1f}" cy="{y(run[0][1]):.1f}" r="1.8" class="dot line{number}"/>')
            else:
                path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in run)
                parts.append(f'<polyline points="{path}" class="line line{number}"/>')
    if known:
        parts.append(
            f'<text x="{_LEFT}" y="{HEIGHT - 4}" class="small">{escape(duration((last - first) / 1000))} ago to now</text>'
        )
        parts.append(f'<text x="{_RIGHT}" y="{HEIGHT - 4}" text-anchor="end" class="small">most {escape(text(top))}</text>')
    return "".join([*parts, "</svg>"])


def _newest(line: Line) -> float | None:
    return next((value for _, value in reversed(line.points) if value is not None), None)


def _runs(points: Iterable[tuple[int, float | None]]) -> list[list[tuple[int, float]]]:
    """Return the points without those that have no value, as runs that have none between them."""
    runs = [
        [(at, value) for at, value in run if value is not None]
        for known, run in groupby(points, lambda p: p[1] is not None)
        if known
    ]
    return [run for run in runs if run]


def thinned(points: Sequence[tuple[int, float | None]], most: int = 180) -> list[tuple[int, float | None]]:
    """Return at most `most` points: the highest value of each group of neighbours, so that a short peak stays visible."""
    if len(points) <= most:
        return list(points)
    bounds = [len(points) * i // most for i in range(most + 1)]
    groups = [points[a:b] for a, b in pairwise(bounds)]
    return [max(group, key=lambda p: (p[1] is not None, p[1] or 0.0)) for group in groups if group]
