"""What a stream says about itself in the report of its driver: the rows that it plans, and those that it has not read yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from metadata.cluster.figures import Figures
from metadata.common.tracing import note
from metadata.read.selection import Pattern
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.options import ReadOptions
from spark_txn_source.planned import ReadTask

MOST_TRANSACTIONS = 1_000
"""How many unread transactions are counted, because a stream counts them each time that it plans."""


def note_lag(figures: Figures, options: ReadOptions, unread: Sequence[LogRange]) -> None:
    """Note how many rows of `unread` there are: all rows that the stream has not read when it plans its next micro-batch."""
    if figures.changed is None:
        return  # nobody reads the figures
    weights = chain.from_iterable(one.reading.weights(one.start, one.end) for one in unread)
    found = [weight.rows for weight in islice(weights, MOST_TRANSACTIONS + 1)]
    figures.lagging(*named(options), sum(found[:MOST_TRANSACTIONS]), more=len(found) > MOST_TRANSACTIONS)


def note_planned(figures: Figures, tasks: Sequence[ReadTask]) -> None:
    rows = sum(piece.rows for task in tasks for piece in task.pieces)
    figures.read(rows)
    note(rows=rows, tasks=len(tasks))


def named(options: ReadOptions) -> tuple[str, str | None]:
    """Return the names by which a report shows a stream: its topics, and its subscription."""
    selection = options.selection
    names = f"pattern {selection.regex}" if isinstance(selection, Pattern) else ", ".join(selection.key)
    return names, options.subscription
