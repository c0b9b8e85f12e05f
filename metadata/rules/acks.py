"""The rules of acknowledgements: cursors, claims, conflicts (protocol.md section 7, Acks). PURE: no I/O, no clock.

Cursor and claims of a (segment, subscription) are ONE record (A33): who changes it sees all of it, and its CAS decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metadata.common.errors import AckConflict
from metadata.records.records import Cursor, MarkDelete, Op, OpKind, State
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, before, common, end_of, last_of, minus, texts, union


@dataclass(frozen=True, slots=True)
class Ack:
    """What is acknowledged of one segment for one subscription.

    `cumulative`: `rows` are all rows before a boundary (`up_to`), acknowledged already or not; else exactly these rows, none of
    which may have been acknowledged before.
    """

    segment: str
    subscription: str
    rows: Rows
    cumulative: bool = False


def up_to(segment: str, subscription: str, end: Row) -> Ack:
    """Everything before the boundary `end`."""
    return Ack(segment, subscription, before(end), cumulative=True)


def merged(acks: Iterable[Ack]) -> list[Ack]:
    """At most one individual and one cumulative ack for each (segment, subscription), in that order, by name; empty ones left out.

    Raises AckConflict if a row is acknowledged twice among them, one by one.
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
    """The rows that are acknowledged, claims apart."""
    return union(NONE if cursor.mark_delete is None else before(boundary(cursor.mark_delete)), cursor.acked)


def first_left(cursor: Cursor) -> Row:
    """The first row that is not acknowledged, claims apart; of what is acknowledged whole, the boundary behind it."""
    behind = done(cursor)
    return behind[0][1] if behind and behind[0][0] == FIRST else FIRST


def boundary(mark: MarkDelete) -> Row:
    return end_of(mark.ledger_id, mark.entry_id, mark.batch_index)


def with_done(cursor: Cursor, acked: Rows) -> Cursor:
    """The cursor with exactly these rows acknowledged: what reaches back to the first row is its mark-delete position."""
    mark = None
    if acked and acked[0][0] == FIRST:
        ledger_id, *more = last_of(acked[0][1])
        entry_id, batch_index = (*more, None, None)[:2]
        mark, acked = MarkDelete(ledger_id=ledger_id, entry_id=entry_id, batch_index=batch_index), acked[1:]
    return cursor.model_copy(update={"mark_delete": mark, "acked": acked})


def acknowledged(cursor: Cursor, ack: Ack, txn: str | None) -> Cursor:
    """The cursor after a plain ack (`txn` None), or with the claim of a transaction. Doing it again changes nothing for a
    transaction. Claims that are void must have been dropped before (`resolved`).

    Raises AckConflict for rows that are acknowledged already (of a cumulative ack: all of them), or claimed by another one.
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
    """The cursor once a decided transaction's claim is moved into it, or dropped. Without a claim: as it was (it is settled)."""
    claimed = cursor.claims.get(txn)
    if claimed is None:
        return cursor
    after = cursor.model_copy(update={"claims": {t: rows for t, rows in cursor.claims.items() if t != txn}})
    return with_done(after, union(done(after), claimed)) if committed else after


def resolved(cursor: Cursor, states: Mapping[str, State | None]) -> Cursor:
    """The cursor with the claims of decided transactions settled: only OPEN ones hold anything. `states`: None means gone: it
    never committed, since a header is only forgotten once nothing of it is left to settle. Unknown ones stay.
    """
    for txn in list(cursor.claims):
        if txn in states and states[txn] is not State.OPEN:
            cursor = settled(cursor, txn, committed=states[txn] is State.COMMITTED)
    return cursor


def sought(cursor: Cursor, acked: Rows) -> Cursor:
    """The cursor moved: exactly these rows count as acknowledged. Claims stay: their transactions are not asked."""
    return with_done(cursor, acked)


def op(ack: Ack) -> Op:
    """The op record of an ack: at its last position; `rows` only where one whole entry, or all up to it, does not say it."""
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
        advice="Nothing of this call or transaction counts. Another consumer of the subscription has taken them: read on from its "
        "cursor.",
    )
