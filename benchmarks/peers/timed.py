"""Seconds on the clock and seconds of processor time of a block."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from conformance.processes import processes


def processor_seconds(roots: Sequence[int]) -> float:
    """Return the seconds of processor time that these processes and all processes below them took, and that their ended children
    took.
    """
    found = {one.pid: one for one in processes()}
    children: dict[int, list[int]] = defaultdict(list)
    for one in found.values():
        children[one.parent].append(one.pid)
    total, rest = 0.0, [pid for pid in roots if pid in found]
    while rest:
        pid = rest.pop()
        total += found[pid].processor
        rest += children[pid]
    return total


@dataclass
class Timed:
    """Times a block. `servers`: the ids of processes outside this one that work for it."""

    servers: Sequence[int] = ()
    seconds: float = 0.0
    processor: float = 0.0

    def _processor(self) -> float:
        return processor_seconds([os.getpid(), *self.servers])

    def __enter__(self) -> Self:
        self.processor, self.seconds = self._processor(), time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self.seconds
        self.processor = self._processor() - self.processor

    def result(self) -> dict[str, float]:
        return {"seconds": round(self.seconds, 4), "processor": round(self.processor, 3)}


def median(runs: Sequence[Timed]) -> Timed:
    """Return the run whose seconds are the median (the lower one of two)."""
    return sorted(runs, key=lambda one: one.seconds)[(len(runs) - 1) // 2]


def spread(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the number of values, and some of their percentiles."""
    ordered = sorted(milliseconds)

    def at(percent: int) -> float:
        return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 1)

    return {"n": len(ordered), "p50": round(statistics.median(ordered), 1), "p95": at(95), "p99": at(99), "max": at(100)}
