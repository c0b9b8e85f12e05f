"""A run as a history of `conformance.history`: what the writers were fed and were seen to commit, what the readers got, each fault.

All times are `time.monotonic()` of this machine in ms. A commit begins when its input was laid down, and was told when its number
was seen in the writer's progress: both are on the safe side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from conformance.cluster.deployment import Deployment
from conformance.cluster.input import written
from conformance.cluster.loader import APP
from conformance.history.files import line
from conformance.history.format import Commit, Event, Poll, Read, Row, Start, Told, Written


@dataclass(frozen=True)
class Seen:
    """One file of a reader (`by`): its rows, and when it began and ended to read. `batch` None: a batch read."""

    by: str
    rows: pa.Table
    began: float
    ended: float
    batch: int | None


def seen(folder: Path, by: str) -> list[Seen]:
    """All that a reader kept, in the order of the ends."""
    found = []
    for file in folder.glob("*-*.parquet"):
        rows = pq.read_table(file)
        times = rows.schema.metadata
        kind, number, *_ = file.stem.split("-")
        batch = int(number) if kind == "poll" else None
        found.append(Seen(by, rows, float(times[b"began"]), float(times[b"ended"]), batch))
    return sorted(found, key=lambda one: one.ended)


def events(deployment: Deployment, reads: Iterable[Seen], final: Seen, seed: int) -> Iterator[Event]:
    """The history of a run that has been drained. `final`: a read after the end and a sweep."""
    yield Start(deployment.fed[0], "conformance.cluster", seed=seed)
    for job in deployment.scene.writers:
        query = json.loads((deployment.checkpoint(job.name) / "metadata").read_text())["id"] if job.streams else None
        told = deployment.progress[job.name].at
        for batch, fed in enumerate(deployment.fed):
            given = tuple(Written(f"{job.topic}#{key}#{seq}", key) for key, seq in written(batch, job.name))
            call = f"{job.name}-{batch}"
            yield Commit(fed, call, job.name, query or APP, job.topic, batch, given, query=query, replays=True)
            if batch < len(told):
                yield Told(told[batch], call, "committed")
    for one in reads:
        rows = tuple(_rows(one.rows))
        if one.batch is None:
            yield Read(one.ended, one.began, f"{one.by}, batches", deployment.topics, rows, ordered=False)
        else:
            yield Poll(one.ended, one.began, f"{one.by}, stream", one.batch, deployment.topics, rows, ordered=False)
    yield Read(final.ended, final.began, "last-reader", deployment.topics, tuple(_rows(final.rows)), final=True, ordered=False)


def _rows(table: pa.Table) -> Iterator[Row]:
    for row in table.to_pylist():
        ledger, entry, index = row["__messageId"].split(":")
        position = (int(ledger), int(entry), int(index))
        yield Row(f"{row['__topic']}#{row['key']}#{row['seq']}", row["__segment"], position, row["key"], row["__txnId"])


def write(history: Iterable[Event], file: Path) -> None:
    """As JSON lines."""
    with file.open("w", encoding="utf-8") as out:
        out.writelines(line(event) + "\n" for event in history)
