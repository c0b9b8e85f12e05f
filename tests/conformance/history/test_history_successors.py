"""Tests of the history checker with histories of a migration that clients recorded. The checker finds each lost, repeated or
reordered row and each torn transaction, under the old name and under the successor's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from conformance.history.checker import check
from conformance.history.format import Ack, Commit, Drained, Event, Plan, Poll, Read, Row, Start, Successor, Told, Written

OLD, OTHER, NEW = "persistent://t/n/a", "persistent://t/n/b", "topic://t/n/a"
CHILD, OTHER_CHILD = "segment://t/n/a/0000-ffff-1", "segment://t/n/b/0000-ffff-1"


def row(segment: str, ledger: int, index: int, name: str) -> Row:
    return Row(name, segment, (ledger, 0, index), f"{name.partition('.')[0]}-k")


THERE = [
    row(OLD, 7, 0, "w.0"),
    row(OLD, 7, 1, "w.1"),
    row(OLD, 9, 0, "p.0"),
    row(CHILD, 3, 0, "w.2"),
    row(CHILD, 3, 1, "w.3"),
    row(CHILD, 4, 0, "p.2"),
]
"""The rows of the topic, in order: a transaction of two rows, a plain message, a second transaction of two rows, a second plain
message. The second transaction and the second message are in the successor. A mover copies all rows to another topic, which is
migrated meanwhile (MOVED).
"""
MOVED = [row(OTHER if i < 3 else OTHER_CHILD, 20, i, one.id)._replace(key=one.key) for i, one in enumerate(THERE)]
W, P, M, D, S, L = "writer", "sender", "mover", "delivered", "stream", "looker"


def call(at: float, name: str, app: str, version: int, topic: str, *ids: str, said: str | None = "committed") -> list[Event]:
    """Return a commit and its answer. `said`: the answer; None if there was none."""
    rows = tuple(Written(one, f"{one.partition('.')[0]}-k") for one in ids)
    asked = Commit(at, name, app, app, topic, version, rows)
    return [asked, *([] if said is None else [Told(at + 0.5, name, said)])]


class History:
    """A correct history, with one part for each recorder. Tests damage single parts."""

    def __init__(self) -> None:
        self.there, self.moved = list(THERE), list(MOVED)
        self.calls: list[Event] = [
            *call(1, "w0", W, 0, OLD, "w.0", "w.1"),
            *call(3, "w1", W, 1, OLD, "w.2", "w.3", said="unknown"),
            *call(5, "w1 again", W, 1, OLD, "w.2", "w.3"),
            *call(7, "w2", W, 2, OLD, "w.4", "w.5", said=None),
            *call(2, "p0", f"{P} 0", 0, OLD, "p.0"),
            *call(4, "p1", f"{P} 1", 0, OLD, "p.1", said="failed"),
            *call(6, "p2", f"{P} 2", 0, OLD, "p.2"),
            *call(8, "p3", f"{P} 3", 0, OLD, "p.3", said=None),
            *call(20, "m0", f"{M} 0", 0, OTHER, *(one.id for one in THERE[:3])),
            *call(22, "m1", f"{M} 1", 0, OTHER, *(one.id for one in THERE[3:])),
        ]
        self.given = [self.gives(30, 0, THERE[:3]), self.gives(34, 1, THERE[3:])]
        self.streamed = [self.polls(40, 0, THERE[:3]), self.polls(41, 0, THERE[:3]), self.polls(42, 1, THERE[3:])]
        self.looks = [self.looked(1.9, THERE[:2]), self.looked(52, THERE)]

    @staticmethod
    def gives(at: float, batch: int, rows: Sequence[Row], life: str = "life") -> list[Event]:
        """Return the delivery of rows to a consumer, and then their acknowledgements."""
        acks: list[Event] = [Ack(at + 1, one.segment, D, "acked", ((one.position, one.position),)) for one in rows]
        return [Poll(at, at - 1, f"{D} {life}", batch, (OLD,), tuple(rows), subscription=D), *acks]

    @staticmethod
    def polls(at: float, batch: int, rows: Sequence[Row]) -> Poll:
        return Poll(at, at - 0.5, S, batch, (OLD,), tuple(rows), ordered=False)

    @staticmethod
    def looked(at: float, rows: Sequence[Row]) -> Read:
        return Read(at, at - 0.3, L, (OLD,), tuple(rows), ordered=False)

    def found(self) -> set[str]:
        end = max(one.position[0] for poll in self.streamed for one in poll.rows if one.segment == CHILD)
        history: list[Event] = [
            Start(0, "test"),
            *(Successor(10, old, old.replace("persistent", "topic")) for old in (OLD, OTHER)),
            *self.calls,
            *(event for events in self.given for event in events),
            *(Poll(23, 22, f"{M} life", 0, (OLD,), tuple(THERE), subscription=M), Drained(60, 59, M, (OLD,), OTHER)),
            Drained(60, 59, D, (OLD,)),
            *self.streamed,
            Plan(61, 59, S, (OLD,), end, end),
            *self.looks,
            *(Read(80, 79, "last", (topic,), tuple(self.there), final=True, ordered=False) for topic in (OLD, NEW)),
            Read(80, 79, "last", (OTHER,), tuple(self.moved), final=True, ordered=False),
        ]
        return {finding.anomaly for finding in check(history)}


def test_a_correct_history_passes() -> None:
    assert History().found() == set()


def moved_alone(history: History) -> None:
    """Remove the rows of the mover's second batch from the topic to which the mover copies. The mover has acknowledged the rows of
    this batch, but its commit has no answer.
    """
    history.moved = history.moved[:3]
    history.calls = [event for event in history.calls if not (isinstance(event, Told) and event.call == "m1")]


Harm = Callable[[History], object]
HARMS: dict[str, tuple[Harm, str]] = {
    "lost": (lambda h: h.there.pop(0), "torn read"),
    "lost with its transaction": (lambda h: h.there.__delitem__(slice(2)), "internal skip"),
    "doubled": (lambda h: h.there.append(row(CHILD, 8, 0, "w.3")), "version committed twice"),
    "reordered": (
        lambda h: h.there.__setitem__(slice(2), [row(OLD, 7, 1, "w.0"), row(OLD, 7, 0, "w.1")]),
        "internal reorder",
    ),
    "torn": (lambda h: h.there.append(row(CHILD, 9, 0, "w.5")), "torn read"),
    "of nobody": (lambda h: h.there.append(row(OLD, 9, 1, "x.0")), "unwritten read"),
    "a plain one lost": (lambda h: h.there.pop(2), "internal skip"),
    "a refused one there": (lambda h: h.there.append(row(OLD, 9, 1, "p.1")), "aborted read"),
    "delivered again": (lambda h: h.given.insert(1, h.gives(33, 0, THERE[:3], "next")), "redelivered after ack"),
    "never delivered": (lambda h: h.given.__setitem__(1, h.gives(34, 1, THERE[3:5])), "never delivered"),
    "delivered in disorder": (lambda h: h.given.__setitem__(1, h.gives(34, 1, THERE[:2:-1])), "internal reorder"),
    "delivered in disorder by two batches": (
        lambda h: h.given.__setitem__(slice(2), [h.gives(30, 0, THERE[3:]), h.gives(34, 1, THERE[:3])]),
        "internal reorder",
    ),
    "not moved": (lambda h: h.moved.pop(), "torn read"),
    "acknowledged and not moved": (moved_alone, "acknowledged without its rows"),
    "moved twice": (lambda h: h.moved.append(row(OTHER, 30, 0, "w.3")), "version committed twice"),
    "streamed twice": (lambda h: h.streamed.append(h.polls(43, 2, THERE[2:3])), "duplicate"),
    "not streamed": (lambda h: h.streamed.__setitem__(2, h.polls(42, 1, THERE[3:5])), "stands still"),
    "children first": (
        lambda h: h.streamed.__setitem__(slice(3), [h.polls(40, 0, THERE[3:]), h.polls(42, 1, THERE[:3])]),
        "poll skip",
    ),
    "both sides in one micro-batch": (lambda h: h.streamed.__setitem__(slice(3), [h.polls(40, 0, THERE)]), "parent with child"),
    "replayed otherwise": (lambda h: h.streamed.__setitem__(1, h.polls(41, 0, THERE[:2])), "replay differs"),
    "vanished": (lambda h: h.looks.append(h.looked(54, THERE[:2])), "lost write"),
    "moved to another place": (
        lambda h: h.looks.append(h.looked(54, [row(OLD, 7, 5, "w.0"), *THERE[1:]])),
        "moved row",
    ),
}


@pytest.mark.parametrize("name", HARMS)
def test_each_damage_is_found(name: str) -> None:
    harm, says = HARMS[name]
    history = History()
    harm(history)
    assert says in history.found()


def test_rows_of_a_key_may_move_to_any_segment_of_a_successor_in_order() -> None:
    """The successor has no key column, like the old topic. So the rows of a key may be in any segment, but must be in order."""
    beside = "segment://t/n/a/8000-ffff-2"
    history = History()
    history.there[-3:-1] = [one._replace(segment=beside, position=(3, 0, i)) for i, one in enumerate(THERE[3:5])]
    history.streamed[2] = history.polls(42, 1, history.there[3:])
    history.given[1] = history.gives(34, 1, history.there[3:])
    history.looks.pop()
    assert history.found() - {"moved row"} == set(), "another reader saw the rows elsewhere, so only a moved row may be found"
    history.there[-3:-1] = [one._replace(position=(3, 0, 1 - i)) for i, one in enumerate(history.there[3:5])]
    assert "internal reorder" in history.found()


def spanning(*, told: bool, everywhere: bool) -> set[str]:
    """Return the anomalies in the history of a transaction with one row in each of two topics, of which the first was migrated.
    `told`: whether the commit was answered. `everywhere`: whether both rows are there; otherwise only the row of the migrated topic
    is.
    """
    ids = (Written("w.0", "k", OLD), Written("w.1", "k", OTHER))
    history: list[Event] = [Start(0, "test"), Successor(1, OLD, NEW), Commit(1, "c", W, W, "", 0, ids)]
    history += [Told(2, "c", "committed")] * told
    history.append(Read(9, 8, "last", (OLD,), (row(CHILD, 3, 0, "w.0"),), final=True, ordered=False))
    rest = (row(OTHER, 3, 0, "w.1"),) if everywhere else ()
    history.append(Read(9, 8, "last", (OTHER,), rest, final=True, ordered=False))
    return {finding.anomaly for finding in check(history)}


def test_a_transaction_over_several_topics_is_in_all_of_them_or_in_none() -> None:
    assert spanning(told=True, everywhere=True) == spanning(told=False, everywhere=True) == set()
    assert spanning(told=False, everywhere=False) == {"participant left out"}
    assert spanning(told=True, everywhere=False) == {"lost write"}
