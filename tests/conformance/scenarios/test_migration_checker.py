"""The check of the migration workload reports what the history checker finds in the recorded events. It also reports missing work.

tests/conformance/history/test_history_successors.py tests each kind of damage that the history checker finds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.history.format import Commit, Drained, Event, Poll, Read, Row, Told, Written
from conformance.scenarios.following import polls
from conformance.scenarios.history import written
from conformance.scenarios.migration_checker import Cast, checked
from conformance.scenarios.spark_migration import BATCHES, MORE, judge

OLD, OTHER, NEW = "persistent://t/n/a", "persistent://t/n/b", "topic://t/n/a"
CHILD, OTHER_CHILD = "segment://t/n/a/0000-ffff-1", "segment://t/n/b/0000-ffff-1"
CAST = Cast(
    {OLD: NEW, OTHER: "topic://t/n/b"},
    writers={"w": [OLD]},
    senders={"p": OLD},
    consumers={"c": [OLD]},
    movers={"m": (OLD, OTHER)},
)


def row(segment: str, ledger: int, name: str) -> Row:
    return Row(name, segment, (ledger, 0, 0), f"{name.partition('.')[0]}-k")


THERE = [row(OLD, 7, "w.0"), row(OLD, 9, "p.0"), row(CHILD, 3, "w.1"), row(CHILD, 4, "p.1")]
MOVED = [row(OTHER if i < 2 else OTHER_CHILD, 20 + i, one.id) for i, one in enumerate(THERE)]


def calls(topic: str, app: str) -> list[Event]:
    found: list[Event] = []
    for n, one in enumerate(THERE):
        found.append(Commit(n, f"{app} {one.id}", app, f"{app} {one.id}", "", 0, (Written(one.id, one.key, topic),)))
        found.append(Told(n + 0.5, f"{app} {one.id}", "committed"))
    return found


def found(
    there: list[Row] = THERE, moved: list[Row] = MOVED, given: list[Row] = THERE, *, drained: tuple[str, ...] = ("c", "m")
) -> list[str]:
    polls: list[Event] = [Poll(30, 29, who, 0, (OLD,), tuple(given), subscription=who) for who in ("c", "m")]
    ends: list[Event] = [Drained(40, 39, who, (OLD,), OTHER if who == "m" else "") for who in drained]
    final = [Read(80, 79, "last", (topic,), tuple(there), final=True, ordered=False) for topic in (OLD, NEW)]
    final.append(Read(80, 79, "last", (OTHER,), tuple(moved), final=True, ordered=False))
    return checked(CAST, [calls(OLD, "w"), calls(OTHER, "m"), polls, ends], final)


def test_a_correct_history_passes() -> None:
    assert found() == []


def test_damage_reaches_the_history_checker() -> None:
    assert any("lost write" in what for what in found(there=THERE[:-1]))
    assert any("acknowledged without its rows" in what for what in found(moved=MOVED[:-1]))
    assert any("never delivered" in what for what in found(given=THERE[:-1]))


def on(segment: str, rows: list[Row], who: str = "") -> list[Row]:
    return [one._replace(segment=segment) if one.id.startswith(who) else one for one in rows]


UNDER_LOAD = f"{OLD} did not migrate under load: it has no row of"
MISSED: dict[str, tuple[Callable[[], list[str]], str]] = {
    "nobody wrote before": (
        lambda: found(on(CHILD, THERE, "w")),
        f"{UNDER_LOAD} w from before it",
    ),
    "nobody wrote after": (
        lambda: found(on(OLD, THERE, "w")),
        f"{UNDER_LOAD} w from after it",
    ),
    "nobody sent after": (lambda: found(THERE[:-1]), f"{UNDER_LOAD} p from after it"),
    "nobody moved before": (
        lambda: found(moved=on(OTHER_CHILD, MOVED)),
        f"{OTHER} did not migrate under load: it has no row of m from before it",
    ),
    "left over": (lambda: found(drained=("m",)), "c did not come to an end"),
    "not all moved": (lambda: found(drained=("c",)), "m did not come to an end"),
}


@pytest.mark.parametrize("name", MISSED)
def test_missing_work_is_named(name: str) -> None:
    check, says = MISSED[name]
    assert says in check()


# --- a Spark query that reads the rows of a Spark job --------------------------------------------------------------------


def seen(*micro_batches: list[int]) -> str:
    """Return the notes of a query. Each argument is a micro-batch: a list of the job's batches whose rows the micro-batch returns.
    The job wrote the batches below 20 before the migration.
    """
    lines = []
    for batches in micro_batches:
        rows = [
            [key, seq, batch, of, CHILD if batch >= 20 else OLD, f"{batch + 1}:0:{i}", None]
            for batch in batches
            for i, (key, seq, _, of) in enumerate(written(batch))
        ]
        lines.append(json.dumps({"at_ms": 1000 + len(lines), "batch": len(lines), "rows": rows}) + "\n")
    return "".join(lines)


ALL = range(BATCHES + MORE)
QUERIES: dict[str, tuple[str, list[str]]] = {
    "good": (seen(list(ALL[:20]), list(ALL[20:])), []),
    "lost": (seen(list(ALL[:20]), list(ALL[20:-1])), ["stands still"]),
    "both sides": (seen(list(ALL)), ["parent with child"]),
    "twice": (seen(list(ALL[:20]), list(ALL[19:])), ["parent with child", "duplicate"]),
    "disorder": (seen(list(ALL[20:]), list(ALL[:20])), ["poll skip", "internal reorder"]),
    "nothing before": (seen(list(ALL[20:])), ["the topic did not migrate while the job ran: 0 batches before"]),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_judged(name: str, tmp_path: Path) -> None:
    there, says = QUERIES[name]
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "seen").write_text(there)
    wrong = judge(polls(tmp_path / "spark" / "seen", OLD), OLD)
    for text in says:
        assert any(text in what for what in wrong), wrong
    assert bool(wrong) is bool(says), wrong
