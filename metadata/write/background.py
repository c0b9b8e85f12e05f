"""The work after commits, on one background thread: the events of the commits, and a bounded share of the sweeping. No commit waits
for it.

If the process dies, events may be lost, which only delays readers. The next committer or sweeper sees in the store what else is
left to do, and does it.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

from metadata.common.failures import contained

Job = Callable[[], object]
BEGIN_SECONDS = 1.0
"""How long `close` waits for a thread whose start was interrupted to begin."""


class Background:
    """Runs jobs one after the other on a background thread. `share`: a job that does a bounded part of a sweep. It runs each time
    that no more jobs wait.
    """

    def __init__(self, share: Job) -> None:
        self._share = share
        self._begin_process()

    def _begin_process(self) -> None:
        """Initialise the queue of this process. A forked child has no worker thread, and the queued jobs belong to its parent."""
        self._pid = os.getpid()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, job: Job) -> None:
        if os.getpid() != self._pid:
            self._begin_process()
        with self._lock:
            self._jobs.put(job)
            if self._thread is None or not self._thread.is_alive():
                self._begun = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._begun,), name="txnsegment-background", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait until all queued jobs are done, and end the thread. Return at once if there is no thread: no job was ever queued, or
        this process is a forked child that has queued no jobs.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            thread, begun = self._thread, self._begun
            if thread is None:
                return
            self._jobs.put(None)
        try:
            thread.join()
        except RuntimeError:  # an interrupt (Ctrl-C) ended the call that started the thread: it begins soon, or never
            if begun.wait(BEGIN_SECONDS):
                thread.join()

    def _run(self, begun: threading.Event) -> None:
        begun.set()
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
        # No exception may end the thread, because later jobs would then never run. The next committer or sweeper does what a failed
        # job has left undone. (Events are not published again. A lost event only delays a reader.)
        with contained("background", "put off to the next sweep", level=logging.WARNING):
            job()


def inline(job: Job) -> None:
    """Run the job at once. Tests and the simulator use this, because they wait for the work after a commit."""
    job()
