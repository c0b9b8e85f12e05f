"""The unacknowledged rows of a subscription in a reading, and the subscription's lag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
    """The lag of a subscription. `rows`: the committed rows that it has not acknowledged. `bytes`: their approximate size in files.
    `seconds`: the age of the oldest of them. All are zero if every row is acknowledged.
    """

    rows: int
    bytes: int
    seconds: float

    def _repr_html_(self) -> str:
        from metadata.common.html import described  # imported late, because every Spark process that plans a read has this module

        return described(self)


@dataclass(frozen=True, slots=True)
class Left:
    """Unacknowledged rows of one entry: those whose index in the entry is at least `first` and less than `stop`. `of`: how many
    rows the entry has. `part`: the index of the entry's part in the ledger. `entry`: the index of the entry in the part.
    """

    part: int
    entry: int
    first: int
    stop: int
    of: int


def all_rows(ledger: Ledger) -> Rows:
    """Return all rows of a ledger as one range."""
    return rows([(Row(ledger.id, 0, 0), Row(ledger.id, ledger.last_entry + 1, 0))])


def acknowledged_through(done: Rows) -> int:
    """Return a ledger id up to which every ledger is wholly acknowledged (0: none). `done`: the acknowledged rows. If the first
    range of `done` ends within a ledger or after its last entry, this ledger does not count, because `done` does not tell how many
    entries the ledger has.
    """
    return max(0, done[0][1].ledger_id - 1) if done and done[0][0] == FIRST else 0


def left_in(ledger: Ledger, done: Rows) -> list[Left]:
    """Return the unacknowledged rows of a ledger, in order. `done`: the acknowledged rows."""
    open_rows = minus(all_rows(ledger), done)
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
    """Yield each ledger of a segment that has unacknowledged rows and a number with after < number <= through. Each ledger comes
    with its unacknowledged rows. None in place of these rows means that no row of the ledger is acknowledged.
    """
    for ledger in segment.ledgers(max(after, segment.number(acknowledged_through(done))), through):
        whole = all_rows(ledger)
        if not common(whole, done):
            yield ledger, None
        elif minus(whole, done) and (left := left_in(ledger, done)):
            yield ledger, left


def first_pending(reading: Reading, done: Mapping[str, Rows], through: int) -> int:
    """Return the number before the first ledger with unacknowledged rows in any segment. Return `through` if no ledger up to
    `through` has unacknowledged rows. `done`: the acknowledged rows by segment.
    """
    found = [through]
    for segment in reading.segments:
        first = next(pending(segment, done.get(segment.name, NONE), 0, through), None)
        if first is not None:
            found.append(segment.number(first[0].id) - 1)
    return min(found)


def lag(reading: Reading, segment: SegmentView, done: Rows, through: int) -> Lag:
    """Return the lag in one segment. `done`: the acknowledged rows. The call reads only the part of the index snapshot above the
    mark-delete position.
    """
    return lag_of(pending(segment, done, 0, through), reading.now_ms)


def lag_of(ledgers: Iterable[tuple[Ledger, list[Left] | None]], now_ms: int) -> Lag:
    """Return the lag of ledgers with their unacknowledged rows, as `pending` yields them."""
    count = size = 0
    since: int | None = None
    for ledger, left in ledgers:
        some = ledger.rows if left is None else sum(one.stop - one.first for one in left)
        count += some
        size += ledger.bytes * some // max(1, ledger.rows)
        since = ledger.publish_ms if since is None else since
    return Lag(count, size, 0.0 if since is None else max(0, now_ms - since) / 1000)


def total(lags: Mapping[str, Lag]) -> Lag:
    """Return the lag over several segments: the sum of the rows, the sum of the bytes, and the greatest age."""
    found = list(lags.values())
    return Lag(sum(one.rows for one in found), sum(one.bytes for one in found), max((one.seconds for one in found), default=0.0))


def measure(topic: str, subscription: str, found: Lag) -> None:
    """Set the metrics of a subscription's lag."""
    metrics.SUBSCRIPTION_LAG_ROWS.labels(topic=topic, subscription=subscription).set(found.rows)
    metrics.SUBSCRIPTION_LAG_BYTES.labels(topic=topic, subscription=subscription).set(found.bytes)
    metrics.SUBSCRIPTION_LAG_SECONDS.labels(topic=topic, subscription=subscription).set(found.seconds)


def taken(segment: str, subscription: str, done: Rows, ledgers: list[Ledger]) -> Ack | None:
    """Return an ack of all rows of `ledgers` that are not in `done`. Return None if there are no such rows.

    `ledgers`: the visible ledgers from the cursor on, ascending, none left out. The ack also covers all positions before and
    between these ledgers, where no other row is visible. So after this ack all rows up to the end of the last ledger form one
    acknowledged range.
    """
    if not ledgers:
        return None
    ranges = minus(rows([(FIRST, all_rows(ledgers[-1])[0][1])]), done)
    return Ack(segment, subscription, ranges) if ranges else None


def acked(cursors: Mapping[str, Cursor]) -> dict[str, Rows]:
    return {segment: acks.done(cursor) for segment, cursor in cursors.items()}
