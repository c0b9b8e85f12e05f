"""`python -m conformance --check FILE`: what the checker finds in recorded histories; 1 if anything, 2 if one is unreadable."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.history.checker import verdict
from conformance.history.findings import Finding
from conformance.history.format import Event, FormatError, line, merge, read

SHOWN = 100
"""Findings that are printed; the last line counts all."""
EVENT_CHARACTERS = 300


def judge(files: Sequence[Path]) -> int:
    """Judge the files as one history, merged by time. The exit code."""
    try:
        events = merge(read(file) for file in files)
    except (FormatError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = verdict(events)
    for finding in found.findings[:SHOWN]:
        sys.stdout.write(f"{described(finding)}\n")
    sys.stdout.write(f"{', '.join(map(str, files))}: {found}\n")
    return 1 if found.findings else 0


def described(finding: Finding) -> str:
    """The finding, and below it the events that show it, each as its line in the file."""
    return "\n".join([str(finding), *(f"    {_short(event)}" for event in finding.events)])


def _short(event: Event) -> str:
    text = line(event)
    return text if len(text) <= EVENT_CHARACTERS else f"{text[:EVENT_CHARACTERS]}..."
