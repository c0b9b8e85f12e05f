"""Threads of one process replay the same log at the same time. The threads are real, because simulated threads never switch while
one of them applies entries to the state (`fold`).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from conformance.simulator.store.faults import Observer
from metadata.instream import paths
from metadata.instream.managed_log import ManagedLog
from metadata.instream.replay import Replay
from metadata.records.persistent_records import Identified
from tests.support.bench import PERSISTENT, Bench

T, _ = PERSISTENT

PATIENCE = 60.0
"""The time limit in seconds for each wait of one thread for another."""


@dataclass
class Folded:
    """A state that records the number of each entry that a replay applies to it. `at`: the number of the last one."""

    at: int = 0
    numbers: list[int] = field(default_factory=list)


class Lock:
    """A lock that sets `told` when a thread has to wait for it."""

    def __init__(self, told: threading.Event) -> None:
        self._lock, self._told = threading.RLock(), told

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._told.set()
            self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


def test_a_reader_during_another_threads_fold_waits_and_does_not_fold_again() -> None:
    came = threading.Event()
    cluster = replace(Bench(topics=PERSISTENT).instream().cluster, lock=lambda: Lock(came))
    # The bench's own observer would read the `kind` of each entry, which these entries do not have. This observer does nothing.
    cluster.store.observer = Observer()  # type: ignore[attr-defined]
    log = ManagedLog(cluster.store, paths.log(T), Identified)
    for name in ("a", "b"):
        log.append(Identified(id=name))
    ours, others = threading.get_ident(), list[Future[Folded]]()

    def fold(state: Folded, number: int, entry: Identified) -> None:
        if threading.get_ident() != ours:
            came.set()  # this thread applies entries as well, so it did not wait for the lock
        elif not others:
            others.append(pool.submit(replay.now))
            assert came.wait(PATIENCE)
        state.numbers.append(number)
        state.at = number

    replay = Replay(cluster, log, paths.topic(T), Folded(), fold, lambda record: None)
    with ThreadPoolExecutor(1) as pool:
        assert replay.now().numbers == [1, 2]
        assert others[0].result(PATIENCE).numbers == [1, 2]
