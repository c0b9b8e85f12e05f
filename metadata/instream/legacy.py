"""A migrated persistent topic as a segment of its successor topic (docs/in_stream.md, Migration).

The ledgers of the segment keep their ids, which are numbers of the persistent topic's own log. In the cluster's log (for the cut,
stream offsets, limits and times) the ledger `n` has the number `n + shift`. This number lies below the seal that ends the segment.
It lies above every entry that the cluster's log had before the successor's layout named the segment. So no reader that did not know
the segment has read beyond this number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledgers.model import Ledger
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.reading import TopicReading
from metadata.read.marker_model import MigratedSegment, Taken
from metadata.records.records import Position, Watermark
from metadata.records.row_ranges import Row
from metadata.rules.migrated import first_needed, gone_to, to_cluster, to_own, whole_transactions
from metadata.rules.retention import Kept
from metadata.rules.transitions import Weight


@dataclass(frozen=True, kw_only=True)
class LegacySegment(MigratedSegment):
    """A migrated topic as a segment. The parameters `after`, `start`, `through` and `cut` are numbers of the cluster's log.
    `reading`: a reading of the persistent topic's own log, in which everything is decided. `seal`: the number of its SEAL. `shift`:
    the offset added to a ledger id (`metadata.rules.migrated.shift`).
    """

    buffer: InStreamBuffer
    reading: TopicReading
    seal: int
    shift: int

    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        """Yield the visible ledgers, ascending, under their own ids."""
        yield from self.reading.ledgers(self.ledger_id(after), self._end(through))

    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        for n, publish_ms in self.reading.published(self.ledger_id(after), self._end(through)):
            yield self.number(n), publish_ms

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        """Yield one weight for each group of whole transactions, at the last number of the group. A group also has all ledgers that
        lie between the ledgers of its transactions. So no limit splits a transaction (8.9).
        """
        for one in whole_transactions(self.ledgers(after, through)):
            yield Weight(self.number(one[-1].id), sum(found.rows for found in one), sum(found.bytes for found in one))

    def kept(self, cut: int) -> Iterator[Kept]:
        """Yield one `Kept` for each group of whole transactions (see `weights`), so that retention splits no transaction."""
        for one in whole_transactions(self.ledgers(0, cut)):
            yield Kept(self.number(one[-1].id), max(found.publish_ms for found in one), sum(found.bytes for found in one))

    def newest(self, start: int, cut: int) -> int:
        last = self.reading.newest(self.ledger_id(start), self._end(cut))
        return start if last is None else self.number(last[0])

    def last(self, cut: int) -> tuple[int, int] | None:
        return self.reading.newest(0, self._end(cut))

    def free_to(self, needed: Row, through: int) -> int:
        """Return the highest number, at most `through`, below the first group of whole transactions that has a needed row."""
        stays = first_needed(self.ledgers(0, through), needed)
        return through if stays is None else self.number(stays) - 1

    def number(self, ledger_id: int) -> int:
        return to_cluster(ledger_id, self.shift)

    def ledger_id(self, number: int) -> int:
        return to_own(number, self.shift)

    @property
    def last_trimmed(self) -> Position | None:
        return self.reading.topic.layout.trimmed_to

    def trim(self, through: int) -> Taken | None:
        from metadata.instream.topics import PersistentTopics
        from metadata.instream.trimming import trim_log  # imported late: readers need neither

        if next(self.ledgers(0, through), None) is None:
            return None
        stays = next((found.id for found in self.ledgers(through, self.number(self.seal))), None)
        taken = trim_log(self.buffer, PersistentTopics(self.buffer.cluster), self.reading, gone_to(stays, self.seal))
        return Taken(taken.rows, taken.bytes) if taken.rows else None

    def mark(self) -> Watermark:
        assert self.sealed_at is not None
        trimmed_ms = self.reading.topic.layout.trimmed_ms
        return Watermark(ledger_id=self.sealed_at, entry_id=0, trimmed_to=self.last_trimmed, trimmed_ms=trimmed_ms)

    def guard(self) -> Watermark:
        found = self.mark()
        last = found.trimmed_to
        place = None if last is None else Position(ledger_id=self.number(last.ledger_id), entry_id=last.entry_id)
        return found.model_copy(update={"trimmed_to": place})

    def _end(self, through: int) -> int:
        return min(self.ledger_id(through), self.seal)
