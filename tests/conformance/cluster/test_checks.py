"""The checks find what is planted: each kind of damage, done to rows that are right, is named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from conformance.cluster.checks import COLUMNS, Stream, complete, partial, streamed, vanished
from conformance.cluster.input import ROWS, written
from conformance.cluster.run import changed

TOPIC = "topic://public/default/t"
MINE = Stream(TOPIC, "writer")


def rows(*batches: int, ledger: int = 0) -> list[dict[str, object]]:
    """What a reader sees of these batches: two segments, keys by their parity, one ledger for each batch."""
    found: list[dict[str, object]] = []
    for batch in batches:
        places = [0, 0]
        for key, seq in written(batch, MINE.writer):
            side = int(key.removeprefix("writer-key-")) % 2
            at = f"{ledger or batch + 10}:0:{places[side]}"
            places[side] += 1
            values = (key, seq, batch, ROWS, MINE.writer, TOPIC, f"segment-{side}", at, f"0_{batch}")
            found.append(dict(zip(COLUMNS, values, strict=True)))
    return found


def table(found: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(found)


def test_nothing_is_wrong() -> None:
    right = table(rows(0, 1, 2))
    assert partial(right) == []
    assert complete(right, {MINE: 3}) == []
    assert streamed([(0, table(rows(0))), (1, table(rows(1, 2))), (1, table(rows(1, 2)))]) == []
    assert vanished(table(rows(0, 1)), right) == []
    assert partial(table(rows(0)).slice(0, 0)) == []


def test_keys_go_on_to_the_children_of_a_segment() -> None:
    """And what happened beside it is counted by its kind."""
    found = rows(0, 1, 2)
    for row in found:
        if row["batch"] != 0:
            row["__segment"] = f"{row['__segment']}-child"
    assert partial(table(found)) == []
    notes = ["split loaded 0", "compact streamed: 9 files into 1", "trim failed: Unavailable: gone", "trim passing: 20 rows"]
    assert list(changed(notes)) == ["splits", "compactions", "refused_changes", "trims"]


def damaged(what: str) -> list[dict[str, object]]:
    found = rows(0, 1, 2)
    match what:
        case "only a part seen":
            del found[ROWS + 3]
        case "rows doubled":
            found.append({**found[5], "__messageId": "10:0:999"})
        case "from several transactions":
            found[7]["__txnId"] = "0_99"
        case "transactions with several batches":
            for row in found:
                row["__txnId"] = "0_1"
        case "out of their key's order":
            found[0]["__messageId"], found[2 * 29]["__messageId"] = found[2 * 29]["__messageId"], found[0]["__messageId"]
        case "keys in several segments":
            found[0]["__segment"] = "segment-1"
        case "keys that came back to a segment":
            for row in found:
                if row["batch"] == 1:
                    row["__segment"] = f"{row['__segment']}-child"
        case "batches are missing below":
            found = rows(0, 2)
    return found


@pytest.mark.parametrize(
    "what",
    [
        "only a part seen",
        "rows doubled",
        "from several transactions",
        "transactions with several batches",
        "out of their key's order",
        "keys in several segments",
        "keys that came back to a segment",
        "batches are missing below",
    ],
)
def test_damage_is_named(what: str) -> None:
    assert any(what in said for said in partial(table(damaged(what))))


def test_what_is_lost_at_the_end() -> None:
    assert "are lost" in complete(table(rows(0, 1)), {MINE: 3})[0]
    assert complete(table(rows(0)), {MINE: 1, Stream(TOPIC, "other"): 2}) == [f"{TOPIC} of other: all 2 batches are lost"]
    assert "nobody wrote" in complete(table(rows(0, 1, 2)), {MINE: 2})[0]


def test_micro_batches() -> None:
    again = streamed([(0, table(rows(0, 1))), (0, table(rows(0))), (1, table(rows(2)))])
    assert again == [f"micro-batch 0 had {2 * ROWS} rows and, run again, {ROWS} others"]
    assert any("already seen up to" in what for what in streamed([(0, table(rows(1))), (1, table(rows(0)))]))
    twice = streamed([(0, table(rows(0))), (1, table(rows(0, 1)))])
    assert any("rows doubled" in what for what in twice)


def test_what_was_visible_stays() -> None:
    assert vanished(table(rows(0, 1)), table(rows(0))) == [
        f"{ROWS} rows were visible and are not any more, e.g. seq {[ROWS, ROWS + 1, ROWS + 2]}"
    ]
    assert len(vanished(table(rows(0)), table(rows(0, ledger=77)))) == 1
