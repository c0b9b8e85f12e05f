"""Readers without a JVM: the real source's classes, driven as Spark drives them, in the caller's own process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from conformance.chaos.history import Row, now
from conformance.history import format as events
from metadata.records.names import is_persistent
from pyspark_txnsegment import DefaultSource
from spark_txn_source.batch import BatchReader
from spark_txn_source.stream import StreamReader

PAUSE_SECONDS = 0.02
"""From one look to the next where there was nothing new."""


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Rows with metadata columns as the history knows them."""
    for batch in batches:
        for row in batch.to_pylist():
            position = position_of(row["__messageId"])
            yield Row(row["key"], row["seq"], row["batch"], row["of"], row["__segment"], position, row["__txnId"])


def position_of(message_id: str) -> tuple[int, int, int]:
    ledger, entry, index = message_id.split(":")
    return int(ledger), int(entry), int(index)


def named_rows(batches: Iterable[pa.RecordBatch]) -> tuple[events.Row, ...]:
    """Rows with metadata columns whose column `id` is their name in the history, and `key` their key."""
    return tuple(
        events.Row(row["id"], row["__segment"], position_of(row["__messageId"]), row["key"], row["__txnId"])
        for batch in batches
        for row in batch.to_pylist()
    )


def read_named(url: str, topics: Sequence[str], who: str, *, final: bool = False) -> events.Read:
    """One batch read of everything that is visible now, of rows with names."""
    began = now()
    options = {"serviceUrl": url, "topics": json.dumps(list(topics)), "includeMetadata": "true"}
    reader = BatchReader(options, DefaultSource(options).schema())
    rows = named_rows(batch for task in reader.partitions() for batch in reader.read(task))
    return events.Read(now(), began, who, tuple(topics), rows, final=final, ordered=False)


def final_read(url: str, topic: str) -> events.Read:
    """The last one, once everything is decided."""
    return read_named(url, [topic], "last reader", final=True)


def _options(url: str, topic: str, **more: str) -> dict[str, str]:
    return {"path": topic, "serviceUrl": url, "includeMetadata": "true", **more}


def read_all(url: str, topic: str) -> list[Row]:
    """One batch read of everything that is visible now."""
    options = _options(url, topic)
    reader = BatchReader(options, DefaultSource(options).schema())
    return [row for task in reader.partitions() for row in rows_of(reader.read(task))]


class Following:
    """One streaming read from the earliest offset on, micro-batch by micro-batch."""

    def __init__(self, url: str, topic: str) -> None:
        options = _options(url, topic, startingOffsets="earliest")
        self._topic = topic
        self._reader = StreamReader(options, DefaultSource(options).schema())
        self.offset: dict[str, Any] = self._reader.initialOffset()

    @property
    def log(self) -> int:
        """The number up to which it has read: of the common log, or of the persistent topic's own."""
        return int(self.offset["log"]) if not is_persistent(self._topic) else position_of(self.offset[self._topic] + ":0")[0]

    def next(self) -> list[Row]:
        """The next micro-batch; empty if there is nothing new."""
        end = self._reader.latestOffset(self.offset, ReadAllAvailable())
        found: list[InputPartition] = list(self._reader.partitions(self.offset, end))
        rows = [row for task in found for row in rows_of(self._reader.read(task))]
        self.offset = end
        return rows


class MicroBatch(NamedTuple):
    """One micro-batch, from its start offset to its end; `began`: when its reading did (`history.now`)."""

    number: int
    start: dict[str, Any]
    end: dict[str, Any]
    began: float
    found: list[pa.RecordBatch]


def micro_batches(
    options: Mapping[str, str], checkpoint: Path, over: Callable[[], bool], limit: int | None = None
) -> Iterator[MicroBatch]:
    """All from the earliest offset on, as Spark drives a stream: what was planned and perhaps not finished is read again first. A
    micro-batch is finished when the next one is asked for. Once it is `over` it goes on until there is nothing new.

    `options` say what is read; `checkpoint` outlives whoever reads; `limit`: rows of a micro-batch (`maxRowsPerTrigger`).
    """
    given = {**options, "includeMetadata": "true", "startingOffsets": "earliest"}
    given |= {} if limit is None else {"maxRowsPerTrigger": str(limit)}
    reader = StreamReader(given, DefaultSource(given).schema())
    state: dict[str, Any] = {"batch": 0, "start": reader.initialOffset(), "end": None}
    if checkpoint.exists():
        state = json.loads(checkpoint.read_text())
    while True:
        last = over()
        if state["end"] is None:
            end = reader.latestOffset(state["start"], ReadAllAvailable() if limit is None else reader.getDefaultReadLimit())
            if end == state["start"]:
                if last:
                    break
                time.sleep(PAUSE_SECONDS)
                continue
            state["end"] = end
            _keep(checkpoint, state)
        began = now()
        found = [batch for task in reader.partitions(state["start"], state["end"]) for batch in reader.read(task)]
        yield MicroBatch(state["batch"], state["start"], state["end"], began, found)
        state = {"batch": state["batch"] + 1, "start": state["end"], "end": None}
        _keep(checkpoint, state)
    reader.stop()


def _keep(file: Path, state: dict[str, Any]) -> None:
    made = file.with_suffix(".new")
    made.write_text(json.dumps(state))
    made.rename(file)
