"""The rules of a consistent backup: what each record said when the log up to a number N was decided. PURE: no I/O, no clock.

A backup reads one record after the other while everybody writes. It never has to guess: what a record said at N is worked out from
two readings of it, one before and one after the log was listed, and from what is known of each transaction that may have come in
between. Where that does not say it (`Moving`) the backup is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from metadata.common.errors import TxnSegmentError
from metadata.records.records import Application, Cursor, Header, Layout, State
from metadata.records.row_ranges import minus, union
from metadata.rules import acks

Teller = Callable[[str], "Told"]
"""What is known of a transaction, by its id."""


class Moving(TxnSegmentError):
    """Something changed in a way that leaves open what it was at N. The next reading is likely to be luckier."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one transaction. `header` None: gone. `settled_early`: its header had been read COMMITTED before the first
    of the readings began, so all that it changed stands in all of them.
    """

    header: Header | None
    settled_early: bool = False

    @property
    def has_committed(self) -> bool:
        return self.header is not None and self.header.state is State.COMMITTED

    def counts(self, number: int) -> bool | None:
        """Whether it belongs to the log up to `number`; None: it has no number (acknowledgements alone), and may have been decided
        between the readings."""
        if self.header is None or not self.has_committed:
            return False
        if self.header.commit is not None:
            return self.header.commit <= number
        return True if self.settled_early else None


@dataclass(frozen=True, slots=True)
class Written:
    """A registration of the listed log that counts or may yet: its transaction, the application's version that it wrote, whether it
    is visible."""

    number: int
    txn: str
    version: int
    visible: bool


def cursor_at(number: int, before: Cursor, after: Cursor, told: Teller) -> Cursor:
    """A cursor without claims, with what is acknowledged by transactions up to `number`, and without one before the readings.

    `before`, `after`: read before and after the log was listed. What was acknowledged in between counts if it was claimed by a
    transaction that counts; acknowledgements of others come later, or are made again. Raises Moving for rows whose owner cannot be
    told, for a cursor that was moved back, and for one that was deleted or made again meanwhile.
    """
    if before.deleted_ms != after.deleted_ms:
        raise Moving("a subscription was made or deleted meanwhile")
    was, now = acks.done(before), acks.done(after)
    if minus(was, now):
        raise Moving("a subscription was moved back meanwhile")
    # Only a claim that was settled explains new rows: one that was dropped left them to somebody else.
    unexplained = minus(now, union(was, *(rows for txn, rows in before.claims.items() if told(txn).has_committed)))
    if unexplained:
        raise Moving("rows were acknowledged meanwhile by somebody who cannot be told")
    acked = [was]
    for txn in sorted(before.claims.keys() | after.claims.keys()):
        said = told(txn)
        counts = said.counts(number)
        # A header is forgotten once its claims are settled: gone, with its claim still there, it never committed.
        if counts is None or (said.header is None and not (txn in before.claims and txn in after.claims)):
            raise Moving(f"the transaction {txn} acknowledged rows meanwhile")
        if counts:
            acked += [claims[txn] for claims in (before.claims, after.claims) if txn in claims]
    return acks.with_done(after.model_copy(update={"claims": {}}), union(*acked))


def application_at(number: int, before: Application, after: Application, written: Sequence[Written], told: Teller) -> Application:
    """An application as it was when the log up to `number` was decided and all of it had been raised: `lastCommitted` is the
    version of its last transaction that counts, never less than what is visible, nor more; nothing is `current`.

    `before`, `after`: read before and after the log was listed (an application without a record is `Application()`). `written`: its
    registrations in the listed log. Raises Moving where a version in between came from nobody who is known.
    """
    version, by = before.last_committed, before.by
    current = before.current
    known = {before.last_committed}
    if current is not None and current.version > version:
        said = told(current.txn_id)
        counts = said.counts(number)
        known |= {current.version} if said.has_committed else set()  # else another attempt did it, and has to be known
        if counts is None or (said.header is None and after != before):
            raise Moving(f"the transaction {current.txn_id} was decided meanwhile")
        if counts:
            version, by = current.version, current.by
    for one in written:
        known.add(one.version)
        if one.visible and one.number <= number and one.version > version:
            version, by = one.version, _by(one, after, by)
    if after.last_committed not in known:
        raise Moving(f"version {after.last_committed} of an application was committed meanwhile")
    return before.model_copy(update={"last_committed": version, "by": by, "current": None})


def _by(one: Written, after: Application, by: str | None) -> str | None:
    """On whose behalf a version was written that the reading before did not know of."""
    if after.current is not None and after.current.txn_id == one.txn:
        return after.current.by
    if after.last_committed == one.version or after.by == by:
        return after.by
    raise Moving(f"the version {one.version} of an application was written by one of two queries")


def check_layouts(number: int, layouts: Iterable[Layout]) -> None:
    """Raises Moving if a layout shows a seal above `number`: it was split, merged or deleted meanwhile."""
    for layout in layouts:
        seals = [n for info in layout.segments.values() for n in (info.sealed_at_log, info.deleted_at_log)]
        if any(n is not None and n > number for n in (*seals, layout.deleted_to_log)):
            raise Moving("a topic was split, merged or deleted meanwhile")
