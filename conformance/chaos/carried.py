"""What the parties of a migration noted, judged: nothing may be lost, doubled, torn or reordered. PURE: no I/O, no clock.

A row is what `conformance.chaos.carrying_on.seen` gives: [segment, ledger, entry, index, key, `<who>.<seq>`].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

Row = Sequence[Any]
Notes = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Cast:
    """Who was at work, and on which topics, by their old names. `goes_on`: the new name of each."""

    goes_on: Mapping[str, str]
    writers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    senders: Mapping[str, str] = field(default_factory=dict)
    consumers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    movers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    streams: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lookers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def old(self, segment: str) -> str:
        """The old name of the topic that a segment belongs to."""
        if segment.startswith("persistent://"):
            return segment
        topic = "topic://" + segment.removeprefix("segment://").rpartition("/")[0]
        return next(old for old, new in self.goes_on.items() if new == topic)


def judged(cast: Cast, rows: int, notes: Mapping[str, Notes], final: Mapping[str, Sequence[Row]]) -> list[str]:
    """Everything that is wrong. `final`: what each topic holds in the end; `rows`: of each writer's transactions."""
    found: list[str] = []
    for topic, there in final.items():
        found += _keys(f"{topic} in the end", sorted(there, key=place))
        found += _twice(f"{topic} in the end", [row[5] for row in there])
    for who, topics in cast.writers.items():
        found += _written(who, rows, notes[who], topics, final)
        for topic in topics:
            found += _under_load(who, topic, (row for row in final[topic] if _who(row) == who))
    for who, topic in cast.senders.items():
        found += _sent(who, notes[who], final[topic])
        found += _under_load(who, topic, (row for row in final[topic] if _who(row) == who))
    known = {*cast.writers, *cast.senders}
    found += [f"{row[5]} in {t} is of nobody" for t, there in final.items() for row in there if _who(row) not in known]
    for who, topics in cast.consumers.items():
        found += _delivered(who, notes[who], topics, final)
    for who, (source, target) in cast.movers.items():
        found += _same(f"{who} moved from {source} to {target}", _ids(final[source]), _ids(final[target]))
        found += _under_load(who, target, final[target])
        found += _all_acknowledged(who, notes[who])
    for who, topics in cast.streams.items():
        found += _streamed(cast, who, notes[who], topics, final)
    for who in cast.lookers:
        found += _looked(who, notes[who])
    return found


def _who(row: Row) -> str:
    return str(row[5]).rpartition(".")[0]


def _seq(name: str) -> int:
    return int(name.rpartition(".")[2])


def _ids(rows: Iterable[Row]) -> list[str]:
    return [row[5] for row in rows]


def place(row: Row) -> tuple[bool, int, int, int]:
    """Where a row stands in its topic: what was migrated is before all that went on from it, each by numbers of its own log."""
    return (not _is_old(row), row[1], row[2], row[3])


def _is_old(row: Row) -> bool:
    """Whether it stands in the persistent topic's log and not in what goes on from it."""
    return str(row[0]).startswith("persistent://")


def _keys(what: str, rows: Iterable[Row]) -> list[str]:
    """Rows of a key in the order that they are given in."""
    last: dict[str, str] = {}
    found = []
    for row in rows:
        before = last.get(row[4])
        if before is not None and _seq(before) > _seq(row[5]):
            found.append(f"{what}: {before} comes before {row[5]}")
        last[row[4]] = row[5]
    return found


def _under_load(who: str, topic: str, rows: Iterable[Row]) -> list[str]:
    """Rows on both sides: else nothing went on while the topic migrated, and that all is well says little."""
    sides = {_is_old(row) for row in rows}
    return [
        *([] if True in sides else [f"{topic} did not migrate under load: it has no row of {who} from before it"]),
        *([] if False in sides else [f"{topic} did not migrate under load: it has no row of {who} from after it"]),
    ]


def _twice(what: str, names: Iterable[str]) -> list[str]:
    return [f"{what}: {name} is there {count} times" for name, count in Counter(names).items() if count > 1]


def _same(what: str, wanted: Iterable[str], got: Iterable[str]) -> list[str]:
    """The same rows, each once."""
    there, should = list(got), set(wanted)
    lost, more = sorted(should.difference(there)), sorted(set(there) - should)
    return [
        *_twice(what, there),
        *([f"{what}: lost {len(lost)} rows, {', '.join(lost[:5])}"] if lost else []),
        *([f"{what}: {len(more)} rows that should not be there, {', '.join(more[:5])}"] if more else []),
    ]


def _written(who: str, rows: int, notes: Notes, topics: Sequence[str], final: Mapping[str, Sequence[Row]]) -> list[str]:
    """All that was told, and of what was not told at most the one version under way, whole."""
    told = [note["version"] for note in notes if "version" in note]
    found = [] if told == list(range(len(told))) else [f"{who} noted versions {told}"]
    under_way = len(told)
    wanted = [f"{who}.{n}" for n in range(under_way * rows)]
    there = {name for topic in topics for name in _ids(final[topic]) if name.startswith(f"{who}.")}
    last = {f"{who}.{n}" for n in range(under_way * rows, (under_way + 1) * rows)}
    if 0 < len(last & there) < rows:
        found.append(f"version {under_way} of {who} is torn: {sorted(last & there)}")
    for i, topic in enumerate(topics):
        mine = [name for name in _ids(final[topic]) if name.startswith(f"{who}.") and name not in last]
        found += _same(f"{who} in {topic}", [name for name in wanted if _seq(name) % rows % len(topics) == i], mine)
    return found


def _sent(who: str, notes: Notes, there: Sequence[Row]) -> list[str]:
    """What was sent once, what was refused not at all, what nobody was told of at most once."""
    mine = Counter(name for name in _ids(there) if name.startswith(f"{who}."))
    found = []
    for kind, least, most in (("sends", 0, 1), ("sent", 1, 1), ("refused", 0, 0)):
        for note in notes:
            count = mine[f"{who}.{note[kind]}"] if kind in note else least
            if not least <= count <= most:
                found.append(f"{who}.{note[kind]}, noted as {kind}, is there {count} times")
    return found


def _delivered(who: str, notes: Notes, topics: Sequence[str], final: Mapping[str, Sequence[Row]]) -> list[str]:
    """Every row at least once, none after its acknowledgement was told, the first deliveries of a key in order."""
    found, acked = [], set()
    first: dict[str, None] = {}
    last: dict[tuple[str, str], str] = {}
    for note in notes:
        for topic, key, name in note.get("delivered", ()):
            if name in acked:
                found.append(f"{who} got {name} again, which it had acknowledged")
            if name in first:
                continue
            first[name] = None
            before = last.get((_side(topic), key))
            if before is not None and _seq(before) > _seq(name):
                found.append(f"{who} got {before} before {name}")
            last[_side(topic), key] = name
        acked |= set(note.get("acked", ()))
    found += _same(f"{who} was delivered", [name for topic in topics for name in _ids(final[topic])], first)
    return found + _all_acknowledged(who, notes)


def _side(topic: str) -> str:
    """A topic by the last part of its name, which its migration keeps."""
    return topic.rpartition("/")[2]


def _all_acknowledged(who: str, notes: Notes) -> list[str]:
    return [] if notes and notes[-1].get("left") == 0 else [f"{who} did not come to an end"]


def _streamed(cast: Cast, who: str, notes: Notes, topics: Sequence[str], final: Mapping[str, Sequence[Row]]) -> list[str]:
    """Each row once over all micro-batches, a replayed one the same again, none over both sides of a migration; the rows of a key
    in order, micro-batch after micro-batch, and by place within one.
    """
    found: list[str] = []
    batches: dict[int, list[Row]] = {}
    for note in (note for note in notes if "batch" in note):
        again = batches.setdefault(note["batch"], note["rows"])
        if sorted(_ids(again)) != sorted(_ids(note["rows"])):
            found.append(f"{who} got micro-batch {note['batch']} again with other rows")
    if list(batches) != list(range(len(batches))):
        found.append(f"{who} has the micro-batches {list(batches)}")
    got: dict[str, list[Row]] = {topic: [] for topic in topics}
    for batch, rows in batches.items():
        ordered = sorted(rows, key=lambda row: (cast.old(row[0]), place(row)))
        for topic, group in groupby(ordered, key=lambda row: cast.old(row[0])):
            some = list(group)
            if len({_is_old(row) for row in some}) > 1:  # (each of its tasks gives its rows in order, and Spark runs them in any)
                found.append(f"{who}: micro-batch {batch} has rows of both sides of {topic}")
            got[topic] += some
    for topic, rows in got.items():
        found += _same(f"{who} on {topic}", _ids(final[topic]), _ids(rows))
        found += _keys(f"{who} on {topic}", rows)
    return found


def _looked(who: str, notes: Notes) -> list[str]:
    """What one read showed all later ones show; none shows a row twice."""
    found: list[str] = []
    before: set[str] = set()
    for number, note in enumerate(note for note in notes if "look" in note):
        there = note["look"]
        found += _twice(f"{who}, read {number}", there)
        if gone := sorted(before.difference(there)):
            found.append(f"{who}, read {number}: {len(gone)} rows are gone, {', '.join(gone[:5])}")
        before = set(there)
    return found
