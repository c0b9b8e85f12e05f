"""Divides the tasks of a read, so that several tasks read one segment (`minPartitions`, `maxPartitionBytes`).

A broker does not tell clients the sizes of ledgers. But it tells the position before the first entry of a temporary subscription.
For a subscription that begins at the first entry of a ledger, this position is the last entry of the previous ledger. So the
entries of a range are counted ledger by ledger, from the last ledger to the first, with three requests for each ledger. The size of
an entry is estimated by the mean size of a few entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from pulsar_protocol.layout import Position
from spark_txn_source.pulsar.asking import each
from spark_txn_source.pulsar.pieces import Run, divided, numbers
from spark_txn_source.pulsar.tasks import PulsarTask

MOST_LEDGERS: Final = 256
"""How many ledgers of a segment are counted at most: the last ones. The first task gets all entries of earlier ledgers."""
SAMPLES: Final = 4
"""How many entries of a segment are measured. Their mean size is the estimated size of every entry of the segment."""


def divide(
    client: PulsarClient, found: Sequence[PulsarTask], min_partitions: int | None, max_bytes: int | None
) -> list[PulsarTask]:
    """Divide the tasks into smaller tasks, and return those. The tasks of a segment follow one another, in the order of its
    entries.

    `found`: at most one task for each segment. `min_partitions`: how many tasks are returned at least, if there are as many
    entries. `max_bytes`: the approximate limit of a task. If neither of the two is given, the tasks are returned unchanged. Raises
    the errors of the broker.
    """
    if not found or (max_bytes is None and min_partitions in (None, 1)):
        return list(found)
    by_segment = {one.segment: one for one in found}
    runs = each(by_segment, lambda name: runs_of(Segment(client, name), by_segment[name].after, by_segment[name].to))
    entries = {name: sum(run.entries for run in runs[name]) for name in by_segment}
    large = []
    if max_bytes is not None:
        largest = client.channel().ready.max_message_size
        large = [name for name, count in entries.items() if count * largest > max_bytes]
    sizes = each(large, lambda name: _mean_size(Segment(client, name), by_segment[name], runs[name]))
    chosen = numbers(entries, sizes, min_partitions, max_bytes)
    return [
        task.narrowed(after, to)
        for task in found
        for after, to in divided(task.after, task.to, runs[task.segment], chosen[task.segment])
    ]


def runs_of(segment: Segment, after: Position, to: Position, most: int = MOST_LEDGERS) -> list[Run]:
    """Return the entries of a segment after the position `after` and up to the position `to`, as one run for each ledger. `to` is
    at or before the cut. `most`: how many ledgers are returned at most; earlier ledgers are left out. Entries of aborted
    transactions, and entries that are markers, are counted, too.
    """
    found: list[Run] = []
    last = to
    while last.ledger > after.ledger and len(found) < most:
        if last.entry >= 0:
            found.append(Run(last.ledger, 0, last.entry))
        before = segment.before(Position(last.ledger, 0))
        if before.entry < 0 or before.ledger >= last.ledger:
            return found[::-1]  # retention has left no earlier ledger
        last = before
    if last.ledger == after.ledger and last.entry > after.entry and len(found) < most:
        found.append(Run(last.ledger, after.entry + 1, last.entry))
    return found[::-1]


def _mean_size(segment: Segment, task: PulsarTask, runs: Sequence[Run]) -> int:
    """Return the mean size in bytes of up to `SAMPLES` entries, which are spread evenly over the range of the task."""
    places = [place for place, _ in divided(task.after, task.to, runs, SAMPLES)]
    return sum(segment.first_after(place).size for place in places) // len(places)
