"""One frame of `txnsegment top`: what a board shows, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ledgers.plain_text import shown
from txnsegment.findings import Health
from txnsegment.formats import duration, moment, number, size
from txnsegment.look.seen import Seen, SubscriptionSeen, age_s
from txnsegment.look.watcher import Board

FEW = 10
"""How many transactions, drivers and subscriptions a frame has at most."""


def frame(board: Board, now_s: float, height: int | None = None) -> RenderableType:
    """Return a frame. `now_s`: the monotonic time now. `height`: the number of lines of the terminal; None: no limit."""
    parts: list[RenderableType] = []
    if board.trouble is not None:
        since = duration(now_s - board.trouble.since_s)
        parts.append(
            Text(shown(f"The cluster cannot be read, since {since}. {board.trouble.message} {board.trouble.advice}"), "bold red")
        )
    if board.seen is None:
        return Group(*parts, *(() if parts else (Text("The first look at the cluster is under way."),)))
    seen = board.seen
    open_rows, subscriptions = seen.open[:FEW], _behind(board)[:FEW]
    used = 12 + len(open_rows) + len(subscriptions) + len(board.findings) + (2 + len(seen.drivers[:FEW]) if seen.drivers else 0)
    most = None if height is None else max(3, height - used)
    parts += [
        _head(board, seen),
        Text(),
        _topics(board, seen, most),
        Text(),
        _transactions(seen),
        Text(),
        *((_drivers(seen), Text()) if seen.drivers else ()),
        _subscriptions(subscriptions),
    ]
    problems = [f for f in board.findings if f.health is not Health.OK]
    if problems:
        rows = ((f.health.value, f.check, f"{f.message} {f.next_step}") for f in problems)
        parts += [Text(), _table(("HEALTH", "CHECK", "FINDING"), rows)]
    return Group(*parts)


def _head(board: Board, seen: Seen) -> Text:
    newest = board.samples[-1] if board.samples else None
    facts = [
        f"{len(seen.open)} open" + (f", {len(seen.overdue)} past the deadline" if seen.overdue else ""),
        f"oldest {duration(seen.oldest_open_s)}" if seen.open else "",
        f"{number(newest.rows)} rows a second" if newest is not None and newest.rows is not None else "",
        f"{number(newest.commits)} commits a second" if newest is not None and newest.commits is not None else "",
        f"half within {duration(newest.p50_s)}" if newest is not None and newest.p50_s is not None else "",
        f"log {number(seen.log.length)}, newest {seen.log.newest}",
        f"{number(seen.size.rows)} rows, {size(seen.size.bytes)}, {number(seen.size.parts)} parts",
        "never swept" if seen.sweeps.last_ms is None else f"swept {duration((seen.now_ms - seen.sweeps.last_ms) / 1000)} ago",
    ]
    return Text.assemble((shown(f"{seen.url}  {moment(seen.now_ms)}"), "bold"), "\n", " | ".join(fact for fact in facts if fact))


def _topics(board: Board, seen: Seen, most: int | None) -> RenderableType:
    rates = board.samples[-1].rows_of if board.samples else {}
    ordered = sorted(seen.topics, key=lambda t: (-rates.get(t.name, 0.0), -t.size.bytes, t.name))
    rows = [
        (t.name, "", "", "", "", "", "", t.problem)
        if t.problem is not None
        else (
            t.name,
            f"{t.active}/{len(t.segments)}",
            number(t.size.rows),
            size(t.size.bytes),
            number(rates[t.name]) if t.name in rates else "",
            t.horizon,
            number(t.behind) if t.behind else "",
            f"{len(t.undecided)} undecided" if t.undecided else "",
        )
        for t in ordered[:most]
    ]
    heads = ("TOPIC", "SEGMENTS", "ROWS", "BYTES", "ROWS/S", "HORIZON", "BEHIND", "")
    left = seen.topic_count - len(rows)
    table = _table(heads, rows, right=range(1, 7))
    return Group(table, Text(f"and {left} more topics", "dim")) if left > 0 else table


def _transactions(seen: Seen) -> RenderableType:
    rows = [
        (
            t.id,
            t.state.value,
            duration(age_s(t, seen.now_ms)),
            _deadline(t.deadline_ms - seen.now_ms),
            t.app,
            t.topic if t.topic != "" else "several",
            t.owner,
        )
        for t in seen.open[:FEW]
    ]
    if not rows:
        return Text("No transaction is open.")
    table = _table(("OPEN", "STATE", "AGE", "DEADLINE", "APPLICATION", "TOPIC", "OWNER"), rows)
    return Group(table, Text(f"and {len(seen.open) - FEW} more", "dim")) if len(seen.open) > FEW else table


def _drivers(seen: Seen) -> RenderableType:
    rows = [
        (
            one.name,
            one.report.program,
            next(iter(one.report.applications), ""),
            one.state.value,
            moment(one.report.since_ms),
            number(one.rows) if one.rows else "",
            number(one.report.commits) if one.report.commits else "",
            "" if one.report.last_commit_ms is None else f"{duration((seen.now_ms - one.report.last_commit_ms) / 1000)} ago",
            (">" if one.lag_is_more else "") + number(one.lag) if one.reads else "",
        )
        for one in seen.drivers[:FEW]
    ]
    heads = ("DRIVER", "PROGRAM", "APPLICATION", "STATE", "SINCE", "ROWS/S", "COMMITS", "LAST COMMIT", "LAG ROWS")
    table = _table(heads, rows, right=(5, 6, 8))
    return Group(table, Text(f"and {len(seen.drivers) - FEW} more", "dim")) if len(seen.drivers) > FEW else table


def _deadline(left_ms: int) -> str:
    return f"in {duration(left_ms / 1000)}" if left_ms >= 0 else f"{duration(-left_ms / 1000)} ago"


def _behind(board: Board) -> list[SubscriptionSeen]:
    return sorted(board.subscriptions or (), key=lambda s: (s.problem is None, -s.lag.rows, s.topic, s.name))


def _subscriptions(found: Sequence[SubscriptionSeen]) -> RenderableType:
    if not found:
        return Text("There are no subscriptions.")
    rows = [
        (
            one.topic,
            one.name,
            one.problem or (">" if one.at_least else "") + number(one.lag.rows),
            "" if one.problem else size(one.lag.bytes),
            duration(one.lag.seconds) if one.lag.rows else "",
        )
        for one in found
    ]
    return _table(("TOPIC", "SUBSCRIPTION", "LAG ROWS", "BYTES", "OLDEST"), rows, right=range(2, 5))


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> Table:
    table, at_right = Table(box=None, pad_edge=False, header_style="bold"), set(right)
    for place, head in enumerate(heads):
        table.add_column(Text(head), overflow="fold", justify="right" if place in at_right else "left")
    for row in rows:
        table.add_row(*(Text("" if value is None else shown(str(value))) for value in row))
    return table
