"""What a commit does not wait for: its events, and a bounded share of the sweeping, on one background thread.

Losing it (the process dies) costs delay only: the next committer or sweeper finds everything in the store.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

from metadata.common.failures import contained

Job = Callable[[], object]


class Aftermath:
    """Runs jobs one after the other in the background, and after each the `share` (once for all that have gathered)."""

    def __init__(self, share: Job) -> None:
        self._share = share
        self._begin_process()

    def _begin_process(self) -> None:
        """Of a forked child: the thread did not come with it, and the jobs are its parent's."""
        self._pid = os.getpid()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def __call__(self, job: Job) -> None:
        if os.getpid() != self._pid:
            self._begin_process()
        with self._lock:
            self._jobs.put(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="txnsegment-aftermath", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Finish what was handed over. (By a forked child: what it handed over itself.)"""
        if os.getpid() != self._pid:
            return
        with self._lock:
            thread = self._thread
            if thread is None:
                return
            self._jobs.put(None)
        thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._attempt(job)
            while not self._jobs.empty():
                job = self._jobs.get()
                if job is None:
                    self._attempt(self._share)
                    return
                self._attempt(job)
            self._attempt(self._share)

    def _attempt(self, job: Job) -> None:
        # Nobody waits for this work and nothing depends on it: the next committer or sweeper does it again. What fails here, be it
        # an error of none of our kinds, must not end the thread: jobs would gather that nobody does.
        with contained("aftermath", "put off to the next sweep", level=logging.WARNING):
            job()


def inline(job: Job) -> None:
    """For programs that want to see the aftermath done (tests, the simulator): run it here and now."""
    job()
