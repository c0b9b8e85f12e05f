"""Faults of acknowledgements: claims, conflicts, settling, cursors (protocol.md section 7, Acks)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.mutants.planting import Real, fault
from metadata.cursors.pending_ack import PendingAcks
from metadata.records.paths import Key
from metadata.records.records import Cursor, State
from metadata.records.row_ranges import Rows, common, minus, union
from metadata.rules import acks
from metadata.rules.acks import Ack
from metadata.store.contract import ANY, Record, View

_TESTS = "tests/metadata/cursors/test_pending_ack.py"
_PENDING = "metadata.cursors.pending_ack:PendingAcks"
_ACKNOWLEDGED = "metadata.rules.acks:acknowledged"


@fault(
    "8.11",
    "While a transaction is OPEN, no other acknowledgement of the rows that it claims is accepted.",
    at=_ACKNOWLEDGED,
    by=f"{_TESTS}::test_one_of_two_transactions_that_ack_a_message_wins",
    kind="acking",
)
def claims_hold_nobody_off(real: Real, cursor: Cursor, ack: Ack, txn: str | None) -> Any:
    others = {other: rows for other, rows in cursor.claims.items() if other != txn}
    mine = {other: rows for other, rows in cursor.claims.items() if other == txn}
    after: Cursor = real(cursor.model_copy(update={"claims": mine}), ack, txn)
    return after.model_copy(update={"claims": others | after.claims})


@fault(
    "8.11",
    "An acknowledgement of acknowledged rows is refused and leaves no record.",
    at=_ACKNOWLEDGED,
    by=f"{_TESTS}::test_an_ack_of_acked_rows_is_refused_and_leaves_no_record",
    kind="acking",
)
def ack_again(real: Real, cursor: Cursor, ack: Ack, txn: str | None) -> Any:
    behind = acks.done(cursor)
    if ack.cumulative or not common(ack.rows, behind):
        return real(cursor, ack, txn)
    after = real(acks.with_done(cursor, minus(behind, ack.rows)), ack, txn)
    return acks.with_done(after, union(acks.done(after), behind))


@fault(
    "A22, 8.11",
    "The process that settles a committed transaction moves its claims into the cursor, even if the transaction's owner has died.",
    at="metadata.rules.acks:settled",
    by=f"{_TESTS}::test_a_commit_with_acks_is_atomic_at_every_step[acks-Fate.CRASH_AFTER]",
    kind="acking",
)
def acks_forgotten_at_recovery(real: Real, cursor: Cursor, txn: str, *, committed: bool) -> Any:
    return real(cursor, txn, committed=False)


@fault(
    "A23, 8.11",
    "A sweep settles an ack op record of a committed transaction before it deletes the record.",
    at=f"{_PENDING}.settle",
    within="metadata.maintenance.sweeper:Sweeper._delete_ops",
    by=f"{_TESTS}::test_a_sweeper_that_stops_anywhere_applies_each_ack_once[Fate.CRASH_BEFORE]",
    kind="acking",
)
def ops_thrown_away(real: Real, self: PendingAcks, txn_id: str, where: Any, *, committed: bool) -> Any:
    return real(self, txn_id, where, committed=False)


@fault(
    "A33, 8.11",
    "A cursor and its claims are one record. If two writers read the same cursor record, only one of their writes succeeds.",
    at="metadata.store.contract:Put.__new__",
    within=f"{_PENDING}._change",
    by=f"{_TESTS}::test_a_pending_ack_made_between_read_and_write_is_seen",
    kind="acking",
)
def cursor_without_cas(real: Real, _cls: type, key: Key, value: bytes, expect: Record | int | None, *options: Any) -> Any:
    return real(_cls, key, value, ANY, *options)


@fault(
    "A33, 8.11",
    "A writer that lost a race for a cursor has not written, even if the winner wrote an identical cursor.",
    at="metadata.cursors.pending_ack:_perhaps_done",
    by=f"{_TESTS}::test_one_of_two_plain_acks_of_a_row_wins",
    kind="acking",
)
def lost_race_taken_for_ours(real: Real, error: Exception) -> bool:
    return True


@fault(
    "A27, 8.11",
    "A cursor is read again if the header of one of its claims is gone, because the claim may have been settled meanwhile.",
    at=f"{_PENDING}._states",
    by="script acks_of_a_forgotten_transaction",
    kind="acking",
)
def forgotten_claims_believed(real: Real, self: PendingAcks, view: View, txns: Sequence[str]) -> dict[str, State]:
    return {txn: state or State.ABORTED for txn, state in real(self, view, txns).items()}


@fault(
    "8.11",
    "The cursors of a child segment exist before the layout lists that segment.",
    at="metadata.cursors.cursors:make_children",
    by=f"{_TESTS}::test_children_have_their_cursors_when_the_layout_shows_them[split-Fate.CRASH_BEFORE]",
    kind="splitting",
)
def children_without_cursors(real: Real, *arguments: Any) -> None:
    return


@fault(
    "8.14",
    "If a subscription is deleted during a split, the split deletes the cursors that it made for that subscription.",
    at="metadata.cursors.cursors:_bury",
    by=f"{_TESTS}::test_a_deleted_subscription_leaves_no_cursor_on_a_child[Fate.LOSE_REQUEST]",
    kind="acking",
)
def cursor_of_a_deleted_subscription(real: Real, *arguments: Any) -> bool:
    real(*arguments)
    return True


@fault(
    "8.11",
    "Moving a subscription keeps the claims of OPEN transactions.",
    at="metadata.rules.acks:sought",
    by="script seek_and_claims",
    kind="acking",
)
def seek_drops_claims(real: Real, cursor: Cursor, acked: Rows) -> Any:
    return real(cursor.model_copy(update={"claims": {}}), acked)


@fault(
    "7, 8.11",
    "An acknowledgement in a transaction is only a claim until the transaction commits. Then it moves into the cursor.",
    at=_ACKNOWLEDGED,
    within=f"{_PENDING}.claim",
    kind="moving",
    by="script a22_acks_of_an_open_transaction_outlive_its_owner",
)
def acks_before_the_decision(real: Real, cursor: Cursor, ack: Ack, txn: str | None) -> Any:
    return real(cursor, ack, None)
