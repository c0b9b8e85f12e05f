"""Values over time as a picture, with the faults behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as ET

from conformance.report.markup import tag
from conformance.report.svg import WIDTH, Scale, across, picture, upward
from conformance.results import Series, Span

LEFT, RIGHT, TOP, HEIGHT = 80.0, 40.0, 24.0, 220.0
NUMBER = 20.0
"""Room for the number of a fault."""


def period(all_series: Iterable[Series], faults: Iterable[Span]) -> tuple[float, float]:
    """From the first to the last time in them, for charts below each other. Raises ValueError if there is none."""
    times = [time for series in all_series for time, _ in series.points]
    times += [time for span in faults for time in (span.began, span.ended) if time is not None]
    return min(times), max(times)


def chart(series: Series, faults: Sequence[Span], clock: str, within: tuple[float, float]) -> ET.Element:
    """The picture of one series over a `period`; `faults`: spans on the same clock, drawn as bands, with their numbers where there
    is room. Raises ValueError without points.
    """
    first, last = within
    time = Scale(first, last if last > first else first + 1, LEFT, WIDTH - RIGHT)
    most = max(value for _, value in series.points)
    value = Scale(0.0, most * 1.05 if most > 0 else 1.0, HEIGHT, TOP)
    drawn = [*across(time, TOP, HEIGHT, clock, zero=first), *upward(value, LEFT, WIDTH - RIGHT, series.unit)]
    free = LEFT
    for number, span in enumerate(faults, 1):
        place = time.at(span.began)
        drawn.append(_fault(number, span, time, numbered=place >= free))
        free = place + NUMBER if place >= free else free
    places = [(time.at(at), value.at(each)) for at, each in series.points]
    if series.dots:
        drawn.append(tag("g", *(tag("circle", cx=x, cy=y, r=2) for x, y in places), class_="dots"))
    else:
        drawn.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_="line"))
    return picture(HEIGHT + 24, f"{series.name} ({series.unit}) over time", *drawn)


def _fault(number: int, span: Span, time: Scale, *, numbered: bool) -> ET.Element:
    x = time.at(span.began)
    width = max(time.at(time.last if span.ended is None else span.ended) - x, 2)
    words = tag("title", f"{number}: {span.actor}: {span.label}")
    drawn = tag("g", words, tag("rect", x=x, y=TOP, width=width, height=HEIGHT - TOP), class_="fault")
    if numbered:
        drawn.append(tag("text", str(number), x=x, y=TOP - 4))
    return drawn
