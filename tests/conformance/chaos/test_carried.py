"""What parties of a migration noted, judged: each kind of loss, doubling, tearing and disorder is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.chaos.carried import Cast, judged
from conformance.chaos.history import ROWS, written
from conformance.chaos.spark_migration import BATCHES, MORE, Report, judge

OLD, OTHER, NEW = "persistent://t/n/a", "persistent://t/n/b", "topic://t/n/a"
CHILD, OTHER_CHILD = "segment://t/n/a/0000-ffff-1", "segment://t/n/b/0000-ffff-1"
CAST = Cast(
    {OLD: NEW, OTHER: "topic://t/n/b"},
    writers={"w": [OLD]},
    senders={"p": OLD},
    consumers={"c": [OLD]},
    movers={"m": (OLD, OTHER)},
    streams={"s": [OLD]},
    lookers={"l": [OLD]},
)


def row(segment: str, ledger: int, index: int, name: str) -> list[Any]:
    return [segment, ledger, 0, index, f"{name.partition('.')[0]}-k", name]


def good() -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Two transactions of two rows, a plain message between; the second transaction went into the topic that goes on, and so did
    the last message. All of them are moved to another topic, which migrates meanwhile.
    """
    there = [
        row(OLD, 7, 0, "w.0"),
        row(OLD, 7, 1, "w.1"),
        row(OLD, 9, 0, "p.0"),
        row(CHILD, 3, 0, "w.2"),
        row(CHILD, 3, 1, "w.3"),
        row(CHILD, 4, 0, "p.2"),
    ]
    names = [one[5] for one in there]
    notes: dict[str, list[Any]] = {
        "w": [{"version": 0}, {"again": 1}, {"version": 1}],
        "p": [{"sends": 0}, {"sent": 0}, {"sends": 1}, {"refused": 1}, {"sends": 2}, {"sent": 2}, {"sends": 3}],
        "c": [
            {"delivered": [[OLD, one[4], one[5]] for one in there[:3]]},
            {"acked": names[:3]},
            {"delivered": [[NEW, one[4], one[5]] for one in there[3:]]},
            {"acked": names[3:]},
            {"left": 0},
        ],
        "m": [{"left": 0}],
        "s": [{"batch": 0, "rows": there[:3]}, {"batch": 0, "rows": there[:3]}, {"batch": 1, "rows": there[3:]}],
        "l": [{"look": names[:2]}, {"look": names}],
    }
    moved = [[OTHER if i < 3 else OTHER_CHILD, 20, 0, i, one[4], one[5]] for i, one in enumerate(there)]
    return notes, {OLD: there, OTHER: moved}


def test_all_is_well() -> None:
    notes, final = good()
    assert judged(CAST, 2, notes, final) == []


Harm = Callable[[dict[str, list[Any]], dict[str, list[Any]]], object]
HARMS: dict[str, tuple[Harm, str]] = {
    "lost": (lambda _, final: final[OLD].pop(0), "w in persistent://t/n/a: lost 1 rows, w.0"),
    "doubled": (lambda _, final: final[OLD].append(row(CHILD, 8, 0, "w.3")), "in the end: w.3 is there 2 times"),
    "reordered": (lambda _, final: final[OLD].insert(0, row(OLD, 6, 0, "w.1")), "in the end: w.1 comes before w.0"),
    "torn": (lambda _, final: final[OLD].append(row(CHILD, 9, 0, "w.5")), "version 2 of w is torn"),
    "of nobody": (lambda _, final: final[OLD].append(row(OLD, 9, 1, "x.0")), "x.0 in persistent://t/n/a is of nobody"),
    "a plain one lost": (lambda _, final: final[OLD].pop(2), "p.0, noted as sent, is there 0 times"),
    "a refused one there": (lambda _, final: final[OLD].append(row(OLD, 9, 1, "p.1")), "p.1, noted as refused, is there 1 times"),
    "delivered again": (lambda notes, _: notes["c"].insert(2, notes["c"][0]), "c got w.0 again, which it had acknowledged"),
    "never delivered": (lambda notes, _: notes["c"][2]["delivered"].pop(), "c was delivered: lost 1 rows, p.2"),
    "delivered in disorder": (lambda notes, _: notes["c"][2]["delivered"].reverse(), "c got w.3 before w.2"),
    "left over": (lambda notes, _: notes["c"].pop(), "c did not come to an end"),
    "not moved": (lambda _, final: final[OTHER].pop(), "m moved from persistent://t/n/a to persistent://t/n/b: lost 1 rows, p.2"),
    "moved twice": (lambda _, final: final[OTHER].append([OTHER, 30, 0, 0, "w-k", "w.3"]), "w.3 is there 2 times"),
    "streamed twice": (
        lambda notes, _: notes["s"][2]["rows"].append(row(OLD, 9, 0, "p.0")),
        "s on persistent://t/n/a: p.0 is there 2",
    ),
    "not streamed": (lambda notes, _: notes["s"].pop(), "s on persistent://t/n/a: lost 3 rows, p.2, w.2, w.3"),
    "children first": (
        lambda notes, final: (
            notes["s"][0].update(rows=final[OLD][3:]),
            notes["s"].pop(1),
            notes["s"][1].update(rows=final[OLD][:3]),
        ),
        "s on persistent://t/n/a: w.3 comes before w.0",
    ),
    "both sides in one micro-batch": (
        lambda notes, final: notes.update(s=[{"batch": 0, "rows": final[OLD]}]),
        "s: micro-batch 0 has rows of both sides of persistent://t/n/a",
    ),
    "nobody wrote before": (
        lambda _, final: final.update({OLD: [[CHILD, *one[1:]] if one[5][0] == "w" else one for one in final[OLD]]}),
        "persistent://t/n/a did not migrate under load: it has no row of w from before it",
    ),
    "nobody wrote after": (
        lambda _, final: final.update({OLD: [[OLD, *one[1:]] if one[5][0] == "w" else one for one in final[OLD]]}),
        "persistent://t/n/a did not migrate under load: it has no row of w from after it",
    ),
    "nobody sent after": (
        lambda _, final: final[OLD].pop(),
        "persistent://t/n/a did not migrate under load: it has no row of p from after it",
    ),
    "nobody moved before": (
        lambda _, final: final.update({OTHER: [[OTHER_CHILD, *one[1:]] for one in final[OTHER]]}),
        "persistent://t/n/b did not migrate under load: it has no row of m from before it",
    ),
    "replayed otherwise": (lambda notes, _: notes["s"][1].update(rows=[]), "s got micro-batch 0 again with other rows"),
    "vanished": (lambda notes, _: notes["l"].append({"look": ["w.1"]}), "l, read 2: 5 rows are gone, p.0, p.2, w.0, w.2, w.3"),
}


@pytest.mark.parametrize("name", HARMS)
def test_harm_is_seen(name: str) -> None:
    harm, says = HARMS[name]
    notes, final = good()
    harm(notes, final)
    found = judged(CAST, 2, notes, final)
    assert any(says in what for what in found), found


# --- what a Spark query has seen of a Spark job --------------------------------------------------------------------------


def seen(*micro_batches: list[int]) -> str:
    """As the query notes it: by micro-batch, the job's batches in it; those below 20 are from before the migration."""
    lines = []
    for batches in micro_batches:
        rows = [
            [key, seq, batch, of, CHILD if batch >= 20 else OLD, f"{batch}:0:{i}", None]
            for batch in batches
            for i, (key, seq, _, of) in enumerate(written(batch))
        ]
        lines.append(json.dumps({"batch": len(lines), "rows": rows}) + "\n")
    return "".join(lines)


ALL = range(BATCHES + MORE)
QUERIES: dict[str, tuple[str, list[str]]] = {
    "good": (seen(list(ALL[:20]), list(ALL[20:])), []),
    "lost": (seen(list(ALL[:20]), list(ALL[20:-1])), [f"{ROWS} rows were never read"]),
    "both sides": (seen(list(ALL)), ["micro-batch 0 has rows of before the migration and of after it"]),
    "twice": (seen(list(ALL[:20]), list(ALL[19:])), ["micro-batch 1 has rows", "was read twice"]),
    "disorder": (seen(list(ALL[20:]), list(ALL[:20])), ["was read after"]),
    "nothing before": (seen(list(ALL[20:])), ["the topic did not migrate while the job ran: 0 batches before"]),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_judged(name: str, tmp_path: Path) -> None:
    there, says = QUERIES[name]
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "seen").write_text(there)
    report = Report()
    judge(tmp_path, report)
    for text in says:
        assert any(text in what for what in report.wrong), report.wrong
    assert bool(report.wrong) is bool(says), report.wrong
