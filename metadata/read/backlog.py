"""What a subscription has still to get of what a reading shows: the rows that are not acknowledged, and how far it lags behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledgers.model import Ledger
from metadata.common import metrics
from metadata.read.reading import Reading
from metadata.read.segment_view import SegmentView
from metadata.records.records import Cursor
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, common, minus, rows
from metadata.rules import acks
from metadata.rules.acks import Ack


@dataclass(frozen=True, slots=True)
class Lag:
    """Committed rows that a subscription has not acknowledged, their bytes (about, in files), and for how many seconds the first
    of them has been there. All zero: it has everything.
    """

    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Left:
    """Rows of one entry that are left: entry `entry` of the ledger's part `part`, rows `first` to before `stop` of its `of`."""

    part: int
    entry: int
    first: int
    stop: int
    of: int


def extent(ledger: Ledger) -> Rows:
    return rows([(Row(ledger.id, 0, 0), Row(ledger.id, ledger.last_entry + 1, 0))])


def behind(done: Rows) -> int:
    """The highest number at or below which every ledger is acknowledged whole."""
    return max(0, done[0][1].ledger_id - 1) if done and done[0][0] == FIRST else 0


def left_in(ledger: Ledger, done: Rows) -> list[Left]:
    """What is left of a ledger, entry by entry, in order."""
    open_rows = minus(extent(ledger), done)
    found: list[Left] = []
    at = 0
    for number, part in enumerate(ledger.parts):
        for entry, size in enumerate(part.entries):
            inside = common(open_rows, ((Row(ledger.id, at, 0), Row(ledger.id, at, size)),))
            found += [Left(number, entry, first.batch_index, end.batch_index, size) for first, end in inside]
            at += 1
    return found


Pending = Iterator[tuple[Ledger, list[Left] | None]]


def pending(segment: SegmentView, done: Rows, after: int, through: int) -> Pending:
    """The ledgers of a segment with rows that are left, and which; None: all of it. after < number <= through."""
    for ledger in segment.ledgers(max(after, segment.number(behind(done))), through):
        whole = extent(ledger)
        if not common(whole, done):
            yield ledger, None
        elif minus(whole, done) and (left := left_in(ledger, done)):
            yield ledger, left


def first_pending(reading: Reading, done: Mapping[str, Rows], through: int) -> int:
    """The number before the first ledger with rows that are left, in any segment; `through` if there is none."""
    found = [through]
    for segment in reading.segments:
        first = next(pending(segment, done.get(segment.name, NONE), 0, through), None)
        if first is not None:
            found.append(segment.number(first[0].id) - 1)
    return min(found)


def lag(reading: Reading, segment: SegmentView, done: Rows, through: int) -> Lag:
    """Of one segment. Reads the part of its snapshot that lies beyond the cursor."""
    count = size = 0
    since: int | None = None
    for ledger, left in pending(segment, done, 0, through):
        some = ledger.rows if left is None else sum(one.stop - one.first for one in left)
        count += some
        size += ledger.bytes * some // max(1, ledger.rows)
        since = ledger.publish_ms if since is None else since
    return Lag(count, size, 0.0 if since is None else max(0, reading.now_ms - since) / 1000)


def total(lags: Mapping[str, Lag]) -> Lag:
    """Of several segments together: the longest wait, the sums of the rest."""
    found = list(lags.values())
    return Lag(sum(one.rows for one in found), sum(one.bytes for one in found), max((one.seconds for one in found), default=0.0))


def measure(topic: str, subscription: str, found: Lag) -> None:
    """Show it as metrics."""
    metrics.SUBSCRIPTION_LAG_ROWS.labels(topic=topic, subscription=subscription).set(found.rows)
    metrics.SUBSCRIPTION_LAG_BYTES.labels(topic=topic, subscription=subscription).set(found.bytes)
    metrics.SUBSCRIPTION_LAG_SECONDS.labels(topic=topic, subscription=subscription).set(found.seconds)


def taken(segment: str, subscription: str, done: Rows, ledgers: list[Ledger]) -> Ack | None:
    """The ack of everything that `done` leaves of these ledgers (ascending, all that is visible beyond the cursor up to the last):
    from the last row of the one before to the last row, so that what lies between, where nothing is visible, keeps no gap open.
    """
    if not ledgers:
        return None
    ranges = minus(rows([(FIRST, extent(ledgers[-1])[0][1])]), done)
    return Ack(segment, subscription, ranges) if ranges else None


def acked(cursors: Mapping[str, Cursor]) -> dict[str, Rows]:
    return {segment: acks.done(cursor) for segment, cursor in cursors.items()}
