"""Pictures of a report: timelines of operations, and charts of values over time. Matplotlib draws them as SVG inside the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree as ET

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from conformance.report.histories import chosen
from conformance.report.markup import tag, visible
from conformance.results import Series, Span

WIDTH, ROW = 11.0, 0.2
"""The width of a picture and the height of a row of a timeline, in inches."""
EDGES = {"left": 0.13, "right": 0.97}
ACROSS = 150
"""Number of characters of a label that fit into the width of a timeline."""
THIN = 1 / 250
"""Least width of a span, as a share of the timeline. A span that took no time has this width."""
SPAN, WRONG = "#8fb4d9", "#f08080"


def rows_of(spans: Sequence[Span], last: float, thin: float) -> dict[str, list[list[tuple[Span, float]]]]:
    """Distribute the spans of each actor over rows, so that the spans of a row do not overlap. Return the rows by actor, in the
    order of the actors' first spans. A row contains pairs: a span, and the time at which it ends in the picture.

    `last`: the time at which a span without an end is drawn to end. `thin`: the least width of a span.
    """
    lanes: dict[str, list[list[tuple[Span, float]]]] = {}
    for span in spans:
        rows = lanes.setdefault(span.actor, [])
        row = next((row for row in rows if row[-1][1] <= span.began), None)
        if row is None:
            rows.append(row := [])
        row.append((span, max(last if span.ended is None else span.ended, span.began + thin)))
    return lanes


def timeline(spans: Sequence[Span], clock: str, label: str, name: str) -> ET.Element:
    """Draw a timeline with a lane for each actor. Wrong spans are red, spans without an end are hatched. Times are shown relative
    to the first span. `clock`: the unit of the times. `label`: a description for screen readers. `name`: a prefix for ids, unique
    in the page. Raises ValueError without spans.
    """
    shown = chosen(spans)
    first = min(span.began for span in shown)
    extent = (max(span.began if span.ended is None else span.ended for span in shown) - first) or 1.0
    lanes = rows_of(shown, first + extent, extent * THIN)
    count = sum(len(rows) for rows in lanes.values())
    figure = Figure(figsize=(WIDTH, height := ROW * count + 0.6))
    figure.subplots_adjust(**EDGES, bottom=0.5 / height, top=1 - 0.05 / height)
    axes = figure.add_subplot(xlabel=clock, xlim=(0, extent * (1 + THIN)), ylim=(count, 0))
    axes.set_yticks([])
    axes.grid(visible=True, axis="x", alpha=0.3)
    notes: dict[str, tuple[str, str]] = {}
    at = 0
    for actor, rows in lanes.items():
        lane = f"lane{len(notes)}"
        text = visible(actor if len(actor) <= 22 else f"{actor[:21]}…")
        axes.text(
            -0.005,
            at + 0.5,
            text,
            transform=axes.get_yaxis_transform(),
            ha="right",
            va="center",
            fontsize=8,
            parse_math=False,
            gid=lane,
        )
        notes[lane] = ("lane", actor)
        axes.axhline(at, color="#8884", linewidth=0.5)
        for row in rows:
            starts = [span.began for span, _ in row[1:]] + [first + extent]
            for (span, end), free in zip(row, starts, strict=True):
                one = f"span{len(notes)}"
                until = "no answer" if span.ended is None else f"{span.ended - first:g}"
                kind = "span" + (" wrong" if span.wrong else "") + (" open" if span.ended is None else "")
                notes[one] = (kind, f"{span.actor}: {span.label}\n{span.began - first:g} to {until}")
                axes.add_patch(
                    Rectangle(
                        (span.began - first, at + 0.1),
                        end - span.began,
                        0.8,
                        facecolor=WRONG if span.wrong else SPAN,
                        edgecolor="white",
                        linewidth=0,
                        hatch="//" if span.ended is None else None,
                        gid=one,
                    )
                )
                if room := int((free - span.began) / extent * ACROSS):
                    fits = visible(span.label if len(span.label) <= room else f"{span.label[: room - 1]}…")
                    axes.text(span.began - first, at + 0.5, fits, va="center", fontsize=7, parse_math=False, clip_on=True)
            at += 1
    return _inside_page(figure, label, name, notes)


def period(all_series: Iterable[Series], faults: Iterable[Span]) -> tuple[float, float]:
    """Return the first and the last time of the series and faults, so that several charts show the same range of time. Raises
    ValueError if there are no points and no faults.
    """
    times = [time for series in all_series for time, _ in series.points]
    times += [time for span in faults for time in (span.began, span.ended) if time is not None]
    return min(times), max(times)


def chart(series: Series, faults: Sequence[Span], clock: str, within: tuple[float, float], name: str) -> ET.Element:
    """Draw one series. `faults`: spans that are drawn as numbered bands. A number is left out if there is no room. `clock`: the
    unit of the times. `within`: the result of `period`. `name`: a prefix for ids, unique in the page. Raises ValueError without
    points.
    """
    first, last = within
    extent = (last - first) or 1.0
    times, values = zip(*series.points, strict=True)
    figure = Figure(figsize=(WIDTH, 2.6))
    figure.subplots_adjust(**EDGES, bottom=0.18, top=0.9)
    most = max(values) or 1.0
    axes = figure.add_subplot(xlabel=clock, ylabel=series.unit, xlim=(0, extent), ylim=(0, most * 1.05))
    axes.grid(visible=True, alpha=0.3)
    axes.plot([time - first for time in times], values, "." if series.dots else "-", color="#2e7d4f", linewidth=1.5, gid="values")
    notes, free = {"values": ("values", f"{series.name} ({series.unit}) over time")}, 0.0
    for number, span in enumerate(faults, 1):
        began, ended = span.began - first, (last if span.ended is None else span.ended) - first
        axes.axvspan(began, ended, facecolor=WRONG, edgecolor=WRONG, alpha=0.4, gid=f"fault{number}")
        notes[f"fault{number}"] = ("fault", f"{number}: {span.actor}: {span.label}")
        if began >= free:
            axes.text(began, 1.02, str(number), transform=axes.get_xaxis_transform(), fontsize=7)
            free = began + extent / 50
    return _inside_page(figure, f"{series.name} ({series.unit}) over time", name, notes)


def _inside_page(figure: Figure, label: str, name: str, notes: Mapping[str, tuple[str, str]]) -> ET.Element:
    """Return the picture as SVG. `label`: a description for screen readers. `notes`: id of an element -> its class and tooltip."""
    written = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # matplotlib's font lacks characters that the page's font has
        figure.savefig(written, format="svg", metadata={"Date": None})
    root = ET.fromstring(re.sub(r'( id="| xlink:href="#|url\(#)', rf"\1{name}-", written.getvalue()))
    for metadata in root.findall("{*}metadata"):
        root.remove(metadata)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        note = notes.get(element.attrib.get("id", "").removeprefix(f"{name}-"))
        if note is not None:
            element.attrib["class"] = note[0]
            element.insert(0, tag("title", note[1]))
    root.attrib |= {"role": "img", "aria-label": visible(label)}
    return root
