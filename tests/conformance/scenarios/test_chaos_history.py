"""The history checker finds each kind of damage in a chaos run: in a single read, and in the merged histories of several
recorders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from conformance.history.files import read
from conformance.history.format import Event
from conformance.scenarios.history import (
    ROWS,
    Observation,
    Row,
    commit,
    committed,
    complete,
    judged,
    now,
    partial,
    streamed,
    vanished,
    written,
)

TOPIC = "topic://public/default/chaos"
SEGMENT = "segment://public/default/chaos/"


def _rows(*batches: int) -> list[Row]:
    return [
        Row(key, seq, batch, of, f"{SEGMENT}{int(key[4:]) % 4}", (10 + batch, 0, i), f"0_{batch}")
        for batch in batches
        for i, (key, seq, _, of) in enumerate(written(batch))
    ]


def _has(found: Sequence[str], *words: str) -> bool:
    return all(any(f", {word}: " in what for what in found) for word in words)


def test_a_correct_history_passes() -> None:
    assert complete(_rows(0, 1, 2), 3) == []
    assert partial(_rows(0, 1)) == []
    assert partial([]) == []
    assert streamed([_rows(0), [], _rows(1, 2)]) == []
    assert vanished(_rows(0, 1), _rows(0, 1, 2)) == []


def test_a_lost_row_is_found() -> None:
    assert _has(complete(_rows(0, 1)[:-1], 2), "torn read")
    assert _has(partial(_rows(0, 1)[:-1]), "torn read")


def test_a_lost_batch_is_found() -> None:
    found = complete(_rows(0), 2)
    assert _has(found, "lost write")
    assert ROWS == 39
    assert _has(partial(_rows(0, 2)), "lost write")


def test_a_doubled_batch_is_found() -> None:
    again = [replace(r, position=(20, 0, r.position[2]), txn="0_9") for r in _rows(1)]
    assert _has(complete([*_rows(0, 1), *again], 2), "duplicate", "version committed twice")
    assert _has(complete([*_rows(0, 1), _rows(1)[0]], 2), "duplicate")


def test_rows_out_of_order_are_found() -> None:
    swapped = [replace(r, position=(30 - r.position[0], 0, r.position[2])) for r in _rows(0, 1)]
    assert _has(partial(swapped), "versions out of order")
    within = [replace(r, position=(r.position[0], 0, ROWS - r.position[2])) for r in _rows(0, 1)]
    assert _has(partial(within), "internal reorder")


def test_a_split_micro_batch_is_found() -> None:
    rows = _rows(0)
    assert _has(streamed([rows[:5], rows[5:]]), "torn read")
    assert _has(streamed([_rows(0), _rows(2), _rows(1)]), "nonmonotonic poll") or _has(
        streamed([_rows(0), _rows(2), _rows(1)]), "poll skip"
    )


def test_a_key_in_two_segments_and_rows_that_vanished_are_found() -> None:
    rows = _rows(0)
    assert _has(partial([replace(rows[0], segment=f"{SEGMENT}other"), *rows[1:]]), "key in several segments")
    assert vanished(_rows(0, 1), _rows(0)) != []
    assert vanished(rows, [replace(rows[0], position=(99, 0, 0)), *rows[1:]]) != []


def test_unwritten_rows_are_found() -> None:
    assert _has(complete(_rows(0, 1), 1), "unwritten read")


def _observed(*looks: list[Row], told: int) -> tuple[list[Event], list[Event]]:
    """Return the histories of a job and of its readers. The job commits batches 0 and 1, and the first `told` commits are answered.
    Each of `looks` is a read; the last read comes after the answers.
    """
    job: list[Event] = [commit(now(), batch, TOPIC) for batch in (0, 1)]
    noted = Observation(TOPIC)
    for rows in looks[:-1]:
        noted.read(now(), rows)
    job += [committed(now(), batch) for batch in range(told)]
    noted.read(now(), looks[-1], final=True)
    noted.poll(now(), 0, 11, _rows(0, 1))
    return job, noted.events


def test_the_history_of_a_run_is_judged_and_kept(tmp_path: Path) -> None:
    job, reader = _observed([], _rows(0), _rows(0, 1), told=2)
    assert judged([job, reader], tmp_path / "history") == []
    kept = read(tmp_path / "history")
    assert len(kept) == 1 + len(job) + len(reader)
    assert sum(len(getattr(e, "rows", ())) for e in reader) == 4 * ROWS, "a read lists only its new rows, the stream all rows"
    job, reader = _observed([], _rows(0), _rows(1), told=2)
    assert _has(judged([job, reader]), "lost write") or _has(judged([job, reader]), "internal skip")
    job, reader = _observed([], _rows(0)[:7], _rows(0, 1), told=2)
    assert _has(judged([job, reader]), "torn read")
