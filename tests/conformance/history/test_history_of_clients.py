"""Tests of the history checker with histories that clients recorded, without the store's records. The checker finds each kind of
damage to a read or a stream.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.history.checker import check
from conformance.history.format import Commit, Event, Plan, Poll, Read, Row, Start, Told, Written

TOPIC = "topic://public/default/t"
LEFT, RIGHT = f"segment://{TOPIC[8:]}/0000-7fff-0", f"segment://{TOPIC[8:]}/8000-ffff-1"
CHILD = {LEFT: f"segment://{TOPIC[8:]}/0000-7fff-2", RIGHT: f"segment://{TOPIC[8:]}/8000-ffff-3"}
ROWS, KEYS = 40, 7
BATCHES = 3


def written(batch: int) -> tuple[Written, ...]:
    """Return the rows of a batch in the order of the writer. Each key has several rows."""
    return tuple(Written(f"row-{seq}", f"key-{seq % KEYS}") for seq in range(batch * ROWS, (batch + 1) * ROWS))


def rows(*batches: int) -> list[Row]:
    """Return the rows of these batches as a reader sees them. The parity of a key decides its segment. Each batch is one ledger."""
    found: list[Row] = []
    for batch in batches:
        places = {LEFT: 0, RIGHT: 0}
        for name, key, _ in written(batch):
            segment = LEFT if int(str(key)[4:]) % 2 else RIGHT
            found.append(Row(name, segment, (batch + 10, 0, places[segment]), key, f"0_{batch}"))
            places[segment] += 1
    return found


def job(batches: int = BATCHES) -> list[Event]:
    """Return the history of a job that commits `batches` batches one after the other, and gets an answer each time."""
    history: list[Event] = [Start(0, "test")]
    for batch in range(batches):
        history.append(Commit(10 * batch, f"c{batch}", "job", "app", TOPIC, batch, written(batch), "query", None, True))
        history.append(Told(10 * batch + 5, f"c{batch}", "committed"))
    return history


def read(found: list[Row], at: int = 1000, *, final: bool = False) -> Read:
    return Read(at, at - 1, "reader", (TOPIC,), tuple(found), final=final, ordered=False)


def poll(batch: int, found: list[Row], at: int) -> Poll:
    return Poll(at, at - 1, "stream", batch, (TOPIC,), tuple(found), ordered=False)


def anomalies(*seen: Event, batches: int = BATCHES) -> set[str]:
    return {finding.anomaly for finding in check([*job(batches), *seen])}


def test_a_correct_history_passes() -> None:
    right = rows(0, 1, 2)
    assert anomalies(read(rows(0), 9), read(right), read(right, 2000, final=True)) == set()
    polls = [poll(0, rows(0), 900), poll(1, rows(1, 2), 910), poll(1, rows(1, 2), 920), Plan(940, 930, "stream", (TOPIC,), 12, 12)]
    assert anomalies(*polls) == set()


def test_rows_of_a_key_may_move_to_the_children_of_a_segment() -> None:
    assert anomalies(read([*rows(0), *(row._replace(segment=CHILD[row.segment]) for row in rows(1, 2))])) == set()


def came_back() -> list[Row]:
    return [row._replace(segment=CHILD[row.segment]) if row.position[0] == 11 else row for row in rows(0, 1, 2)]


def swapped() -> list[Row]:
    found = rows(0, 1, 2)
    first, second = found[0].position, found[2 * KEYS].position
    found[0], found[2 * KEYS] = found[0]._replace(position=second), found[2 * KEYS]._replace(position=first)
    return found


DAMAGE: dict[str, tuple[list[Row], str]] = {
    "only a part seen": (rows(0, 1, 2)[:-1], "torn read"),
    "a row doubled": ([*rows(0, 1, 2), rows(0)[5]._replace(position=(10, 0, 999))], "duplicate"),
    "a row once more in another transaction": ([*rows(0, 1, 2), rows(0)[5]._replace(position=(19, 0, 0))], "duplicate"),
    "a batch from several transactions": (
        [row._replace(txn="0_99") if row.id == "row-7" else row for row in rows(0, 1, 2)],
        "wrong transaction",
    ),
    "a transaction with several batches": ([row._replace(txn="0_1") for row in rows(0, 1, 2)], "txn id reused"),
    "a key out of order": (swapped(), "internal reorder"),
    "a key in two segments at once": ([rows(0)[0]._replace(segment=LEFT), *rows(0, 1, 2)[1:]], "key in several segments"),
    "a key that came back to a segment": (came_back(), "key in several segments"),
    "a batch missing below another": (rows(0, 2), "lost write"),
    "the last batch lost": (rows(0, 1), "lost write"),
    "every batch lost": ([], "lost write"),
    "rows that nobody wrote": ([*rows(0, 1, 2), *rows(3)], "unwritten read"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_of_a_read_is_found(what: str) -> None:
    """The checker finds damage in the last read, and in an earlier read that is followed by a correct read."""
    found, anomaly = DAMAGE[what]
    assert anomaly in anomalies(read(found, final=True))
    assert anomalies(read(found), read(rows(0, 1, 2), 2000, final=True)) != set()


POLLS: dict[str, tuple[list[Event], str]] = {
    "a micro-batch run again with other rows": ([poll(0, rows(0, 1), 900), poll(0, rows(0), 910)], "replay differs"),
    "a micro-batch of lower numbers": ([poll(0, rows(1), 900), poll(1, rows(0), 910)], "poll skip"),
    "rows in two micro-batches": ([poll(0, rows(0), 900), poll(1, rows(0, 1), 910)], "duplicate"),
    "a batch passed over": ([poll(0, rows(0), 900), poll(1, rows(2), 910), read(rows(0, 1, 2))], "poll skip"),
    "a part of a batch": ([poll(0, rows(0)[:7], 900), poll(1, rows(0)[7:], 910)], "torn read"),
    "an end before the last batch": (
        [poll(0, rows(0, 1), 900), Plan(940, 930, "stream", (TOPIC,), 11, 11), read(rows(0, 1, 2))],
        "stands still",
    ),
}


@pytest.mark.parametrize("what", POLLS)
def test_damage_of_a_stream_is_found(what: str) -> None:
    seen, anomaly = POLLS[what]
    assert anomaly in anomalies(*seen)


GONE: dict[str, Callable[[list[Row]], list[Row]]] = {
    "a batch": lambda found: found[:ROWS],
    "a row": lambda found: found[1:],
    "a place": lambda found: [found[0]._replace(position=(77, 0, 0)), *found[1:]],
}


@pytest.mark.parametrize("what", GONE)
def test_a_vanished_visible_row_is_found(what: str) -> None:
    """No commit was answered. A read lacks rows of an earlier read, or has them at other positions. The checker finds this."""
    begun = [event for event in job(2) if not isinstance(event, Told)]
    right = rows(0, 1)
    assert check([*begun, read(right), read(right, 2000)]) == []
    assert check([*begun, read(right), read(GONE[what](right), 2000)]) != []
