"""The rules of a consistent backup. They derive the content that a record has as of a number N of the log. Pure: no I/O, no clock.

A backup reads one record after the other while writers run. It reads each application record and each cursor twice, before and
after it lists the log. The content of such a record at N follows from the two reads and from the states of the transactions that
changed the record. If the content does not follow, the rules raise `Moving`, and the backup reads everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from metadata.common.errors import TxnSegmentError
from metadata.records.records import Application, Cursor, Header, Layout, State
from metadata.records.row_ranges import minus, union
from metadata.rules import acks

Teller = Callable[[str], "Told"]
"""A function that takes the id of a transaction and returns what the backup knows of this transaction."""


class Moving(TxnSegmentError):
    """A record has changed so that its content at N cannot be derived. Another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a backup knows of one transaction. `header`: its header; None if the header is gone. `settled_early`: the transaction
    had committed before this attempt of the backup read its first record.
    """

    header: Header | None
    settled_early: bool = False

    @property
    def has_committed(self) -> bool:
        return self.header is not None and self.header.state is State.COMMITTED

    def counts(self, number: int) -> bool | None:
        """Return whether the backup at `number` has the changes of the transaction. A transaction with rows counts if it has
        committed, and its registration lies at or below `number`. A transaction of acknowledgements alone has no registration. If
        it has committed, the result is True if it committed early (`settled_early`). Otherwise the result is None, because it may
        have committed between the two reads of a record.
        """
        if self.header is None or not self.has_committed:
            return False
        if self.header.commit is not None:
            return self.header.commit <= number
        return True if self.settled_early else None


@dataclass(frozen=True, slots=True)
class Written:
    """A registration of the listed log that is visible or undecided. `version`: the version that its transaction writes. `visible`:
    False if the registration is undecided.
    """

    number: int
    txn: str
    version: int
    visible: bool


def cursor_at(number: int, before: Cursor, after: Cursor, told: Teller) -> Cursor:
    """Return the cursor as of `number`, without claims. `before`, `after`: the cursor as read before and after the log was listed.

    The result has all rows that are acknowledged in `before`, and all rows that a transaction claimed there which committed at or
    below `number`. Raises Moving if other rows were acknowledged between the two reads, if it is not known whether a transaction
    with claims committed at or below `number`, or if the cursor was moved back, deleted or created again.
    """
    if before.deleted_ms != after.deleted_ms:
        raise Moving("a subscription was created or deleted meanwhile")
    was, now = acks.done(before), acks.done(after)
    if minus(was, now):
        raise Moving("a subscription was moved back meanwhile")
    # Consider the rows that were acknowledged between the two reads. If the first read shows that a transaction claims the row, and
    # this transaction committed, the transaction acknowledged the row. Otherwise an unknown consumer acknowledged it.
    unexplained = minus(now, union(was, *(rows for txn, rows in before.claims.items() if told(txn).has_committed)))
    if unexplained:
        raise Moving("rows were acknowledged meanwhile by an unknown consumer")
    acked = [was]
    for txn in sorted(before.claims.keys() | after.claims.keys()):
        said = told(txn)
        counts = said.counts(number)
        # The header of a committed transaction expires only after its claims were settled. So if both reads show the claim of a
        # transaction without a header, this transaction did not commit. If only one read shows the claim, the outcome is unknown.
        if counts is None or (said.header is None and not (txn in before.claims and txn in after.claims)):
            raise Moving(f"the transaction {txn} acknowledged rows meanwhile")
        if counts:
            acked += [claims[txn] for claims in (before.claims, after.claims) if txn in claims]
    return acks.with_done(after.model_copy(update={"claims": {}}), union(*acked))


def application_at(number: int, before: Application, after: Application, written: Sequence[Written], told: Teller) -> Application:
    """Return the application record as of the log up to `number`. Its `last_committed` is the last version that has committed at or
    below `number`, so it matches the rows in the backup. Its `current` is None.

    `before`, `after`: the application as read before and after the log was listed (`Application()` if there is no record).
    `written`: the application's registrations in the listed log. Raises Moving if an unknown transaction wrote a version between
    the two reads.
    """
    version, by = before.last_committed, before.by
    current = before.current
    known = {before.last_committed}
    if current is not None and current.version > version:
        said = told(current.txn_id)
        counts = said.counts(number)
        # Only a transaction that committed shows that its version was committed. If another attempt committed the version, the loop
        # below has to find the registration of that attempt in `written`.
        known |= {current.version} if said.has_committed else set()
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
    """Return the id of the query that wrote the version of `one`. The first read of the application does not show this version yet.
    `by`: the query that wrote the previous version. Raises Moving if the version of `one` may come from either of two queries.
    """
    if after.current is not None and after.current.txn_id == one.txn:
        return after.current.by
    if after.last_committed == one.version or after.by == by:
        return after.by
    raise Moving(f"the version {one.version} of an application was written by one of two queries")


def check_layouts(number: int, layouts: Iterable[Layout]) -> None:
    """Raise Moving if a layout shows a seal above `number`, because a topic was then split, merged or deleted during the backup."""
    for layout in layouts:
        seals = [n for info in layout.segments.values() for n in (info.sealed_at_log, info.deleted_at_log)]
        if any(n is not None and n > number for n in (*seals, layout.deleted_to_log)):
            raise Moving("a topic was split, merged or deleted meanwhile")
