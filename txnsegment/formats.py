"""Times, sizes and durations as text for people."""

from __future__ import annotations

import datetime

_END_MS = 253_402_300_800_000
"""The end of the year 9999, in ms since 1970."""


def moment(ms: int | None) -> str | None:
    """Return ms since 1970 as UTC text."""
    if ms is None:
        return None
    if not 0 <= ms < _END_MS:
        return f"{ms} ms, which is no date"
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: int) -> str:
    """Return a number of bytes as text, such as `1.5 MB` (units of 1000)."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(seconds: float) -> str:
    """Return a duration as text with one or two units, such as `340 ms`, `12 s`, `3 min 5 s`, `2 h 10 min` or `4 d 3 h`."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    whole = round(seconds)
    for unit, length, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def number(value: float) -> str:
    """Return a number with its thousands separated: `12,345`. Below 100 it has up to one decimal, if it is not whole."""
    return f"{value:,.1f}" if value < 100 and value != int(value) else f"{value:,.0f}"
