"""Computes whether a micro-batch waits for rows, and its end over several logs, from its limits. Pure: no I/O, no clock.

Several logs have no common order, so their ledgers are taken in the order of their publish times. In this order no log has to wait
for another log that grows without end. `transitions.limited` is the rule for a single log.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from metadata.rules.transitions import Weight


class Published(NamedTuple):
    """A visible registration: its publish time in ms, and its number, rows and bytes (`Weight`)."""

    ms: int
    weight: Weight


class LogWindow(NamedTuple):
    """The range of a log that a micro-batch may read, start < number <= end. `ledgers`: the visible ledgers above `start`,
    ascending.
    """

    start: int
    end: int
    ledgers: Iterator[Published]


def waits(unread: Iterable[Weight], *, min_rows: int, waited: float | None, patience: float) -> bool:
    """Return whether a micro-batch waits for more rows, because fewer than `min_rows` are unread. `waited`: the seconds since the
    last micro-batch with rows; None before the first one, which does not wait. After `patience` seconds none waits.
    """
    if waited is None or waited >= patience:
        return False
    rows = 0
    for weight in unread:
        rows += weight.rows
        if rows >= min_rows:
            return False
    return True


def published(weights: Iterable[Weight], times: Iterable[tuple[int, int]]) -> Iterator[Published]:
    """Yield each weight with its publish time. Both inputs are ascending by number. `times` must have every number of the weights
    and may have others.
    """
    known = iter(times)
    for weight in weights:
        yield Published(next(ms for number, ms in known if number == weight.number), weight)


def ends_by_publish_time(logs: Mapping[str, LogWindow], *, max_rows: int | None, max_bytes: int | None) -> dict[str, int]:
    """Return the end of the micro-batch in each log. A micro-batch has whole ledgers within the limits. It has at least one ledger,
    even if that ledger alone exceeds a limit.

    If all ledgers of a log are taken, the log's end is the end of its window, which may lie beyond the last ledger, for example at
    a seal.
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
