"""Parses times and durations in the values of options. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from metadata.common.options import LONG_MAX, Parse, bad

_ISO: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_LAST_MS: Final = 253_402_300_799_999
_TIMESTAMP_ADVICE: Final = "Write epoch milliseconds (1735689600000) or ISO-8601 with a zone (2025-01-01T00:00:00Z)."


_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ms|s|m|min|h|d)", re.ASCII)
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float | None:
    """Return the seconds of a number with its unit: `500ms`, `10s`, `5m`, `1h`, `1d`. Return None for any other text, such as a
    number without a unit, which guards against failure A12 (protocol.md section 9).
    """
    found = _DURATION.fullmatch(text.strip().lower())
    return None if found is None else float(found[1]) * _UNIT_SECONDS[found[2]]


def duration(name: str, text: str) -> float:
    """Parse a duration of at least a millisecond, in seconds."""
    seconds = seconds_of(text)
    if seconds is None or not 0.001 <= seconds <= LONG_MAX / 1000:
        raise bad(name, text, "it is not a duration", "Write a number and its unit: 500ms, 30s, 15m or 1h.")
    return seconds


def timestamp_ms(*, up: bool) -> Parse[int]:
    """Return a parser for a time in ms since 1970: epoch milliseconds, or ISO-8601 with Z or an offset. Fractions of a millisecond
    are rounded up if `up` is set, and down otherwise.

    A timestamp without a zone is refused. It could only mean Spark's session time zone, as for Delta Lake, and a Python data source
    does not know that zone. Ten digits are refused too, because they look like epoch SECONDS (failure A12).
    """

    def parse(name: str, text: str) -> int:
        word = text.strip().upper()
        if re.fullmatch(r"[0-9]{1,30}", word, re.ASCII):
            if len(word) == 10 and word[0] != "0":
                raise bad(name, text, "ten digits look like seconds since 1970", f"Write milliseconds: {word}000.")
            ms = int(word)
        else:
            ms = _iso_ms(name, text, word, up)
        if not 0 <= ms <= _LAST_MS:
            raise bad(name, text, "it lies outside the years 1970 to 9999", _TIMESTAMP_ADVICE)
        return ms

    return parse


def _iso_ms(name: str, text: str, word: str, up: bool) -> int:
    found = _ISO.fullmatch(word)
    if not found:
        raise bad(name, text, "it is not a timestamp", _TIMESTAMP_ADVICE)
    moment, fraction, zone = found.groups()
    if zone is None:
        raise bad(
            name,
            text,
            "it has no time zone, and Spark does not tell a Python data source the session's",
            f"Add Z or an offset: {word}Z or {word}+01:00.",
        )
    try:
        whole: timedelta = datetime.fromisoformat(moment + zone) - datetime(1970, 1, 1, tzinfo=UTC)
    except ValueError as e:
        raise bad(name, text, f"it is not a timestamp ({e})", _TIMESTAMP_ADVICE) from e
    nanoseconds = int((fraction or "").ljust(9, "0"))
    return whole // timedelta(milliseconds=1) + (nanoseconds + (999_999 if up else 0)) // 1_000_000
