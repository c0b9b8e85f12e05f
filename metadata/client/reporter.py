"""Writes the figures of this process into the store, so that `txnsegment ui`, `top` and the sweeper show all drivers of a cluster.

A report is one record of this process, which the next report replaces (`metadata.records.driver_records`). A thread writes it: a
second after the first change, and then at most every 15 seconds, if the figures have changed or a transaction is open. No commit
and no plan waits for it. If the store does not answer, the report is left out; that is counted, and logged once.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from metadata.cluster.cluster import Cluster
from metadata.cluster.figures import MOST_NAME, Counts
from metadata.common import metrics
from metadata.common.clock import wait
from metadata.common.errors import TxnSegmentError
from metadata.common.workers import RUNTIME
from metadata.records import paths
from metadata.rules.reporting import KEPT_MS, is_due
from metadata.store.contract import Put, time_ms

if TYPE_CHECKING:
    from metadata.records.driver_records import DriverReport

log = logging.getLogger("txnsegment.reports")

FIRST_S = 1.0
"""Seconds from the first change to the first report, so that short programs are seen."""

CLOSING_S = 2.0
"""How long the end of a client waits for the last report."""


def program(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of this process's program, for people: `spark` for a Python worker of Spark, else the name of its script."""
    variable, worker = RUNTIME
    if environment.get(variable) == worker:
        return "spark"
    return (Path(arguments[0]).name if arguments and arguments[0] else "python")[:MOST_NAME]


@dataclass
class Reporter:
    """Reports the figures of one client. `begin` may be called at any time, also in a forked child, which reports for itself."""

    cluster: Cluster
    every_s: float
    first_s: float = FIRST_S
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._key = paths.driver(self.cluster.owner, self.cluster.unique()[:12])
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._since_ms: int | None = None
        self._reported = 0
        """The number of changes at the last report."""
        self._before = Counts()
        self._before_s = self.cluster.clock.monotonic()
        self._cleaned_s: float | None = None
        self._unsent, self._in_trouble = 0, False

    def begin(self) -> None:
        """Start the thread if it does not run. Figures call this after each change."""
        if self._thread is not None and os.getpid() == self._pid:
            return
        with self._lock:
            if os.getpid() != self._pid:
                self._begin_process()
            if self._thread is None and not self._ended.is_set():
                thread = threading.Thread(target=self._run, name="txnsegment-reports", daemon=True)
                thread.start()  # raises if the process may have no more threads; then `close` has none to wait for
                self._thread = thread

    def _run(self) -> None:
        wait(self.cluster.clock, self._ended, min(self.first_s, self.every_s))
        while not self._ended.is_set():
            self.tick()
            wait(self.cluster.clock, self._ended, self.every_s)
        if not self._in_trouble:
            self.tick(last=True)

    def tick(self, *, last: bool = False) -> bool:
        """Write a report if one is due, and return whether that was done. `last`: the client is closed. Raises no error."""
        counts, at_s = self._now()
        due = is_due(counts.changes, self._reported, counts.open) or (last and self._since_ms is not None)
        if due:
            try:
                now_ms = time_ms(self.cluster.store)
                self._since_ms = now_ms if self._since_ms is None else self._since_ms
                self.cluster.store.write(Put(self._key, self._report(counts, at_s, now_ms, last).to_bytes(), durable=False))
                self._reported = counts.changes
                self._clean(at_s)
                self._recovered()
            except Exception as error:  # a report never disturbs the program
                self._failed(error)
                due = False
        self._before, self._before_s = counts, at_s
        return due

    def _now(self) -> tuple[Counts, float]:
        with self.cluster.figures.counting() as counts:
            return counts.copy(), self.cluster.clock.monotonic()

    def _report(self, counts: Counts, at_s: float, now_ms: int, last: bool) -> DriverReport:
        # Imported late, because a plan would wait for it. No other thread of a driver imports it, so a fork disturbs no other work.
        from metadata.records.driver_records import DriverReport, ReadFigures, Recent

        before = self._before
        return DriverReport(
            owner=self.cluster.owner,
            program=program(sys.argv),
            since_ms=now_ms if self._since_ms is None else self._since_ms,
            at_ms=now_ms,
            every_ms=round(self.every_s * 1000),
            ended=True if last else None,
            applications=tuple(counts.applications),
            open=counts.open,
            commits=counts.commits,
            conflicts=counts.conflicts,
            failures=counts.failures,
            retries=counts.retries,
            rows=counts.rows,
            bytes=counts.bytes,
            rows_read=counts.rows_read,
            commit_us=round(counts.seconds * 1_000_000),
            buckets=tuple(counts.buckets),
            last_commit_ms=None if counts.last_commit_s is None else now_ms - round((at_s - counts.last_commit_s) * 1000),
            recent=Recent(
                ms=max(1, round((at_s - self._before_s) * 1000)),
                commits=counts.commits - before.commits,
                rows=counts.rows - before.rows,
                rows_read=counts.rows_read - before.rows_read,
            ),
            reads=tuple(
                ReadFigures(what=what, subscription=subscription, lag=lag, more=more or None)
                for (what, subscription), (lag, more) in counts.reads.items()
            ),
            unsent=self._unsent,
        )

    def _clean(self, at_s: float) -> None:
        """Delete the reports of dead drivers with the first report and then now and then. So they do not gather in a cluster that
        nobody sweeps.
        """
        from metadata.cluster.reports import delete_old  # imported late for the same reason

        if self._cleaned_s is None or at_s - self._cleaned_s >= KEPT_MS / 1000:
            self._cleaned_s = at_s
            delete_old(self.cluster.store)

    def _failed(self, error: Exception) -> None:
        self._unsent += 1
        metrics.SWEEP_FAILURES.labels(step="report").inc()
        if self._in_trouble or self._ended.is_set():
            return
        self._in_trouble = True
        what = str(error) if isinstance(error, TxnSegmentError) else f"{type(error).__name__}: {error}"
        log.warning("the figures of this process cannot be reported; the next report tries again: %s", what)

    def _recovered(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            log.info("the figures of this process are reported again")

    def close(self) -> None:
        """Write the last report, and end the thread. A store that does not answer delays this by at most CLOSING_S."""
        self._ended.set()
        thread = self._thread
        if thread is not None and os.getpid() == self._pid:
            thread.join(CLOSING_S)
