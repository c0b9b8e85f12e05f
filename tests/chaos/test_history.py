"""The check finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace

from conformance.chaos.history import ROWS, Row, complete, gaps, partial, streamed, vanished, written


def _rows(*batches: int) -> list[Row]:
    return [
        Row(key, seq, batch, of, f"segment-{int(key[4:]) % 4}", (10 + batch, 0, i), f"0_{batch}")
        for batch in batches
        for i, (key, seq, _, of) in enumerate(written(batch))
    ]


def test_a_good_history_has_nothing_wrong() -> None:
    assert complete(_rows(0, 1, 2), 3) == []
    assert partial(_rows(0, 1)) == []
    assert streamed([_rows(0), [], _rows(1, 2)]) == []
    assert vanished(_rows(0, 1), _rows(0, 1, 2)) == []


def test_a_lost_row_is_found() -> None:
    found = complete(_rows(0, 1)[:-1], 2)
    assert any("only" in what for what in found)
    assert any("lost" in what for what in found)


def test_a_lost_batch_is_found() -> None:
    assert len([what for what in complete(_rows(0), 2) if "lost" in what]) == ROWS
    assert list(gaps(_rows(0, 2))) != []


def test_a_doubled_batch_is_found() -> None:
    again = [replace(r, position=(20, 0, r.position[2]), txn="0_9") for r in _rows(1)]
    found = complete([*_rows(0, 1), *again], 2)
    assert any("doubled" in what for what in found)
    assert any("several transactions" in what for what in found)


def test_rows_out_of_order_are_found() -> None:
    rows = _rows(0, 1)
    swapped = [replace(r, position=(30 - r.position[0], 0, r.position[2])) for r in rows]
    assert any("comes after" in what for what in partial(swapped))


def test_a_split_micro_batch_is_found() -> None:
    rows = _rows(0)
    assert any("micro-batch 0" in what for what in streamed([rows[:5], rows[5:]]))


def test_a_key_in_two_segments_and_rows_that_vanished_are_found() -> None:
    rows = _rows(0)
    assert any("several segments" in what for what in partial([replace(rows[0], segment="other"), *rows[1:]]))
    assert vanished(_rows(0, 1), _rows(0)) != []
    assert vanished(rows, [replace(rows[0], position=(99, 0, 0)), *rows[1:]]) != []


def test_rows_that_nobody_wrote_are_found() -> None:
    assert any("nobody wrote" in what for what in complete(_rows(0, 1), 1))
