"""The rules of the reports of drivers: when a driver reports, which reports count, and how the reports of one owner are added up.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from metadata.records.driver_records import DriverReport, Recent

KEPT_MS: Final = 600_000
"""A report that is older than this is ignored, and the next process that looks for old reports deletes it."""


def is_due(counted: int, reported: int, open_now: int) -> bool:
    """Return whether a driver writes a report now. `counted`: how many times its figures have changed. `reported`: the same number
    at its last report. A driver with an open transaction reports although nothing changes, so that its end is noticed.
    """
    return counted != reported or open_now > 0


def is_current(report: DriverReport, now_ms: int) -> bool:
    """Return whether a report still counts. A time in the future comes from a clock that was set back since."""
    return abs(now_ms - report.at_ms) <= KEPT_MS


def is_late(report: DriverReport, now_ms: int) -> bool:
    """Return whether three reports of the driver are missing. An idle driver is late, too: it writes no reports."""
    return now_ms - report.at_ms > 3 * report.every_ms


def is_silent(report: DriverReport, open_since_ms: int, now_ms: int) -> bool:
    """Return whether a driver has stopped reporting while a transaction of it is open, as if it had died. `open_since_ms`: when its
    oldest open transaction was opened. A transaction that was opened just now may not be reported yet.
    """
    return is_late(report, now_ms) and now_ms - open_since_ms > 2 * report.every_ms


def recent(report: DriverReport, now_ms: int) -> Recent:
    """Return what the driver has counted lately: nothing if its report is late."""
    if is_late(report, now_ms) or report.ended:
        return report.recent.model_copy(update={"commits": 0, "rows": 0, "rows_read": 0})
    return report.recent


def added(reports: Iterable[DriverReport]) -> dict[str, DriverReport]:
    """Return one report for each owner. A process that uses a cluster through several clients has several reports, and so has a
    process whose pid an earlier one had. Counts are added up. The other fields are those of the newest report.
    """
    found: dict[str, DriverReport] = {}
    for one in sorted(reports, key=lambda r: r.at_ms):
        before = found.get(one.owner)
        found[one.owner] = one if before is None else _sum(before, one)
    return found


def _sum(old: DriverReport, new: DriverReport) -> DriverReport:
    counts = ("commits", "conflicts", "failures", "retries", "rows", "bytes", "rows_read", "commit_us", "unsent")
    living = [one for one in (old, new) if not one.ended]
    lately = [one.recent for one in living if new.at_ms - one.at_ms <= new.every_ms]
    return new.model_copy(
        update={name: getattr(old, name) + getattr(new, name) for name in counts}
        | {
            "since_ms": min(old.since_ms, new.since_ms),
            "buckets": tuple(a + b for a, b in zip_longest(old.buckets, new.buckets, fillvalue=0)),
            "last_commit_ms": max((ms for ms in (old.last_commit_ms, new.last_commit_ms) if ms is not None), default=None),
            "applications": tuple(dict.fromkeys((*new.applications, *old.applications))),
            "recent": new.recent.model_copy(
                update={name: sum(getattr(one, name) for one in lately) for name in ("commits", "rows", "rows_read")}
            ),
            "open": sum(one.open for one in living),
            "reads": tuple(read for one in living for read in one.reads),
            "ended": None if living else True,
        }
    )
