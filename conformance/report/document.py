"""Make the report of a run, convert it to JSON and back, and write it into a file. The file's suffix decides the form."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from conformance.report import text
from conformance.report.run import FORMAT, Report
from conformance.results import Result, exit_code
from ledgers.errors import TxnSegmentError

HALF_SURROGATE = re.compile("[\ud800-\udfff]")
"""Matches half surrogates. UTF-8 cannot encode them, so they are written as escape sequences."""


class ReportError(TxnSegmentError):
    """A report cannot be written to the path, or this version cannot read it."""


def made(command: Sequence[str], seed: int, started_ms: int, seconds: float, results: Sequence[Result]) -> Report:
    """Return the report of a run of this version on this machine."""
    machine = f"{platform.system()} {platform.machine()}"
    return Report(
        tuple(command),
        seed,
        started_ms,
        seconds,
        tuple(results),
        exit_code(results),
        version("txnsegment"),
        platform.python_version(),
        machine,
    )


def to_json(report: Report) -> str:
    """Return the report as one indented JSON object. It has the fields of `Report` and of its results, under their names in Python.
    Raises ValueError if a figure is infinite or NaN.
    """
    written = json.dumps(asdict(report), ensure_ascii=False, indent=1, allow_nan=False)
    return HALF_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", written) + "\n"


def from_json(given: str) -> Report:
    """Return the report from the text of `to_json`. Raises ReportError if the text is no report of this format."""
    try:
        report = TypeAdapter(Report).validate_json(given)
    except ValidationError as error:
        raise ReportError(f"This is no report: {error}") from error
    if report.format != FORMAT:
        raise ReportError(f"This report has format {report.format}.", advice=f"This version reads format {FORMAT}.")
    return report


def to_html(report: Report) -> str:
    """Return the report as one page of HTML. Needs matplotlib (`conformance` extra)."""
    from conformance.report.html import page  # imported here, because the other forms do not need matplotlib

    return page(report)


FORMS: Mapping[str, Callable[[Report], str]] = {
    ".txt": lambda report: text.full(report),
    ".json": to_json,
    ".html": to_html,
}
"""Suffix of a file -> the function that turns a report into the text of this form."""


def check_file(file: Path) -> None:
    """Raise ReportError if a report cannot be written to the path. Called before a long run."""
    if file.suffix not in FORMS:
        raise ReportError(f"{file}: {file.suffix or 'no suffix'} is no form of a report.", advice=f"Name it {', '.join(FORMS)}.")
    if file.suffix == ".html" and find_spec("matplotlib") is None:
        raise ReportError(f"{file} cannot be written: it needs matplotlib.", advice="pip install 'txnsegment[conformance]'")
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise ReportError(f"{file} cannot be written: its folder does not exist.", advice="Make it, or name another file.")


def write(report: Report, file: Path) -> None:
    """Write the report into a file. The file's suffix decides the form. Raises ReportError."""
    check_file(file)
    try:
        file.write_text(FORMS[file.suffix](report), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ReportError(f"{file} cannot be written: {error}") from error
