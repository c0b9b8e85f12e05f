"""Looks at a cluster again and again, in a thread of its own. The looks take at most a twentieth of the time, so that they do not
slow a large cluster down.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from metadata.client.transactions import TransactionDescription
from metadata.common.clock import Clock, SystemClock, wait
from metadata.common.errors import TxnSegmentError
from txnsegment.findings import Finding
from txnsegment.look.reading import Looker
from txnsegment.look.samples import Sample, sample
from txnsegment.look.seen import Seen, SubscriptionSeen, committed, merged

log = logging.getLogger("txnsegment.look")

SHARE = 20
"""After each look this many times its duration passes before the next one begins."""

LOOK_EVERY, LAGS_EVERY, FINDINGS_EVERY = 2.0, 5.0, 30.0
"""Seconds from one look to the next one, of a cluster whose looks take little time. Lags and findings are read less often."""

LATE_S = 15.0
"""How many seconds a look may be late until the figures count as old."""

KEPT_SAMPLES = 900
"""How many samples are kept for charts: half an hour of a small cluster."""

KEPT_ENDED = 500
"""How many ended transactions are kept, the newest ones."""

ASKED = 20
"""How many topics are remembered that pages have asked for."""

AGAIN = 3
"""After this many failed looks in a row the cluster is opened again."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The error of the last look. `since_s`: the monotonic time of the first look in a row that failed."""

    message: str
    advice: str
    since_s: float


@dataclass(frozen=True)
class Board:
    """All that pages show. It never changes; the watcher replaces it by a new one.

    `seen`: the last look that succeeded, at the monotonic time `at_s`; None before the first one. `took_s`: how long it took.
    `trouble`: the error of the last look; None if it succeeded. `subscriptions`: None until they are read. `committed`, `aborted`:
    how many transactions have ended since the watcher began.
    """

    seen: Seen | None = None
    at_s: float = 0.0
    took_s: float = 0.0
    trouble: Trouble | None = None
    samples: tuple[Sample, ...] = ()
    ended: tuple[TransactionDescription, ...] = ()
    committed: int = 0
    aborted: int = 0
    subscriptions: tuple[SubscriptionSeen, ...] | None = None
    findings: tuple[Finding, ...] = ()
    findings_ms: int = 0

    def is_late(self, now_s: float) -> bool:
        """Return whether the last look that succeeded is older than the pace explains, as if the store does not answer."""
        return self.seen is not None and now_s - self.at_s > LATE_S + (SHARE + 2) * self.took_s


class Pace:
    """Says when something is due that takes time. It is due `every` seconds, or less often if it takes long (SHARE)."""

    def __init__(self, every: float, clock: Clock) -> None:
        self.every, self._clock = every, clock
        self.due_s = clock.monotonic()

    def is_due(self) -> bool:
        return self._clock.monotonic() >= self.due_s

    def done(self, began_s: float) -> None:
        now = self._clock.monotonic()
        self.due_s = max(began_s + self.every, now + SHARE * (now - began_s))

    def failed(self) -> None:
        """Say that it has failed. It is due soon, even if it took long: a store that does not answer does no work."""
        self.due_s = self._clock.monotonic() + self.every


class Watcher:
    """Looks at a cluster and keeps what it has found. `board` may be read by any thread.

    `opened`: opens the cluster. It is called at the first look, and again after looks have failed.
    """

    def __init__(self, opened: Callable[[], Looker], *, clock: Clock | None = None) -> None:
        self._open, self._clock = opened, clock or SystemClock()
        self.board = Board()
        self._looker: Looker | None = None
        self._former: Looker | None = None
        self._failed = 0
        self._before: Seen | None = None
        self._samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self._asked: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._paces = [Pace(every, self._clock) for every in (LOOK_EVERY, LAGS_EVERY, FINDINGS_EVERY)]
        self._steps = (self._look, self._read_lags, self._read_findings)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, topic: str) -> None:
        """Include a topic in the next looks, even if the cluster has very many topics. Only the last few are remembered."""
        with self._lock:
            self._asked[topic] = None
            self._asked.move_to_end(topic)
            while len(self._asked) > ASKED:
                self._asked.popitem(last=False)

    @property
    def now_s(self) -> float:
        return self._clock.monotonic()

    def tick(self) -> None:
        """Do what is due. An error of the cluster is shown on the board; after an error nothing else is read."""
        for pace, step in zip(self._paces, self._steps, strict=True):
            if not pace.is_due():
                continue
            began = self._clock.monotonic()
            try:
                step(began)
                pace.done(began)
            except TxnSegmentError as error:
                self._fail(error.message, error.advice)
                pace.failed()
                return
            except Exception as error:
                log.exception("a look at the cluster failed")
                self._fail(
                    f"{type(error).__name__}: {error}", "This is a fault of txnsegment: report it with the traceback in the log."
                )
                pace.failed()
                return

    def _look(self, began: float) -> None:
        if self._looker is None:
            self._looker = self._open()
            if self._former is not None:
                self._looker.go_on(self._former)
                self._former = None
        with self._lock:
            asked = tuple(self._asked)
        seen = self._looker.look(asked)
        board = self.board
        self._samples.append(sample(self._before, seen))
        is_first = board.seen is None  # it finds transactions that ended before the watcher began
        new = () if is_first else seen.ended
        committed_now = sum(committed(t) for t in new)
        now = self._clock.monotonic()
        if board.trouble is not None:
            log.info("%s answers again", seen.url)
        self.board = replace(
            board,
            seen=seen,
            at_s=now,
            took_s=now - began,
            trouble=None,
            samples=tuple(self._samples),
            ended=tuple(merged(board.ended, seen.ended, KEPT_ENDED)),
            committed=board.committed + committed_now,
            aborted=board.aborted + len(new) - committed_now,
        )
        self._before, self._failed = seen, 0

    def _read_lags(self, began: float) -> None:
        if self._looker is not None:
            self.board = replace(self.board, subscriptions=self._looker.subscriptions())

    def _read_findings(self, began: float) -> None:
        if self._looker is not None and self.board.seen is not None:
            found = self._looker.findings()
            self.board = replace(self.board, findings=found, findings_ms=self.board.seen.now_ms)

    def _fail(self, message: str, advice: str) -> None:
        board, now = self.board, self._clock.monotonic()
        self._before = None  # what happened meanwhile belongs to no second
        self._failed += 1
        since = now if board.trouble is None else board.trouble.since_s
        if board.trouble is None or board.trouble.message != message:
            log.warning("the cluster cannot be looked at: %s %s", message, advice)
        self.board = replace(board, trouble=Trouble(message, advice, since))
        if self._failed >= AGAIN and self._looker is not None:
            self._former, self._looker = self._looker, None
            self._failed = 0
            self._former.close()

    # --- the thread -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="txnsegment-look", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.tick()
                left = min(pace.due_s for pace in self._paces) - self._clock.monotonic()
                wait(self._clock, self._stop, max(left, 0.05))
        finally:
            if self._looker is not None:
                self._looker.close()

    def close(self, patience: float = 5.0) -> None:
        """Stop looking. A look that hangs in an unreachable store is left to the end of the process after `patience` seconds."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)
        elif self._looker is not None:
            self._looker.close()
