"""Turn findings into text, with the events that show them."""

from __future__ import annotations

from conformance.history.files import line
from conformance.history.findings import Finding
from conformance.history.format import Event

EVENT_CHARACTERS = 300


def described(finding: Finding) -> str:
    """Return the finding as text, followed by the events that show it. Each event is a line as in a history's file, shortened."""
    return "\n".join([str(finding), *(f"    {_short(event)}" for event in finding.events)])


def _short(event: Event) -> str:
    text = line(event)
    return text if len(text) <= EVENT_CHARACTERS else f"{text[:EVENT_CHARACTERS]}..."
