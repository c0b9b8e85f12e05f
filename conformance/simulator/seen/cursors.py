"""Interprets a write of a cursor record from its JSON alone. The write may add, commit or drop pending acks, and may acknowledge
rows without a transaction.

The module has its own arithmetic on ranges, so that it detects errors in the product's arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from conformance.history.format import Place

WIDE = 10**9
"""A number that is larger than the number of rows of any entry and the number of entries of any ledger."""
LAST_ENTRY = WIDE - 1
"""The number of the last entry in a range that covers a whole ledger."""
Covered = list[tuple[int, int]]
"""Ranges of rows, by the numbers that `_number` gives to rows. Each range is a pair (first number, last number + 1). The ranges are
ascending and do not touch.
"""


def changes(
    before: bytes | None,
    after: bytes | None,
    *,
    plain: Callable[[str], bool],
    committed: Callable[[str], bool],
    moving: bool = False,
) -> Iterator[tuple[str, tuple[tuple[Place, Place], ...], str | None]]:
    """Yield the changes of one write, in the order in which they take effect. Each change is a tuple: the state (as in `Ack`, or
    `moved back`), the positions, the transaction.

    `plain`: tells whether the writer may drop the pending ack of a transaction to acknowledge the same rows itself. `committed`:
    tells whether a transaction has committed. `moving`: whether the writer creates or moves the subscription.
    """
    old, new = ({} if body is None else json.loads(body) for body in (before, after))
    if after is None:
        return
    if "deletedMs" in new:
        if before is not None and "deletedMs" not in old:
            yield "deleted", (), None
        return
    was, now = acknowledged(old), acknowledged(new)
    claimed, claims = old.get("claims", {}), new.get("claims", {})
    if (moving and (before is not None or now)) or "deletedMs" in old:
        for txn, held in claimed.items():  # a writer that moves the cursor settles the decided pending acks
            if gone := minus(covered(held), covered(claims.get(txn, []))):
                yield "acked" if committed(txn) else "released", positions(gone), txn
        yield "moved", positions(now), None
        return
    moved: Covered = []
    for txn, held in claimed.items():
        gone = minus(covered(held), covered(claims.get(txn, [])))
        over = [] if committed(txn) else common(gone, was)  # a seek has acknowledged these rows while they were pending
        kept = [] if plain(txn) else minus(common(gone, now), over)
        if kept:
            yield "acked", positions(kept), txn
        if left := join([*minus(gone, now), *over]):
            yield "released", positions(left), txn
        moved += kept
    if more := minus(minus(now, was), join(moved)):
        yield "acked", positions(more), None
    if lost := minus(was, now):
        yield "moved back", positions(lost), None
    for txn, held in claims.items():
        if taken := minus(covered(held), covered(claimed.get(txn, []))):
            yield "pending", positions(taken), txn


def lacks(cursor: bytes, last: tuple[int, int]) -> bool:
    """Return whether a cursor lacks the acknowledgement of a row up to the end of the entry `last` (ledger, entry). Return False
    for a tombstone.
    """
    record = json.loads(cursor)
    upto = _number(f"{last[0]}:{last[1]}", 1)
    return "deletedMs" not in record and bool(minus([(0, upto)], acknowledged(record)))


def acknowledged(record: Any) -> Covered:
    """Return the rows that a cursor's record shows as acknowledged."""
    mark = record.get("markDelete")
    if mark is None:
        return covered(record.get("acked", []))
    last = ":".join(str(mark[name]) for name in ("ledgerId", "entryId", "batchIndex") if name in mark)
    return join([(0, covered([last])[0][1]), *covered(record["acked"])])


def covered(texts: Iterable[str]) -> Covered:
    found = []
    for text in texts:
        first, _, last = text.partition("..")
        found.append((_number(first, 0), _number(last or first, 1)))
    return join(found)


def _number(text: str, more: int) -> int:
    """Return the number that this module gives to a position. `text`: the position of a ledger, an entry or a row. A ledger or an
    entry has the number of its first row. If `more` is 1, return the first number after the ledger, entry or row. Later positions
    have higher numbers.
    """
    parts = [int(part) for part in text.split(":")]
    parts[-1] += more
    ledger, entry, index = (*parts, 0, 0)[:3]
    return (ledger * WIDE + entry) * WIDE + index


def join(ranges: Iterable[tuple[int, int]]) -> Covered:
    found: Covered = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif first < end:
            found.append((first, end))
    return found


def minus(one: Covered, other: Covered) -> Covered:
    for first, end in other:
        one = [piece for a, b in one for piece in ((a, min(b, first)), (max(a, end), b)) if piece[0] < piece[1]]
    return one


def common(one: Covered, other: Covered) -> Covered:
    return minus(one, minus(one, other))


def positions(ranges: Covered) -> tuple[tuple[Place, Place], ...]:
    """Return ranges as pairs of positions, both inclusive. If a range begins or ends within an entry, that position names a row."""
    return tuple((_place(first, first % WIDE == 0), _place(end - 1, end % WIDE == 0)) for first, end in ranges)


def _place(number: int, whole: bool) -> Place:
    entry, index = divmod(number, WIDE)
    ledger, entry = divmod(entry, WIDE)
    return (ledger, entry) if whole else (ledger, entry, index)
