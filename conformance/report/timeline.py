"""A history as a picture: one lane for each actor, what he did from left to right, what is wrong in red."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from conformance.report.markup import tag
from conformance.report.svg import CHARACTER, WIDTH, Scale, across, picture, shortened
from conformance.results import Span

MOST = 400
"""Spans in one picture."""
LEFT, RIGHT, TOP, ROW, GAP = 150.0, 40.0, 8.0, 18.0, 6.0
THIN = 4.0


def chosen(spans: Sequence[Span], most: int = MOST) -> list[Span]:
    """So many spans, by their beginning: those that are wrong, and of the others those that lie nearest to one of them (nearest to
    the end, if none is wrong).
    """
    ordered = sorted(spans, key=lambda span: span.began)
    if len(ordered) <= most:
        return ordered
    marks = [span.began for span in ordered if span.wrong] or [ordered[-1].began]
    near = sorted(ordered, key=lambda span: (not span.wrong, min(abs(span.began - mark) for mark in marks[:most])))
    return sorted(near[:most], key=lambda span: span.began)


def timeline(spans: Sequence[Span], clock: str, label: str) -> ET.Element:
    """The picture, in a page with `fading`. `clock`: the unit of the spans' times, which are shown from the first one on.

    Raises ValueError without spans.
    """
    shown = chosen(spans)
    first = min(span.began for span in shown)
    last = max(span.began if span.ended is None else span.ended for span in shown)
    time = Scale(first, last if last > first else first + 1, LEFT, WIDTH - RIGHT)
    lanes = _lanes(shown, time)
    height, y = TOP + sum(lane.height for lane in lanes) + 24, TOP
    drawn = list(across(time, TOP, height - 24, clock, zero=first))
    for lane in lanes:
        drawn.append(_lane(lane, time, y))
        y += lane.height
    return picture(height, label, *drawn)


@dataclass(slots=True)
class _Lane:
    actor: str
    rows: list[list[Span]]

    @property
    def height(self) -> float:
        return len(self.rows) * ROW + GAP


def _lanes(spans: Sequence[Span], time: Scale) -> list[_Lane]:
    """A lane for each actor in the order in which they appear; what overlaps lies in rows below each other."""
    lanes: dict[str, _Lane] = {}
    for span in spans:
        lane = lanes.setdefault(span.actor, _Lane(span.actor, []))
        row = next((row for row in lane.rows if _end(row[-1], time) <= time.at(span.began)), None)
        if row is None:
            lane.rows.append([span])
        else:
            row.append(span)
    return list(lanes.values())


def _end(span: Span, time: Scale) -> float:
    """Where it ends in the picture."""
    return time.end if span.ended is None else max(time.at(span.ended), time.at(span.began) + THIN)


def _lane(lane: _Lane, time: Scale, y: float) -> ET.Element:
    name = shortened(lane.actor, LEFT - 12)
    drawn = tag("g", tag("text", tag("title", lane.actor), name, x=4, y=y + 13, class_="actor"), class_="lane")
    drawn.append(tag("line", x1=0, x2=WIDTH, y1=y + lane.height - GAP / 2, y2=y + lane.height - GAP / 2, class_="between"))
    for i, row in enumerate(lane.rows):
        ends = [time.at(after.began) for after in row[1:]] + [WIDTH]
        for span, free in zip(row, ends, strict=True):
            drawn.append(_span(span, time, y + i * ROW, free))
    return drawn


def _span(span: Span, time: Scale, y: float, free: float) -> ET.Element:
    """`free`: up to where its row is empty behind it."""
    x, end = time.at(span.began), _end(span, time)
    kind = "span" + (" wrong" if span.wrong else "") + (" open" if span.ended is None else "")
    until = "no answer" if span.ended is None else f"{span.ended - time.first:g}"
    drawn = tag("g", tag("title", f"{span.actor}: {span.label}\n{span.began - time.first:g} to {until}"), class_=kind)
    drawn.append(tag("rect", x=x, y=y + 1, width=end - x, height=ROW - 4, rx=2))
    inside = shortened(span.label, end - x - 6)
    if inside == span.label or (inside and free - end < CHARACTER * 8):
        drawn.append(tag("text", inside, x=x + 3, y=y + 12))
    elif behind := shortened(span.label, free - end - 6):
        drawn.append(tag("text", behind, x=end + 3, y=y + 12, class_="behind"))
    return drawn


def fading() -> ET.Element:
    """What the intervals whose end nobody knows are filled with: it fades to the right. Once in a page with timelines."""

    def gradient(name: str, kind: str) -> ET.Element:
        stops = (tag("stop", offset="0", class_=kind), tag("stop", offset="1", class_=kind, stop_opacity="0"))
        return tag("linearGradient", *stops, id=name)

    return tag("svg", tag("defs", gradient("fading", "normal"), gradient("fading-wrong", "bad")), width="0", height="0")
