"""A report as text. `summary` is for a terminal; `full` also has a line for each passed result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from conformance.results import Outcome, Result

if TYPE_CHECKING:
    from conformance.report.run import Report

COMMAND = "python -m conformance"


def full(report: Report) -> str:
    """Return the facts about the run and a text for each result, without histories and values over time."""
    facts = f"{report.started}, txnsegment {report.version}, Python {report.python}, {report.machine}"
    return "\n".join([command_line(report.command), facts, f"seed {report.seed}", "", *_lines(report.results, full=True), ""])


def summary(results: Sequence[Result]) -> str:
    """Return the counts of each suite. Return also each result that failed, is not applicable, or has figures or a note."""
    return "\n".join([*_lines(results, full=False), ""])


def command_line(arguments: Sequence[str]) -> str:
    """Return the command as it is typed in a shell."""
    return f"{COMMAND} {shlex.join(arguments)}"


def figures(result: Result) -> str:
    """Return the figures of a result as text, such as `schedules: 300; schedules_per_s: 512.3`."""
    return "; ".join(f"{name}: {number(value)}" for name, value in result.figures.items())


def number(value: float) -> str:
    """Return a number as text. A whole number stays as it is; others get about four significant digits and no exponent."""
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 0.001 else f"{value:.6f}"


def counts(results: Sequence[Result]) -> str:
    """Return the number of results by outcome as text, such as `3 ok, 1 failed, 0 not applicable`."""
    return ", ".join(f"{sum(r.outcome is outcome for r in results)} {outcome}" for outcome in Outcome)


def _lines(results: Sequence[Result], *, full: bool) -> Iterator[str]:
    order = (Outcome.OK, Outcome.NOT_APPLICABLE, Outcome.FAILED)
    for suite, group in groupby(results, key=lambda result: result.suite):
        found = list(group)
        for outcome in order:
            for result in found:
                if result.outcome is outcome and (full or outcome is not Outcome.OK or result.figures or result.note):
                    yield from _result(result)
        seconds = sum(result.seconds for result in found)
        yield f"{suite}: {len(found)} results: {counts(found)}; {seconds:.1f} s"


def _result(result: Result) -> Iterator[str]:
    what = "; ".join(text for text in (figures(result), result.note) if text)
    yield f"{result.outcome}: {result.name} ({result.seconds:.1f} s)" + (f": {what}" if what else "")
    if result.outcome is Outcome.OK:
        return
    yield f"    {result.section}: {result.says}" if result.section else f"    {result.says}"
    yield from (f"    {line}" for line in result.detail.splitlines())
    if result.outcome is Outcome.FAILED and result.again:
        yield f"    again: {command_line(result.again)}"
