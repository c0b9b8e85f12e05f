"""The history checker judges what readers of a Pulsar topic saw: duplicates, losses, torn transactions, reordered rows."""

from __future__ import annotations

from conformance.history.checker import check
from conformance.history.files import merge
from conformance.history.format import Start
from conformance.pulsar_chaos.seen import Got, Look, Segment, translated, without
from conformance.scenarios.history import commit, committed, written

TOPIC = "topic://public/default/t"
A, B = (f"segment://public/default/t/{name}" for name in ("0000-7fff-0", "8000-ffff-1"))
CHILD = "segment://public/default/t/0000-3fff-2"
SEGMENTS = [Segment(A, 0, ()), Segment(B, 1, ())]


def rows_of(batch: int, txn: str | None = None, ledger: int = 7) -> list[Got]:
    """Return the rows of a batch as readers get them. Rows whose key has an even number are in A, the others in B. An entry has
    three rows.
    """
    found: list[Got] = []
    counts = {A: 0, B: 0}
    for key, seq, _, _ in written(batch):
        segment = A if int(key[4:]) % 2 == 0 else B
        entry, nth = divmod(counts[segment], 3)
        counts[segment] += 1
        found.append(Got(str(seq), key, segment, ledger, 100 * batch + entry, nth, txn or f"0_{batch}"))
    return found


def anomalies(looks: list[Look], batches: int = 3, segments: list[Segment] = SEGMENTS) -> set[str]:
    """Return the anomalies that the checker finds in these looks. The job knows at time 50 that all its batches are committed."""
    job = [commit(batch, batch, TOPIC) for batch in range(batches)] + [committed(50, batch) for batch in range(batches)]
    history = merge([[Start(0, "test", spanning=True)], job, translated(looks, segments, TOPIC)])
    return {one.anomaly for one in check(history)}


def read(*batches: list[Got], at: float = 60, final: bool = True) -> Look:
    return Look(at, at - 1, "reader", tuple(row for rows in batches for row in rows), None, final)


ALL = [rows_of(0), rows_of(1), rows_of(2)]


def test_nothing_is_found_in_whole_transactions() -> None:
    polls = [Look(20, 19, "stream", tuple(ALL[0]), 0), Look(21, 20, "stream", (*ALL[1], *ALL[2]), 1)]
    assert anomalies([read(ALL[0], at=10, final=False), *polls, read(*ALL)]) == set()


def test_a_lost_row_is_found() -> None:
    assert anomalies([read(ALL[0], ALL[1][:-1], ALL[2])]) == {"torn read"}
    assert anomalies([read(ALL[0], ALL[1])]) == {"lost write"}
    assert anomalies([read(*ALL), read(ALL[0], ALL[2], at=61, final=False)]) == {"internal skip"}


def test_a_batch_that_was_committed_twice_is_found() -> None:
    assert "version committed twice" in anomalies([read(*ALL, rows_of(1, "0_9", ledger=9))])


def test_a_row_that_comes_twice_is_found() -> None:
    assert anomalies([read(*ALL, ALL[1][:1])]) == {"duplicate"}
    again = [Look(20, 19, "stream", tuple(ALL[0]), 0), Look(21, 20, "stream", (*ALL[0], *ALL[1]), 1), read(*ALL)]
    assert "duplicate" in anomalies(again)


def test_a_part_of_a_transaction_is_found_in_a_read_and_in_a_micro_batch() -> None:
    part = [row for row in ALL[1] if row.segment == A]
    assert anomalies([read(ALL[0], part, at=40, final=False), read(*ALL)]) == {"torn read"}
    assert "torn read" in anomalies([Look(40, 39, "stream", (*ALL[0], *part), 0), read(*ALL)])


def test_rows_of_a_key_in_another_order_are_found() -> None:
    swapped = [row._replace(entry=1000 - row.entry, nth=2 - row.nth) if row.segment == A else row for row in ALL[1]]
    assert "internal reorder" in anomalies([read(ALL[0], swapped, ALL[2])])


def test_versions_in_another_order_are_found() -> None:
    late = [row._replace(ledger=6) for row in ALL[2]]
    assert "versions out of order" in anomalies([read(ALL[0], ALL[1], late)])


def test_transactions_that_are_interleaved_or_cross_are_found() -> None:
    crossed = [row._replace(ledger=6) if row.segment == B else row for row in ALL[2]]
    assert "complaint" in anomalies([read(ALL[0], ALL[1], crossed)])
    between = [row._replace(entry=row.entry - 200) if row.entry % 100 else row for row in ALL[2]]
    assert "complaint" in anomalies([read(ALL[0], ALL[1], between)])


def test_a_transaction_with_rows_in_a_parent_and_in_its_child_is_whole() -> None:
    """If a segment is sealed during a transaction, the task that writes goes on in the child. A history is correct only if the rows
    of a key in the child are later than those in the parent.
    """
    segments = [*SEGMENTS, Segment(CHILD, 2, (A,))]
    last = {row.key: row.id for row in ALL[1]}
    moved = [row._replace(segment=CHILD, ledger=9) if row.segment == A and last[row.key] == row.id else row for row in ALL[1]]
    later = [row._replace(segment=CHILD, ledger=9) if row.segment == A else row for row in ALL[2]]
    assert anomalies([read(ALL[0], moved, later)], segments=segments) == set()
    first = {row.key: row.id for row in reversed(ALL[1])}
    wrong = [row._replace(segment=CHILD, ledger=9) if row.segment == A and first[row.key] == row.id else row for row in ALL[1]]
    assert "internal reorder" in anomalies([read(ALL[0], wrong, later)], segments=segments)


def test_rows_of_undecided_transactions_are_kept_apart() -> None:
    dirty = Look(30, 29, "reader", (*ALL[0], *rows_of(1, "0_9", ledger=8)[:4]))
    assert anomalies([dirty, read(*ALL)]) != set()
    assert anomalies([*without([dirty], {"reader": {"0_9"}}), read(*ALL)]) == set()
