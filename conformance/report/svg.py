"""Scales, axes and frames of pictures. Pure: numbers in, elements out. All lengths are in pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from conformance.report.markup import tag

WIDTH = 1100.0
CHARACTER = 6.2
"""Width of a character of the small text, on average."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `first` to `last` lie at `start` to `end`."""

    first: float
    last: float
    start: float
    end: float

    def at(self, value: float) -> float:
        extent = self.last - self.first
        return self.start if not extent else self.start + (value - self.first) / extent * (self.end - self.start)


def ticks(first: float, last: float, most: int = 8) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) between two, no more than `most` + 1; one if they are the same."""
    extent = last - first
    if extent <= 0:
        return [first]
    rough = extent / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    count = math.floor(last / step + 1e-9) - math.ceil(first / step - 1e-9)
    return [(math.ceil(first / step - 1e-9) + i) * step for i in range(count + 1)]


def picture(height: float, label: str, *content: ET.Element) -> ET.Element:
    """The frame of a picture; `label`: what it shows, for who cannot see it."""
    return tag(
        "svg",
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_label=label,
    )


def across(scale: Scale, top: float, bottom: float, unit: str, *, zero: float = 0.0) -> Iterator[ET.Element]:
    """Time from left to right: lines and their numbers, counted from `zero`."""
    for each in ticks(scale.first - zero, scale.last - zero):
        x = scale.at(each + zero)
        yield tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid")
        yield tag("text", f"{each:g}", x=x, y=bottom + 14, class_="tick", text_anchor="middle")
    yield tag("text", unit, x=WIDTH - 4, y=bottom + 14, class_="tick", text_anchor="end")


def upward(scale: Scale, left: float, right: float, unit: str) -> Iterator[ET.Element]:
    """A value from bottom to top."""
    for each in ticks(scale.first, scale.last, most=5):
        y = scale.at(each)
        yield tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid")
        yield tag("text", f"{each:g}", x=left - 6, y=y + 4, class_="tick", text_anchor="end")
    yield tag("text", unit, x=left - 6, y=scale.end - 8, class_="tick", text_anchor="end")


def shortened(text: str, width: float) -> str:
    """As much of a text as fits, with an ellipsis; empty if nothing sensible does."""
    room = int(width / CHARACTER)
    return text if len(text) <= room else f"{text[: room - 1]}…" if room >= 4 else ""
