"""The rules of acknowledgements: cursors, pending acks (claims) and conflicts (protocol.md section 7, Acks). Pure: no I/O, no
clock.

The cursor and the claims of a (segment, subscription) are in ONE record. A writer reads this record and replaces it by CAS, which
fails if another writer has changed the record since. So two conflicting acknowledgements never both succeed (failure A33,
protocol.md section 9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metadata.common.errors import AckConflict
from metadata.records.records import Cursor, MarkDelete, Op, OpKind, State
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, before, common, end_of, last_of, minus, texts, union


@dataclass(frozen=True, slots=True)
class Ack:
    """An acknowledgement of rows of one segment for one subscription.

    `cumulative`: `rows` are all rows before a boundary (`up_to`). Rows among them that are acknowledged already are no conflict.
    Without `cumulative`, each row that is acknowledged already is a conflict.
    """

    segment: str
    subscription: str
    rows: Rows
    cumulative: bool = False


def up_to(segment: str, subscription: str, end: Row) -> Ack:
    """Return the cumulative ack of all rows before the boundary `end`."""
    return Ack(segment, subscription, before(end), cumulative=True)


def merged(acks: Iterable[Ack]) -> list[Ack]:
    """Merge acks. Return at most one individual (not cumulative) ack and one cumulative ack for each (segment, subscription). They
    are sorted by segment and subscription. Acks without rows are left out.

    Raises AckConflict if two individual acks contain the same row.
    """
    found: dict[tuple[str, str, bool], Ack] = {}
    for ack in acks:
        key = (ack.segment, ack.subscription, ack.cumulative)
        known = found.get(key)
        if known is not None and not ack.cumulative and (twice := common(known.rows, ack.rows)):
            raise conflict(ack, twice, "it acknowledges them twice itself")
        if ack.rows:
            found[key] = ack if known is None else Ack(*key[:2], union(known.rows, ack.rows), ack.cumulative)
    return [found[key] for key in sorted(found)]


def done(cursor: Cursor) -> Rows:
    """Return the rows that are acknowledged in the cursor. Claimed rows are not among them."""
    return union(NONE if cursor.mark_delete is None else before(boundary(cursor.mark_delete)), cursor.acked)


def first_unacknowledged_row(cursor: Cursor) -> Row:
    """Return the first row that is not acknowledged. A claimed row counts as not acknowledged. If the acknowledged rows before the
    result end with a whole entry, the result is the boundary after that entry.
    """
    behind = done(cursor)
    return behind[0][1] if behind and behind[0][0] == FIRST else FIRST


def boundary(mark: MarkDelete) -> Row:
    return end_of(mark.ledger_id, mark.entry_id, mark.batch_index)


def with_done(cursor: Cursor, acked: Rows) -> Cursor:
    """Return the cursor with exactly these rows acknowledged. If one of their ranges starts at the first row of the segment, it is
    stored as the mark-delete position.
    """
    mark = None
    if acked and acked[0][0] == FIRST:
        ledger_id, *more = last_of(acked[0][1])
        entry_id, batch_index = (*more, None, None)[:2]
        mark, acked = MarkDelete(ledger_id=ledger_id, entry_id=entry_id, batch_index=batch_index), acked[1:]
    return cursor.model_copy(update={"mark_delete": mark, "acked": acked})


def acknowledged(cursor: Cursor, ack: Ack, txn: str | None) -> Cursor:
    """Return the cursor after an ack. A plain ack (`txn` is None) acknowledges the rows. Otherwise the transaction `txn` claims
    them. Rows that `txn` claims already stay claimed. The caller must have settled the claims of decided transactions before
    (`resolved`).

    Raises AckConflict if a row is acknowledged already (for a cumulative ack: if all rows are), or if another transaction claims
    one of the rows.
    """
    behind = done(cursor)
    mine = cursor.claims.get(txn or "", NONE)
    if ack.cumulative:
        wanted = minus(ack.rows, behind)
        if not wanted:
            raise conflict(ack, ack.rows, "all of it is acknowledged already")
    else:
        wanted = ack.rows
        if twice := common(wanted, behind):
            raise conflict(ack, twice, "they are acknowledged already")
    for other, claimed in cursor.claims.items():
        if other != txn and (held := common(wanted, claimed)):
            raise conflict(ack, held, f"transaction {other} claims them")
    if txn is None:
        return with_done(cursor, union(behind, wanted))
    return cursor.model_copy(update={"claims": {**cursor.claims, txn: union(mine, wanted)}})


def settled(cursor: Cursor, txn: str, *, committed: bool) -> Cursor:
    """Return the cursor without the claim of a decided transaction. The claimed rows are acknowledged if the transaction committed.
    A cursor without such a claim is returned unchanged.
    """
    claimed = cursor.claims.get(txn)
    if claimed is None:
        return cursor
    after = cursor.model_copy(update={"claims": {t: rows for t, rows in cursor.claims.items() if t != txn}})
    return with_done(after, union(done(after), claimed)) if committed else after


def resolved(cursor: Cursor, states: Mapping[str, State | None]) -> Cursor:
    """Return the cursor with the claims of decided transactions settled. Claims of OPEN transactions stay, and so do claims of
    transactions that are not in `states`. State None means that the transaction has no header. Such a transaction did not
    commit, because the header of a committed transaction expires only after settling.
    """
    for txn in list(cursor.claims):
        if txn in states and states[txn] is not State.OPEN:
            cursor = settled(cursor, txn, committed=states[txn] is State.COMMITTED)
    return cursor


def sought(cursor: Cursor, acked: Rows) -> Cursor:
    """Return the cursor after a seek. Exactly the rows `acked` are then acknowledged. Claims stay."""
    return with_done(cursor, acked)


def op(ack: Ack) -> Op:
    """Return the op record of an ack. The position in the record is the last position of the acknowledged rows. `rows` is left out
    if the ack is of one whole entry, or of all rows up to the end of an entry, because the position then determines the rows.
    """
    last = last_of(ack.rows[-1][1])
    ledger_id, entry_id = last[0], last[1] if len(last) > 1 else 0
    plain = len(last) == 2 and (ack.cumulative or texts(ack.rows) == [f"{ledger_id}:{entry_id}"])
    return Op(
        kind=OpKind.ACK,
        segment=ack.segment,
        subscription=ack.subscription,
        ledger_id=ledger_id,
        entry_id=entry_id,
        cumulative=True if ack.cumulative else None,
        rows=None if plain else ack.rows,
    )


def conflict(ack: Ack, held: Rows, why: str) -> AckConflict:
    shown = ", ".join(texts(held)[:3]) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
    return AckConflict(
        f"Rows {shown} of {ack.segment} cannot be acknowledged for the subscription {ack.subscription!r}: {why}.",
        advice="Nothing of this call or transaction was done. Another consumer of the subscription has the rows: continue from the "
        "subscription's cursor.",
    )
