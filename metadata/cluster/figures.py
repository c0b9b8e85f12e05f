"""What one process counts about its work on a cluster. The counts are kept in memory. `metadata.client.reporter` writes them into
the store.
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from types import TracebackType
from typing import Final

from metadata.common.errors import AckConflict, ConfigurationError, TxnConflict, VersionConflict

log = logging.getLogger("txnsegment.reports")


VARIABLE: Final = "TXNSEGMENT_REPORT_SECONDS"
"""The environment variable with the time between two reports, in seconds. 0: this process writes no reports."""

EVERY_S: Final = 15.0
"""The time between two reports if the variable is not set."""

BUCKETS: Final = (0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets of commit latency, in seconds. One more bucket has all slower commits."""

MOST_APPLICATIONS, MOST_READS, MOST_NAME = 4, 8, 200
"""How many applications and reads a report names at most, and how long each name is at most. So a report has at most some 5 KB."""


def bucket(seconds: float) -> int:
    """Return the number of the bucket of a commit that took so long."""
    return bisect_left(BUCKETS, seconds)


def interval_s(environment: Mapping[str, str] = os.environ) -> float:
    """Return the seconds between two reports; 0 if this process writes none. Raises ConfigurationError."""
    text = environment.get(VARIABLE, "").strip()
    try:
        seconds = float(text or EVERY_S)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= 86_400:
        return seconds
    raise ConfigurationError(
        f"The environment variable {VARIABLE} is {text!r:.100}, which is not a number of seconds up to 86400.",
        advice=f"Give the time between two reports of this process, such as {EVERY_S:g}, or 0 for no reports.",
    )


class Counts:
    """The counts, as `DriverReport` explains them. `changes`: how many times they have changed. `last_commit_s`: the monotonic time
    of the last commit. `reads`: the lag of each read, and whether it is larger, by (topics, subscription). The last one was
    measured last.
    """

    # It is no dataclass, because a dataclass of so many fields takes milliseconds of the start of each process of Spark.
    def __init__(self) -> None:
        self.changes = self.open = self.commits = self.conflicts = self.failures = self.retries = 0
        self.rows = self.bytes = self.rows_read = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.last_commit_s: float | None = None
        self.applications: list[str] = []
        self.reads: dict[tuple[str, str | None], tuple[int, bool]] = {}

    def copy(self) -> Counts:
        copied = copy(self)
        copied.buckets, copied.applications, copied.reads = list(self.buckets), list(self.applications), dict(self.reads)
        return copied


class _Held:
    """Counts, and the lock that a block holds while it reads or changes them. Each commit enters it three times."""

    def __init__(self) -> None:
        self._counts, self._lock = Counts(), threading.Lock()

    def __enter__(self) -> Counts:
        self._lock.acquire()
        return self._counts

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()


class Figures:
    """Counts for one cluster, in one process. Safe for several threads. No method does I/O or raises an error.

    `changed`: is called after each change. A forked child begins with counts of its own.
    """

    def __init__(self) -> None:
        self.changed: Callable[[], None] | None = None
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._held = _Held()
        self._thread = threading.local()

    def counting(self) -> AbstractContextManager[Counts]:
        """Return a context that gives the counts to a block that reads or changes them."""
        if os.getpid() != self._pid:
            self._begin_process()
        return self._held

    def _told(self) -> None:
        if self.changed is not None:
            try:
                self.changed()
            except Exception:
                self.changed = None
                log.warning("the figures of this process cannot be reported", exc_info=True)

    @contextmanager
    def committing(self, application: str | None = None) -> Iterator[None]:
        """Count one commit that is under way in the block, and the error that ends it. A commit that another commit of the same
        thread has called counts as a part of it. `application`: its application id; None: a random one.
        """
        with self.counting() as counts:
            inner = getattr(self._thread, "commits", False)
            counts.open += not inner
            if application is not None and counts.applications[:1] != [application[:MOST_NAME]]:
                others = [one for one in counts.applications if one != application[:MOST_NAME]]
                counts.applications = [application[:MOST_NAME], *others][:MOST_APPLICATIONS]
        if inner:
            yield
            return
        self._thread.commits, self._thread.retries = True, 0
        self._told()
        try:
            yield
        except BaseException as error:
            with self.counting() as counts:
                counts.changes += 1
                counts.conflicts += isinstance(error, _CONFLICTS)
                counts.failures += not isinstance(error, _CONFLICTS)
            raise
        finally:
            self._thread.commits = False
            with self.counting() as counts:
                counts.open -= 1

    def committed(self, rows: int, size: int, seconds: float, at_s: float) -> None:
        """Count a commit. `at_s`: the monotonic time."""
        with self.counting() as counts:
            counts.changes += 1
            counts.commits += 1
            counts.rows += rows
            counts.bytes += size
            counts.seconds += seconds
            counts.buckets[bucket(seconds)] += 1
            counts.last_commit_s = at_s
        self._told()

    def retried(self) -> None:
        """Count a step of a commit that is done again."""
        with self.counting() as counts:
            counts.retries += 1
            self._thread.retries = self.retries_of_commit + 1

    @property
    def retries_of_commit(self) -> int:
        """How many steps of the last commit of this thread were done again."""
        return int(getattr(self._thread, "retries", 0))

    def read(self, rows: int) -> None:
        """Count rows that a stream has planned or a consumer has delivered."""
        if not rows:
            return
        with self.counting() as counts:
            counts.changes += 1
            counts.rows_read += rows
        self._told()

    def lagging(self, what: str, subscription: str | None, rows: int, *, more: bool) -> None:
        """Note the lag of a read: the rows that it has not read yet. An unchanged lag is no change."""
        key = (what[:MOST_NAME], None if subscription is None else subscription[:MOST_NAME])
        with self.counting() as counts:
            if counts.reads.get(key) == (rows, more):
                return
            counts.changes += 1
            counts.reads.pop(key, None)
            counts.reads[key] = (rows, more)
            while len(counts.reads) > MOST_READS:
                counts.reads.pop(next(iter(counts.reads)))
        self._told()

    def unread(self, what: str, subscription: str | None) -> None:
        """Forget a read that has ended."""
        key = (what[:MOST_NAME], None if subscription is None else subscription[:MOST_NAME])
        with self.counting() as counts:
            counts.changes += counts.reads.pop(key, None) is not None


_CONFLICTS = (TxnConflict, VersionConflict, AckConflict)
