"""The histories of chaos runs. This module defines the rows of the writers. It also makes the events that tell the history checker
what was written and what readers got.

One batch is one transaction. A row has four columns. `batch`: the number of its batch. `of`: how many rows this batch has. `seq`:
the row's place among all rows of the run; it is also the row's id in the history. `key`: the key; rows of one key are written in
the order of `seq`. Times are `time.monotonic()` in milliseconds. All processes of a machine share this clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.history import format as events
from conformance.history.checker import check
from conformance.history.files import merge, shortened, write
from conformance.history.format import Commit, Event, Plan, Poll, Read, Start, Told, Written
from metadata.records.names import is_persistent

ROWS = 39
KEYS = 13
APPLICATION = "job"


@dataclass(frozen=True, slots=True)
class Row:
    """One row as a reader saw it. `position`: the row's ledgerId, entryId and batchIndex."""

    key: str
    seq: int
    batch: int
    of: int
    segment: str
    position: tuple[int, int, int]
    txn: str | None


def now() -> float:
    """Return the current time as the events have it, in milliseconds."""
    return time.monotonic() * 1000


def written(batch: int) -> list[tuple[str, int, int, int]]:
    """Return the rows of one batch as (key, seq, batch, of), in the order in which they are written. Each key has several rows."""
    first = batch * ROWS
    return [(f"key-{seq % KEYS}", seq, batch, ROWS) for seq in range(first, first + ROWS)]


# --- events -------------------------------------------------------------------------------------------------------


def commit(at: float, batch: int, topic: str) -> Commit:
    """Return the event that says that the job may commit this batch from time `at` on. The version is the number of the batch."""
    rows = tuple(Written(str(seq), key) for key, seq, _, _ in written(batch))
    return Commit(at, f"batch-{batch}", "job", APPLICATION, topic, batch, rows, "query", None, True)


def committed(at: float, batch: int) -> Told:
    """Return the event that says that a client knows at time `at` that the batch is committed."""
    return Told(at, f"batch-{batch}", "committed")


def seen(rows: Iterable[Row]) -> tuple[events.Row, ...]:
    return tuple(events.Row(str(r.seq), r.segment, r.position, r.key, r.txn) for r in rows)


class Observation:
    """Records the reads that run beside a job: reads of all rows of a topic, and the micro-batches of one stream. If a read of all
    rows repeats all rows of the previous one, only its new rows are stored.
    """

    def __init__(self, topic: str) -> None:
        self.events: list[Event] = []
        self._topics = (topic,)
        self._log = topic if is_persistent(topic) else ""
        self._before: Read | None = None
        self._batch = 0

    def read(self, began: float, rows: Iterable[Row], *, final: bool = False, who: str = "batch reader") -> None:
        whole = Read(now(), began, who, self._topics, seen(rows), final=final, ordered=False, log=self._log)
        self.events.append(shortened(self._before, whole))
        self._before = whole

    def poll(self, began: float, start: int, end: int, rows: Sequence[Row], *, stream: str = "stream") -> None:
        """Record one plan of a stream without a limit of rows, and the micro-batch of the plan, if there is one."""
        at = now()
        self.events.append(Plan(at, began, stream, self._topics, start, end, end, log=self._log))
        if end > start or rows:
            self.events.append(
                Poll(at, began, stream, self._batch, self._topics, seen(rows), start, end, ordered=False, log=self._log)
            )
            self._batch += 1


def judged(histories: Iterable[Iterable[Event]], file: Path | None = None) -> list[str]:
    """Merge the histories of several recorders. Write the result to `file`, if given. Return all findings of the checker."""
    history = merge([[Start(0, "conformance.scenarios")], *histories])
    if file is not None:
        write(file, history)
    return [str(finding) for finding in check(history)]


# --- checks of a few reads ----------------------------------------------------------------------------------------

TOPIC = "topic://public/default/chaos"


def _rows_in(topic: str, rows: Iterable[Row]) -> tuple[events.Row, ...]:
    """Return the rows with the name of their topic replaced by `topic`. All rows of the checks below are of one topic."""
    prefix = "segment://" + topic.removeprefix("topic://") + "/"
    return tuple(r._replace(segment=prefix + r.segment.rpartition("/")[2]) for r in seen(rows))


def _job(told: int, begun: int) -> list[Event]:
    """Return the events of a job that began `begun` batches one by one and knows that the first `told` of them are committed."""
    history: list[Event] = []
    for batch in range(begun):
        history.append(commit(2 * batch, batch, TOPIC))
        if batch < told:
            history.append(committed(2 * batch + 1, batch))
    return history


def complete(rows: Sequence[Row], batches: int) -> list[str]:
    """Return everything that is wrong with a read after a job has committed `batches` batches and ended."""
    end = 2 * batches
    return judged(
        [_job(batches, batches), [Read(end + 2, end + 1, "reader", (TOPIC,), _rows_in(TOPIC, rows), final=True, ordered=False)]]
    )


def partial(rows: Sequence[Row]) -> list[str]:
    """Return everything that is wrong with one read of a topic while its job has not ended. The job commits one batch after the
    other. So if the read has a row of a batch, all earlier batches are committed.
    """
    return vanished(rows, rows)  # `vanished` checks two reads; here both have the same rows


def vanished(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """Return everything that is wrong with two reads of a topic, the second of which began after the first had ended."""
    begun = max((r.batch for r in (*before, *after)), default=-1) + 1
    told = max((r.batch for r in before), default=0)
    reads = [
        Read(2 * begun + 2 * i + 2, 2 * begun + 2 * i + 1, "reader", (TOPIC,), _rows_in(TOPIC, rows), ordered=False)
        for i, rows in enumerate((before, after))
    ]
    return judged([_job(told, begun), reads])


def streamed(micro_batches: Sequence[Sequence[Row]]) -> list[str]:
    """Return everything that is wrong with the micro-batches of one streaming reader, given in the order in which it got them."""
    begun = max((r.batch for rows in micro_batches for r in rows), default=-1) + 1
    polls = [
        Poll(2 * begun + 2 * i + 2, 2 * begun + 2 * i + 1, "stream", i, (TOPIC,), _rows_in(TOPIC, rows), ordered=False)
        for i, rows in enumerate(micro_batches)
    ]
    return judged([_job(begun - 1, begun), polls])
