"""A migrated persistent topic as a segment of the scalable topic that goes on from it (docs/in_stream.md, Migration).

Its ledgers keep their ids, which are numbers of its own log. For what is counted in numbers of the cluster's log (the cut, offsets
of streams, limits, times) the ledger `n` stands at `n + shift`: below the seal that ends the segment there, and above everything
that was in the log before the layout named it, so that no reader has passed it unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledgers.model import Ledger
from metadata.instream.migration_rules import first_needed, to_cluster, to_own, whole_transactions
from metadata.instream.reading import TopicReading
from metadata.read.segment_view import SegmentView
from metadata.records.records import Position
from metadata.records.row_ranges import Row
from metadata.rules.retention import Kept
from metadata.rules.transitions import Weight


@dataclass(frozen=True, kw_only=True)
class MigratedSegment(SegmentView):
    """`reading`: of the persistent topic, all of it decided. `seal`: its SEAL. `shift`: what is added to the id of a ledger
    (`migration_rules.shift`).
    """

    reading: TopicReading
    seal: int
    shift: int

    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        """The visible ledgers, ascending, under their own ids."""
        yield from self.reading.ledgers(self.ledger_id(after), self._end(through))

    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        for n, publish_ms in self.reading.published(self.ledger_id(after), self._end(through)):
            yield self.number(n), publish_ms

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        """What one transaction appended to the topic is one, at the last number of it, together with what lies between, so that no
        limit splits a transaction (8.9).
        """
        for one in whole_transactions(self.ledgers(after, through)):
            yield Weight(self.number(one[-1].id), sum(found.rows for found in one), sum(found.bytes for found in one))

    def kept(self, cut: int) -> Iterator[Kept]:
        """Retention takes no half of a transaction either."""
        for one in whole_transactions(self.ledgers(0, cut)):
            yield Kept(self.number(one[-1].id), max(found.publish_ms for found in one), sum(found.bytes for found in one))

    def newest(self, start: int, cut: int) -> int:
        last = self.reading.newest(self.ledger_id(start), self._end(cut))
        return start if last is None else self.number(last[0])

    def last(self, cut: int) -> tuple[int, int] | None:
        return self.reading.newest(0, self._end(cut))

    def free_to(self, needed: Row, through: int) -> int:
        """Up to before the first transaction of which somebody needs a row."""
        stays = first_needed(self.ledgers(0, through), needed)
        return through if stays is None else self.number(stays) - 1

    def number(self, ledger_id: int) -> int:
        return to_cluster(ledger_id, self.shift)

    def ledger_id(self, number: int) -> int:
        return to_own(number, self.shift)

    @property
    def last_trimmed(self) -> Position | None:
        return self.reading.topic.layout.trimmed_to

    def _end(self, through: int) -> int:
        return min(self.ledger_id(through), self.seal)
