"""What readers of a Pulsar topic saw, translated into events for the history checker. This module does no I/O.

The checker expects that the first number of a row's position is the number of its transaction, and that transactions have one
order. Pulsar has no such number. The transactions of one writer follow each other. So their numbers are derived here: from the
order of their rows in each segment, and from the rule that a segment is read after its parents. If these orders contradict each
other, the history gets a `Complaint`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from conformance.history import format as events
from conformance.history.format import Complaint, Event, Poll, Read

Place = tuple[str, int, int]
"""A segment, and the ledger and the entry of a position in it."""


class Got(NamedTuple):
    """A row as a reader got it. `id`: the name of the row. `nth`: the place of the row in its entry. `txn`: the transaction that
    the entry names.
    """

    id: str
    key: str
    segment: str
    ledger: int
    entry: int
    nth: int
    txn: str

    @property
    def place(self) -> Place:
        return self.segment, self.ledger, self.entry


class Look(NamedTuple):
    """A read, or a micro-batch of a stream (`batch` is its number), that returned rows between `began` and `at`."""

    at: float
    began: float
    who: str
    rows: tuple[Got, ...]
    batch: int | None = None
    final: bool = False


class Segment(NamedTuple):
    """A segment of the layout. `number`: its id in the layout. `parents`: the names of its parents."""

    name: str
    number: int
    parents: tuple[str, ...]


def without(looks: Iterable[Look], txns: Mapping[str, set[str]]) -> list[Look]:
    """Return the looks without the rows of some transactions. `txns`: the name of a reader -> the transactions to leave out of its
    looks.
    """
    return [one._replace(rows=tuple(row for row in one.rows if row.txn not in txns.get(one.who, ()))) for one in looks]


def spanning(look: Look, segments: Sequence[Segment]) -> set[str]:
    """Return the transactions that have rows in a segment and in one of its parents."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in look.rows:
        found[row.segment].add(row.txn)
    return {txn for one in segments for parent in one.parents for txn in found[one.name] & found[parent]}


def translated(looks: Sequence[Look], segments: Sequence[Segment], topic: str) -> list[Event]:
    """Return the looks as events of a history. All rows must be of one writer."""
    places = {row.place: row.txn for one in looks for row in one.rows}
    numbers, complaints = _numbers(places, segments)
    order = {one.name: one.number for one in segments}
    ranks = {place: rank for rank, place in enumerate(sorted(places, key=lambda one: (order[one[0]], one)))}
    found: list[Event] = [*complaints]
    for one in looks:
        rows = tuple(
            events.Row(row.id, row.segment, (numbers[row.txn], ranks[row.place], row.nth), row.key, row.txn) for row in one.rows
        )
        if one.batch is None:
            found.append(Read(one.at, one.began, one.who, (topic,), rows, final=one.final, ordered=False))
        else:
            found.append(Poll(one.at, one.began, one.who, one.batch, (topic,), rows, ordered=False))
    return found


def _numbers(places: Mapping[Place, str], segments: Sequence[Segment]) -> tuple[dict[str, int], list[Event]]:
    """Return a number for each transaction, and complaints if transactions of the writer do not follow each other."""
    complaints: list[Event] = []
    of: dict[str, list[str]] = defaultdict(list)
    for segment, _, _ in (ordered := sorted(places)):
        of.setdefault(segment, [])
    for place in ordered:
        of[place[0]].append(places[place])
    graph: TopologicalSorter[str] = TopologicalSorter()
    runs: dict[str, list[str]] = {}
    for segment, txns in of.items():
        runs[segment] = [txn for number, txn in enumerate(txns) if number == 0 or txns[number - 1] != txn]
        if len(set(runs[segment])) < len(runs[segment]):
            complaints.append(Complaint(0, f"transactions of one writer are interleaved in {segment}"))
    for txn in sorted(set(places.values())):
        graph.add(txn)
    for run in runs.values():
        for before, after in pairwise(run):
            graph.add(after, before)
    for one in segments:
        for parent in one.parents:
            if runs.get(parent) and runs.get(one.name) and runs[parent][-1] != runs[one.name][0]:
                graph.add(runs[one.name][0], runs[parent][-1])
    try:
        return {txn: number for number, txn in enumerate(graph.static_order())}, complaints
    except CycleError as error:
        complaints.append(Complaint(0, f"transactions of one writer are in another order in each segment: {error.args[1][:4]}"))
        return {txn: number for number, txn in enumerate(sorted(set(places.values())))}, complaints
