"""Checks a finished world by the history checker, and counts the records that remain in its store."""

from __future__ import annotations

from collections import Counter

from conformance.history.checker import check
from conformance.history.format import Counts
from conformance.simulator.seen.observer import History
from metadata.store.memory import MemoryState

COUNTED = ("/log/", "/txn/id/", "/txn/op/", "/txn/app/", "/txn/segment-state/aborted/", "/txn/segment-events/")


def violations(history: History) -> list[str]:
    """Return all violations that the checker finds, each once, as text."""
    return list(dict.fromkeys(map(str, check(history.events))))


def at_rest(history: History, state: MemoryState, applications: int, segments: int) -> None:
    """Record how many records of each kind remain, and how many may remain (invariant 14). Before the call, all transactions must
    be decided, the retention time of headers and the grace period must be over, and sweeps must have run.
    """
    counts = Counter(_kind(key.path) for key in state.records)
    allowed = {"/log/": 1, "/txn/app/": applications, "/txn/segment-events/": 3 * segments}
    history.events.append(
        Counts(
            history.now(),
            "at the end",
            {kind: counts[kind] for kind in COUNTED},
            {kind: allowed.get(kind, 0) for kind in COUNTED},
        )
    )


def _kind(path: str) -> str:
    return next((kind for kind in COUNTED if path.startswith(kind)), "")
