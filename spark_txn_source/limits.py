"""How far a micro-batch of several logs goes within its limits. PURE: no I/O, no clock.

The one log of topic:// and the log of each persistent topic have no order among each other; what was published first is read first,
so that no log waits for another one that never ends. `transitions.limited` is the rule of a single log.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from metadata.rules.transitions import Weight


class Published(NamedTuple):
    """A ledger's weight and publish time (ms)."""

    ms: int
    weight: Weight


class Stretch(NamedTuple):
    """What there is of a log beyond the start of a micro-batch: its visible ledgers, ascending, and where it ends at most."""

    start: int
    end: int
    ledgers: Iterator[Published]


def published(weights: Iterable[Weight], times: Iterable[tuple[int, int]]) -> Iterator[Published]:
    """Both are ascending by number; the times have every number of the weights, and perhaps others."""
    known = iter(times)
    for weight in weights:
        yield Published(next(ms for number, ms in known if number == weight.number), weight)


def limited(logs: Mapping[str, Stretch], *, max_rows: int | None, max_bytes: int | None) -> dict[str, int]:
    """Where the micro-batch ends in each log: whole ledgers within the limits, but never fewer than one of all.

    A log of which nothing is left within its stretch is read to the stretch's end, also beyond its last ledger (a seal, say).
    """
    ends = {name: one.start for name, one in logs.items()}
    heads: list[tuple[int, str, Weight]] = []

    def advance(name: str) -> None:
        found = next(logs[name].ledgers, None)
        if found is None or found.weight.number > logs[name].end:
            ends[name] = logs[name].end
        else:
            heapq.heappush(heads, (found.ms, name, found.weight))

    for name in logs:
        advance(name)
    rows = size = taken = 0
    while heads:
        _, name, weight = heapq.heappop(heads)
        rows += weight.rows
        size += weight.bytes
        over = (max_rows is not None and rows > max_rows) or (max_bytes is not None and size > max_bytes)
        if over and taken:
            break
        taken += 1
        ends[name] = weight.number
        if over:
            break
        advance(name)
    return ends
