"""Acknowledgements and pending acks (claims). Every change of a cursor is a CAS of its record (protocol.md section 7, Acks).
`metadata.rules.acks` has the rules.

No state is kept in memory: the claims and the cursor are one record in the store, so a crash loses neither (failures A22, A33).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from metadata.cluster.cluster import Cluster
from metadata.common.errors import AckConflict, BadVersion, TxnSegmentError, UnknownOutcome
from metadata.cursors.cursors import Where, not_found
from metadata.log import ending
from metadata.records import paths
from metadata.records.names import is_persistent, segment_name
from metadata.records.records import Cursor, Header, Layout, State
from metadata.records.row_ranges import Rows, minus
from metadata.rules import acks, transitions
from metadata.rules.acks import Ack
from metadata.store.contract import ABSENT, Put, Record, View, decide, in_groups

T = TypeVar("T")
ATTEMPTS = 100


class _LookAgain(Exception):
    """This process has just aborted an expired transaction, or a cursor has changed between two reads. The caller reads again."""


@dataclass(frozen=True)
class PendingAcks:
    """The cursors and claims of one cluster. Safe for several threads and any number of processes."""

    cluster: Cluster

    def claim(self, txn_id: str, wanted: Sequence[Ack]) -> None:
        """Claim the rows that a transaction acknowledges. Raises SubscriptionNotFound. Raises AckConflict, after which the
        transaction holds no claim.
        """
        by_cursor = _by_cursor(wanted)

        def change(where: Where, cursor: Cursor) -> Cursor:
            for ack in by_cursor[where]:
                cursor = acks.acknowledged(cursor, ack, txn_id)
            return cursor

        try:
            self._change(by_cursor, change, mine=txn_id)
        except AckConflict as error:
            try:
                self.settle(txn_id, by_cursor, committed=False)
            # If the release fails, the claim does no harm: the caller aborts the transaction next, and the next writer of the
            # cursor drops the claims of aborted transactions.
            except TxnSegmentError as second:
                error.add_note(f"The claims of transaction {txn_id} could not be released: {second}")
            raise

    def acknowledge(self, wanted: Sequence[Ack]) -> None:
        """Acknowledge without a transaction. Each cursor changes in its own CAS, so after an error some cursors may have changed.

        If a reply is lost and the rows are then found acknowledged, this call counts as successful. Raises AckConflict,
        SubscriptionNotFound.
        """
        by_cursor = _by_cursor(acks.merged(wanted))

        def change(where: Where, cursor: Cursor) -> Cursor:
            for ack in by_cursor[where]:
                cursor = acks.acknowledged(cursor, ack, None)
            return cursor

        def done_already(where: Where, cursor: Cursor) -> bool:
            return all(not minus(ack.rows, acks.done(cursor)) for ack in by_cursor[where])

        self._change(by_cursor, change, done_already=done_already)

    def advance(self, wanted: Sequence[Ack]) -> None:
        """Acknowledge cumulatively. Rows that are acknowledged already are skipped. Idempotent. Raises AckConflict,
        SubscriptionNotFound.
        """
        by_cursor = _by_cursor(wanted)

        def change(where: Where, cursor: Cursor) -> Cursor:
            for ack in by_cursor[where]:
                if minus(ack.rows, acks.done(cursor)):
                    cursor = acks.acknowledged(cursor, ack, None)
            return cursor

        self._change(by_cursor, change)

    def seek(self, to: Mapping[Where, Rows]) -> None:
        """Move cursors so that exactly the given rows count as acknowledged. Raises SubscriptionNotFound."""
        self._change(to, lambda where, cursor: acks.sought(cursor, to[where]))

    def settle(self, txn_id: str, where: Iterable[Where], *, committed: bool) -> None:
        """Move the claims of a committed transaction into the cursors, or drop those of an aborted one. Idempotent. A missing claim
        is no error: it was settled before, or its subscription was deleted.
        """
        self._change(
            dict.fromkeys(where), lambda _, cursor: acks.settled(cursor, txn_id, committed=committed), mine=txn_id, absent=True
        )

    def read(self, where: Iterable[Where]) -> dict[Where, Cursor]:
        """Return the cursors with the claims of OPEN transactions only. Raises SubscriptionNotFound."""
        wanted = list(dict.fromkeys(where))

        def body(view: View) -> dict[Where, Cursor]:
            return {place: cursor for place, (_, cursor) in self._resolved(view, wanted, mine=None, absent=False).items()}

        return self._deciding(body)

    # --- reading, resolving, writing --------------------------------------------------------------------------------

    def _change(
        self,
        where: Iterable[Where],
        change: Callable[[Where, Cursor], Cursor],
        *,
        mine: str | None = None,
        absent: bool = False,
        done_already: Callable[[Where, Cursor], bool] | None = None,
    ) -> None:
        """Change cursors by CAS, in groups. If a write loses a race or its reply, its cursors are read and changed again, one by
        one.

        The claims of decided transactions are settled before `change` is called, except those of the transaction `mine`, which
        `change` handles itself. `absent`: missing cursors are skipped. `done_already`: a function for a change that is not
        idempotent. After a lost reply it returns whether the cursor shows the effect of the change.
        """
        left = list(dict.fromkeys(where))
        sent: dict[Where, bytes] = {}  # values whose write got no reply, so the write may have been done

        def is_ours(place: Where, record: Record, cursor: Cursor) -> bool:
            before = sent.get(place)
            if before is None:
                return False
            return record.value == before or (done_already is not None and done_already(place, cursor))

        def puts(view: View) -> list[tuple[Where, Put]]:
            found = []
            for place, (record, cursor) in self._resolved(view, left, mine=mine, absent=absent).items():
                if record is not None and is_ours(place, record, cursor):
                    continue
                value = change(place, cursor).to_bytes()
                if record is None or value != record.value:
                    found.append((place, Put(paths.cursor(*place), value, expect=ABSENT if record is None else record)))
            return found

        size = 500
        for _ in range(ATTEMPTS):
            todo, left = self._deciding(puts), []
            for some in in_groups(todo, size):
                try:
                    self.cluster.store.write(*(put for _, put in some))
                except (BadVersion, UnknownOutcome) as error:
                    left += [place for place, _ in some]
                    if _perhaps_done(error):
                        sent |= {place: put.value for place, put in some}
            if not left:
                return
            size = 1
        raise BadVersion(
            f"The cursors of {', '.join(sorted({s for s, _ in left}))} were changed by other processes {ATTEMPTS} times in a row.",
            advice="Try again.",
        )

    def _resolved(
        self, view: View, where: Sequence[Where], *, mine: str | None, absent: bool
    ) -> dict[Where, tuple[Record | None, Cursor]]:
        """Return the cursors and their records. In the returned cursors the claims of decided transactions are settled. If the
        transaction of a claim has no header, the cursor's record is read again, because the claim may have been settled, and the
        header may have expired, after the first read. Raises _LookAgain if the record has changed.
        """
        records = dict(zip(where, view.get_many([paths.cursor(*w) for w in where]), strict=True)) if where else {}
        cursors = {w: Cursor.of(r) for w, r in records.items() if r is not None}
        missing = [w for w in where if w not in cursors or cursors[w].deleted_ms is not None]
        if absent:
            where = [w for w in where if w not in missing]
        elif missing:
            self._check_children(view, missing, cursors)
            cursors |= {w: Cursor() for w in missing}
        txns = sorted({t for w in where for t in cursors[w].claims if t != mine})
        if not txns:
            return {w: (records[w], cursors[w]) for w in where}
        states = self._states(view, txns)
        if None in states.values():
            doubted = [w for w in where if any(states.get(t, State.OPEN) is None for t in cursors[w].claims)]
            again = view.get_many([paths.cursor(*w) for w in doubted])
            if any(now is None or now.version != _version(records[w]) for w, now in zip(doubted, again, strict=True)):
                raise _LookAgain
        return {w: (records[w], acks.resolved(cursors[w], states)) for w in where}

    def _states(self, view: View, txns: Sequence[str]) -> Mapping[str, State | None]:
        found: dict[str, State | None] = {}
        for txn, record in zip(txns, view.get_many([paths.header(t) for t in txns]), strict=True):
            header = None if record is None else Header.of(record)
            found[txn] = None if header is None else header.state
            if record is None or header is None or self.cluster.store.read_only:
                continue
            if transitions.expired(header, view.now_ms(), self.cluster.settings.deadline_allowance_ms):
                ending.end(self.cluster.store, record, State.ABORTED, now_ms=view.now_ms())
                raise _LookAgain
        return found

    def _check_children(self, view: View, missing: Sequence[Where], cursors: Mapping[Where, Cursor]) -> None:
        """Raise SubscriptionNotFound for a missing cursor, unless it belongs to a child of a split or merge and a parent has a
        cursor of the subscription. Such a cursor counts as created at the child's first row, even if a crash prevented its
        creation.
        """
        for where in missing:
            segment, subscription = where
            if is_persistent(segment):  # a migrated topic's first segment has no parents
                raise not_found(segment, subscription)
            name = segment_name(segment)
            record = view.get(paths.topic(name.topic))
            info = None if record is None else Layout.of(record).segments.get(str(name.segment_id))
            # the cursor is a tombstone, or the segment has no parents
            if where in cursors or info is None or not info.parent_ids or record is None:
                raise not_found(name.topic, subscription)
            parents = [Layout.of(record).segments.get(str(i)) for i in info.parent_ids]
            names = [p.full_name(name.topic) for p in parents if p is not None]
            found = [Cursor.of(r) for r in view.get_many([paths.cursor(n, subscription) for n in names]) if r is not None]
            if not any(cursor.deleted_ms is None for cursor in found):
                raise not_found(name.topic, subscription)

    def _deciding(self, body: Callable[[View], T]) -> T:
        while True:
            try:
                return decide(self.cluster.store, body)
            except _LookAgain:
                continue


def _perhaps_done(error: BadVersion | UnknownOutcome) -> bool:
    """Return whether a write that raised this error may have taken effect. A write that lost a race (BadVersion) has not."""
    return isinstance(error, UnknownOutcome)


def _version(record: Record | None) -> int | None:
    return None if record is None else record.version


def _by_cursor(wanted: Iterable[Ack]) -> dict[Where, list[Ack]]:
    found: dict[Where, list[Ack]] = {}
    for ack in wanted:
        found.setdefault((ack.segment, ack.subscription), []).append(ack)
    return found
