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
    """One file of the reader: its rows, and when it began and ended to read. `batch` None: a batch read."""

    rows: pa.Table
    began: float
    ended: float
    batch: int | None


def seen(folder: Path) -> list[Seen]:
    """All that the reader kept, in the order of the ends."""
    found = []
    for file in folder.glob("*-*.parquet"):
        rows = pq.read_table(file)
        times = rows.schema.metadata
        kind, number, *_ = file.stem.split("-")
        batch = int(number) if kind == "poll" else None
        found.append(Seen(rows, float(times[b"began"]), float(times[b"ended"]), batch))
    return sorted(found, key=lambda one: one.ended)


def events(deployment: Deployment, reads: Iterable[Seen], final: Seen, seed: int) -> Iterator[Event]:
    """The history of a run that has been drained. `final`: a read after the end and a sweep."""
    yield Start(deployment.fed[0], "conformance.cluster", seed=seed)
    query = json.loads((deployment.folder / "checkpoint" / "metadata").read_text())["id"]
    streamed, loaded = deployment.topics
    for name, app, topic, by in (("writer", query, streamed, query), ("loader", APP, loaded, None)):
        told = deployment.progress[name].at
        for batch, fed in enumerate(deployment.fed):
            given = tuple(Written(f"{topic}#{seq}", key) for key, seq in written(batch))
            call = f"{name}-{batch}"
            yield Commit(fed, call, name, app, topic, batch, given, query=by, replays=True)
            if batch < len(told):
                yield Told(told[batch], call, "committed")
    for one in reads:
        rows = tuple(_rows(one.rows))
        if one.batch is None:
            yield Read(one.ended, one.began, "batch-reader", deployment.topics, rows, ordered=False)
        else:
            yield Poll(one.ended, one.began, "stream-reader", one.batch, deployment.topics, rows, ordered=False)
    yield Read(final.ended, final.began, "last-reader", deployment.topics, tuple(_rows(final.rows)), final=True, ordered=False)


def _rows(table: pa.Table) -> Iterator[Row]:
    for row in table.to_pylist():
        ledger, entry, index = row["__messageId"].split(":")
        position = (int(ledger), int(entry), int(index))
        yield Row(f"{row['__topic']}#{row['seq']}", row["__segment"], position, row["key"], row["__txnId"])


def write(history: Iterable[Event], file: Path) -> None:
    """As JSON lines."""
    with file.open("w", encoding="utf-8") as out:
        out.writelines(line(event) + "\n" for event in history)
