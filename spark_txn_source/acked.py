"""The acknowledged and the unacknowledged rows of a subscription."""

from __future__ import annotations

from collections.abc import Mapping

from ledgers.model import Ledger
from metadata.client.client import Client
from metadata.read.backlog import acked, pending
from metadata.read.reading import Reading
from metadata.read.segment_view import SegmentView
from metadata.read.selection import LOG
from metadata.records.row_ranges import Rows, before, end_of, last_of, minus, union
from spark_txn_source.offsets import StreamOffset


def acknowledged(client: Client, reading: Reading, subscription: str) -> dict[str, Rows]:
    """Return the rows that a subscription has acknowledged, for each segment of a reading. Raises SubscriptionNotFound."""
    from metadata.client.providers import Providers  # imported late, because most reads have no subscription

    names = [segment.name for segment in reading.segments]
    cursors = Providers(client).of(names).acks.read((name, subscription) for name in names)
    return acked({segment: cursor for (segment, _), cursor in cursors.items()})


def ledger_at(segment: SegmentView, numbers: Mapping[str, int], log: str = LOG) -> int:
    """Return the highest ledger id that a ledger of the segment can have at or below an offset. `numbers`: the number that the
    offset has for each log, by the log's name. A persistent topic that is read from its own log is the only segment of this log,
    and the number of this log is the ledger id. For any other segment the ledger id is computed from the number of `log`.
    """
    return numbers[segment.name] if segment.name in numbers else segment.ledger_id(numbers.get(log, 0))


def first_unacknowledged_ledger(segment: SegmentView, done: Rows, among: Rows) -> Ledger | None:
    """Return the first ledger of a segment that has a row in `among` and not in `done`, or None if no ledger has such a row."""
    if not among:
        return None
    last = last_ledger(among)
    others = minus(before(end_of(last)), among)
    return next((ledger for ledger, _ in pending(segment, union(done, others), 0, segment.number(last))), None)


def last_ledger(rows: Rows) -> int:
    """Return the id of the last ledger in a set of rows, or 0 if the set is empty."""
    return last_of(rows[-1][1])[0] if rows else 0


def acked_when_planned(client: Client, offset: StreamOffset) -> Mapping[str, int]:
    """Return, for each log, the number up to which all rows were acknowledged when the offset was planned. For an offset from
    before a restore return nothing, because the restored cursors may be older.
    """
    return offset.acked_to if offset.cluster == client.cluster.id else {}
