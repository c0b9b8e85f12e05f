"""A migrated persistent topic as a segment of the scalable topic that goes on from it (docs/in_stream.md, Migration).

Its ledgers keep their ids, which are numbers of its own log. For what is counted in numbers of the cluster's log (the cut, offsets
of streams, limits, times) the ledger `n` stands at `n + shift`: below the seal that ends the segment there, and above everything
that was in the log before the layout named it, so that no reader has passed it unseen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ledgers.model import Ledger
from metadata.instream.buffer import TopicReading
from metadata.transitions import Weight


def shift(sealed_at_log: int, seal: int) -> int:
    """What is added to a ledger id: the SEAL of the persistent topic's log then stands just before the segment's seal."""
    return sealed_at_log - 1 - seal


@dataclass(frozen=True)
class LegacyView:
    """The ledgers of a migrated topic by numbers of the cluster's log. `reading`: of the persistent topic, all of it decided."""

    reading: TopicReading
    seal: int
    shift: int

    @property
    def trimmed_to(self) -> int:
        """The number at or below which rows may be gone (0: none)."""
        return self.reading.trimmed_to and self.reading.trimmed_to + self.shift

    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        """The visible ledgers with after < number <= through, ascending, under their own ids."""
        if self._end(through) > 0:
            yield from self.reading.ledgers(self._start(after), self._end(through))

    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        """(number, publish time in ms) of each, and of what was trimmed as one."""
        if self._end(through) > 0:
            for n, publish_ms in self.reading.published(self._start(after), self._end(through)):
                yield n + self.shift, publish_ms

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        """Rows and bytes, ascending: what one transaction appended to the topic is one, at the last number of it, together with
        what lies between, so that no limit splits a transaction (8.9).
        """
        found = [(f.id, f.txn, f.rows, f.bytes) for f in self.ledgers(after, through)]
        last = {txn: n for n, txn, _, _ in found if txn is not None}
        until = rows = size = 0
        for n, txn, some, more in found:
            until, rows, size = max(until, last.get(txn, n) if txn is not None else n), rows + some, size + more
            if n == until:
                yield Weight(n + self.shift, rows, size)
                rows = size = 0

    def last(self, through: int) -> tuple[int, int] | None:
        """The position of the last visible entry at or below a number."""
        if self._end(through) == self.seal:
            return self.reading.max_read_position()
        newest = deque(self.ledgers(0, through), maxlen=1)
        return (newest[0].id, newest[0].last_entry) if newest else None

    def _start(self, after: int) -> int:
        return max(0, after - self.shift)

    def _end(self, through: int) -> int:
        return min(through - self.shift, self.seal)
