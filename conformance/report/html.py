"""A report as one page of HTML, which loads no other file. It has a table of all results, and a section with pictures for each
result that failed or has values over time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from conformance.report.histories import MOST
from conformance.report.markup import add, tag, written
from conformance.report.pictures import chart, period, timeline
from conformance.report.style import STYLE
from conformance.report.text import command_line, counts, figures
from conformance.results import Outcome, Result

if TYPE_CHECKING:
    from conformance.report.run import Report

CLASSES = {Outcome.OK: "ok", Outcome.FAILED: "failed", Outcome.NOT_APPLICABLE: "na"}


def page(report: Report) -> str:
    """Return the whole page."""
    failed = sum(result.outcome is Outcome.FAILED for result in report.results)
    title = f"Conformance: {failed} of {len(report.results)} failed" if failed else f"Conformance: {counts(report.results)}"
    head = tag("head", tag("meta", charset="utf-8"), tag("title", title), tag("style", STYLE))
    body = tag("body", tag("h1", title, class_="failed" if report.exit_code else "ok"), _facts(report), _table(report))
    for number, result in enumerate(report.results, 1):
        if result.outcome is Outcome.FAILED or result.series:
            body.append(_section(number, result))
    return f"<!doctype html>\n{written(tag('html', head, body, lang='en'))}\n"


def _facts(report: Report) -> ET.Element:
    facts = (
        ("command", command_line(report.command)),
        ("seed", str(report.seed)),
        ("started", report.started),
        ("took", f"{report.seconds:.1f} s"),
        ("exit code", str(report.exit_code)),
        ("txnsegment", report.version),
        ("Python", report.python),
        ("machine", report.machine),
    )
    made = tag("dl", class_="facts")
    for name, value in facts:
        add(made, tag("dt", name), tag("dd", value))
    return made


def _table(report: Report) -> ET.Element:
    names = ("outcome", "what", "rule", "seconds", "figures")
    table = tag("table", tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names))))
    numbered = list(enumerate(report.results, 1))
    for suite, group in groupby(numbered, key=lambda pair: pair[1].suite):
        rows = list(group)
        head = f"{suite}: {counts([result for _, result in rows])}"
        table.append(
            tag(
                "tbody",
                tag("tr", tag("th", head, colspan="5", scope="rowgroup")),
                *(_row(number, result) for number, result in rows),
            )
        )
    return table


def _row(number: int, result: Result) -> ET.Element:
    has_section = result.outcome is Outcome.FAILED or result.series
    name = tag("a", result.name, href=f"#result-{number}") if has_section else result.name
    rule = tag("td", result.says)
    if result.section:
        add(rule, tag("div", result.section, class_="where"))
    if result.outcome is Outcome.NOT_APPLICABLE:
        add(rule, tag("div", result.detail, class_="reason"))
    what = "; ".join(text for text in (figures(result), result.note) if text)
    outcome = tag("td", str(result.outcome), class_="outcome")
    return tag(
        "tr",
        outcome,
        tag("td", name, class_="name"),
        rule,
        tag("td", f"{result.seconds:.2f}", class_="number"),
        tag("td", what),
        class_=CLASSES[result.outcome],
    )


def _section(number: int, result: Result) -> ET.Element:
    made = tag("section", tag("h2", f"{result.suite}: {result.name}"), id=f"result-{number}", class_=CLASSES[result.outcome])
    add(made, tag("p", result.says))
    if result.detail:
        add(made, tag("pre", result.detail))
    if result.again:
        add(made, tag("p", "Again: ", tag("code", command_line(result.again))))
    for i, each in enumerate(result.series):
        if each.points:
            caption = tag("figcaption", f"{each.name}, {each.unit}" + ("; bands: faults" if result.history else ""))
            within = period(result.series, result.history)
            add(made, tag("figure", caption, chart(each, result.history, result.clock, within, f"chart{number}-{i}")))
    if result.history:
        add(made, *_timeline(number, result))
    return made


def _timeline(number: int, result: Result) -> Iterator[ET.Element]:
    words = "What happened, from left to right; red: what does not fit; hatched: its answer never came."
    if len(result.history) > MOST:
        words += f" Only {MOST} operations are shown, those around what is wrong."
    drawn = timeline(result.history, result.clock, f"Timeline of {result.name}", f"timeline{number}")
    yield tag("figure", tag("figcaption", words), drawn, class_="timeline")
    wrong = [f"{span.actor}: {span.label}" for span in result.history if span.wrong]
    if wrong:
        yield tag("ul", *(tag("li", text) for text in wrong), class_="wrong")
