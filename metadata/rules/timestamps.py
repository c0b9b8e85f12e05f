"""The start and the end of a read by publish time, and whether the end is final (protocol.md section 6). Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


def start(published: Iterable[tuple[int, int]], timestamp_ms: int, cut: int) -> int:
    """Return the number before the first visible registration that was published at or after the timestamp. Return `cut` if there
    is none.

    `published`: (number, publish time in ms) of the visible registrations of this read up to the cut, ascending.
    """
    return end(published, timestamp_ms - 1, cut)[0]


class Above(NamedTuple):
    """A registration above the cut of a read. If it is not `visible`, it is undecided."""

    number: int
    publish_ms: int
    visible: bool


def end(
    published: Iterable[tuple[int, int]], timestamp_ms: int, cut: int, above: Iterable[Above] = (), *, closed: bool = False
) -> tuple[int, bool]:
    """Return the number before the first visible registration that was published after the timestamp, or `cut` if there is none.
    Return also whether this end is final, which means that every later read up to this timestamp has the same rows.

    `published`: as for `start`. `above`: all registrations of this read above the cut, ascending. `closed`: whether every
    registration that the log does not have yet will have a later publish time than the timestamp (`OpenTransactions.closed`,
    computed before the log was read).
    """
    latest = 0
    for number, publish_ms in published:
        latest = max(latest, publish_ms)
        if latest > timestamp_ms:
            return number - 1, True
    for one in above:
        if one.publish_ms <= timestamp_ms:
            return cut, False  # the registration may become visible, and then belongs to the read
        if one.visible:
            return cut, True  # `one` is visible and published after the timestamp, so each read by this timestamp ends below it
    return cut, closed


class OpenTransaction(NamedTuple):
    """A transaction that may still register rows."""

    txn_id: str
    created_ms: int
    deadline_ms: int
    owner: str | None


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The OPEN transactions of a cluster. `now_ms`: the store's time, read BEFORE the transactions were listed. So every
    transaction that is not in `open` has ended, or opens later than `now_ms`.

    `allowance_ms`: the largest difference between the clocks of two processes. A transaction takes its publish time after it has
    opened. But the clock of another process may differ: by that clock the publish time may lie before the opening, by
    `allowance_ms` at most.
    """

    now_ms: int
    open: tuple[OpenTransaction, ...]
    allowance_ms: int

    def holding(self, timestamp_ms: int) -> list[OpenTransaction]:
        """Return the transactions that may have a publish time at or before the timestamp."""
        return [txn for txn in self.open if txn.created_ms <= timestamp_ms + self.allowance_ms]

    def passes_in(self, timestamp_ms: int) -> int:
        """Return the milliseconds until every clock is past the timestamp (0: all clocks are past it)."""
        return max(0, timestamp_ms + self.allowance_ms + 1 - self.now_ms)

    def closed(self, timestamp_ms: int) -> bool:
        """Return whether every later registration has a publish time after the timestamp."""
        return not self.passes_in(timestamp_ms) and not self.holding(timestamp_ms)
