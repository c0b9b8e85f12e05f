"""The histories of chaos runs. This module defines the rows that writers write, and records for the history checker what readers
got.

A row has four columns. `batch`: the number of the transaction that wrote it. `of`: the number of rows of that batch. `seq`: the
row's place among all rows, which is also its name. `key`: the key; rows of one key are written in the order of `seq`. Times are
`time.monotonic()` in milliseconds. All processes of a machine share this clock.
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
    """Return the time of an event, in milliseconds."""
    return time.monotonic() * 1000


def written(batch: int) -> list[tuple[str, int, int, int]]:
    """Return the (key, seq, batch, of) of one batch's rows, in written order. Each key has several rows."""
    first = batch * ROWS
    return [(f"key-{seq % KEYS}", seq, batch, ROWS) for seq in range(first, first + ROWS)]


# --- events -------------------------------------------------------------------------------------------------------


def commit(at: float, batch: int, topic: str) -> Commit:
    """Return the event that says that the job may commit this batch from now on. The version is the number of the batch."""
    rows = tuple(Written(str(seq), key) for key, seq, _, _ in written(batch))
    return Commit(at, f"batch-{batch}", "job", APPLICATION, topic, batch, rows, "query", None, True)


def committed(at: float, batch: int) -> Told:
    """Return the event that says that a client knows at this time that the batch is committed."""
    return Told(at, f"batch-{batch}", "committed")


def seen(rows: Iterable[Row]) -> tuple[events.Row, ...]:
    return tuple(events.Row(str(r.seq), r.segment, r.position, r.key, r.txn) for r in rows)


class Observation:
    """Records, in order, the reads that run beside a job: whole reads of a topic, and the micro-batches of one stream. If a whole
    read repeats all rows of the previous whole read, only its further rows are stored.
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
        """Record one round of a stream whose micro-batches have no limit of rows: its plan, and the micro-batch if there is one."""
        at = now()
        self.events.append(Plan(at, began, stream, self._topics, start, end, end, log=self._log))
        if end > start or rows:
            self.events.append(
                Poll(at, began, stream, self._batch, self._topics, seen(rows), start, end, ordered=False, log=self._log)
            )
            self._batch += 1


def judged(histories: Iterable[Iterable[Event]], file: Path | None = None) -> list[str]:
    """Merge the histories of several recorders, write the merged history to `file`, and return all findings of the checker."""
    history = merge([[Start(0, "conformance.scenarios")], *histories])
    if file is not None:
        write(file, history)
    return [str(finding) for finding in check(history)]


# --- checks of a few reads ----------------------------------------------------------------------------------------

TOPIC = "topic://public/default/chaos"


def _rows_in(topic: str, rows: Iterable[Row]) -> tuple[events.Row, ...]:
    """Return the rows as if their topic were `topic`, whatever its real name is. The checks below use only one topic."""
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
    """Return everything that is wrong with one read of the topic of a job that has not ended. The job commits one batch after the
    other. So the rows of the last batch in the read show that all batches before it are committed.
    """
    return vanished(rows, rows)  # as if the same rows were read twice


def vanished(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """Return everything that is wrong with two reads, of which the first ended before the second began."""
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
