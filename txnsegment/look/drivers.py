"""The drivers of a cluster, as their reports and the open transactions show them. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from metadata.client.transactions import TransactionDescription
from metadata.records.driver_records import DriverReport, ReadFigures, Recent
from metadata.rules.reporting import added, is_late, is_silent, recent

MOST_DRIVERS = 100
"""How many drivers are shown: those that reported last."""


class DriverState(StrEnum):
    """REPORTING: the driver reports. IDLE: it has not reported lately, and has no open transaction, so it is idle or gone. SILENT:
    it has not reported lately, although a transaction of it is open. ENDED: it has ended in good order.
    """

    REPORTING = "reporting"
    IDLE = "idle"
    SILENT = "silent"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class DriverSeen:
    """A driver: a process that reports its figures, under the name that headers give the owners of transactions (host and pid).

    `report`: the sum of its reports. `lately`: what it counted in the last interval; nothing if it does not report. `open`: how
    many transactions are open that it owns, by their headers.
    """

    name: str
    report: DriverReport
    state: DriverState
    lately: Recent
    open: int

    @property
    def rows(self) -> float:
        """Rows a second that it commits."""
        return self._rate(self.lately.rows)

    @property
    def rows_read(self) -> float:
        """Rows a second that its streams and consumers read."""
        return self._rate(self.lately.rows_read)

    @property
    def commits(self) -> float:
        """Commits a second."""
        return self._rate(self.lately.commits)

    def _rate(self, count: int) -> float:
        return count * 1000 / self.lately.ms if self.lately.ms > 0 else 0.0

    @property
    def mean_s(self) -> float | None:
        """The mean latency of its commits, in seconds; None without a commit."""
        return self.report.commit_us / 1_000_000 / self.report.commits if self.report.commits else None

    @property
    def reads(self) -> Sequence[ReadFigures]:
        """What it reads. An ended driver reads nothing."""
        return () if self.state is DriverState.ENDED else self.report.reads

    @property
    def lag(self) -> int:
        """Rows that its streams and consumers had not read when they last planned."""
        return sum(read.lag for read in self.reads)

    @property
    def lag_is_more(self) -> bool:
        """Whether the lag is larger than `lag`, because not all rows were counted."""
        return any(read.more for read in self.reads)


def drivers(reports: Iterable[DriverReport], open_now: Iterable[TransactionDescription], now_ms: int) -> tuple[DriverSeen, ...]:
    """Return the drivers, the one that reported last first. `open_now`: the transactions that are open."""
    owned: dict[str | None, list[int]] = defaultdict(list)
    for txn in open_now:
        owned[txn.owner].append(txn.created_ms)
    found = [_seen(name, report, owned[name], now_ms) for name, report in added(reports).items()]
    return tuple(sorted(found, key=lambda d: (-d.report.at_ms, d.name)))


def _seen(name: str, report: DriverReport, opened_ms: Sequence[int], now_ms: int) -> DriverSeen:
    if report.ended:
        state = DriverState.ENDED
    elif not is_late(report, now_ms):
        state = DriverState.REPORTING
    else:
        is_dead = bool(opened_ms) and is_silent(report, min(opened_ms), now_ms)
        state = DriverState.SILENT if is_dead else DriverState.IDLE
    return DriverSeen(name, report, state, recent(report, now_ms), len(opened_ms))
