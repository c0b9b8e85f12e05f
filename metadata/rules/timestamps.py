"""Where a read by publish time starts and ends, and when that is final (protocol.md section 6). PURE: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


def start(published: Iterable[tuple[int, int]], timestamp_ms: int, cut: int) -> int:
    """The number before the first visible registration whose publish time (as running maximum) is >= the timestamp, else `cut`.

    `published`: (number, publish ms) of the visible registrations of this read up to the cut, ascending.
    """
    return end(published, timestamp_ms - 1, cut)[0]


class Above(NamedTuple):
    """A registration of a read above the read's cut: `visible`, or not decided yet."""

    number: int
    publish_ms: int
    visible: bool


def end(
    published: Iterable[tuple[int, int]], timestamp_ms: int, cut: int, above: Iterable[Above] = (), *, closed: bool = False
) -> tuple[int, bool]:
    """The number before the first visible registration whose publish time (as running maximum) is > the timestamp, else `cut`; and
    whether that is final, which means that every later read by this timestamp ends before the same visible registration.

    `published`: as for `start`. `above`: the registrations of this read above the cut, ascending, all that the log had. `closed`:
    whatever the log did not have yet is published after the timestamp (`OpenTransactions.closed`, looked at before the log).
    """
    latest = 0
    for number, publish_ms in published:
        latest = max(latest, publish_ms)
        if latest > timestamp_ms:
            return number - 1, True
    for one in above:
        if one.publish_ms <= timestamp_ms:
            return cut, False  # it may become visible, and so belong to the read
        if one.visible:
            return cut, True  # what comes after it is behind the end, whenever it was published
    return cut, closed


class OpenTransaction(NamedTuple):
    """A transaction that may still register rows."""

    txn_id: str
    created_ms: int
    deadline_ms: int
    owner: str | None


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The OPEN transactions of a cluster. `now_ms`: the store's time, read BEFORE them: who is not among them opens after it.

    A publish time is taken once its transaction is open. `allowance_ms`: by how much the clocks of two processes may differ.
    """

    now_ms: int
    open: tuple[OpenTransaction, ...]
    allowance_ms: int

    def holding(self, timestamp_ms: int) -> list[OpenTransaction]:
        """Those that may have taken a publish time at or before the timestamp."""
        return [txn for txn in self.open if txn.created_ms <= timestamp_ms + self.allowance_ms]

    def passes_in(self, timestamp_ms: int) -> int:
        """Milliseconds until no clock shows the timestamp any more (0: it has passed)."""
        return max(0, timestamp_ms + self.allowance_ms + 1 - self.now_ms)

    def closed(self, timestamp_ms: int) -> bool:
        """Whether all that is registered after this look is published after the timestamp."""
        return not self.passes_in(timestamp_ms) and not self.holding(timestamp_ms)
