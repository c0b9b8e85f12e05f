"""Readers without a JVM. They call the classes of the real source as Spark does, in the caller's own process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from conformance.harness import spark_driver
from conformance.harness.spark_driver import MicroBatchExecution
from conformance.history import format as events
from conformance.scenarios.history import Row, now
from metadata.records.names import is_persistent

PAUSE_SECONDS = 0.02
"""The pause after a read that found no new rows."""


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Convert record batches, which must contain the metadata columns, to rows of a chaos history."""
    for batch in batches:
        for row in batch.to_pylist():
            position = position_of(row["__messageId"])
            yield Row(row["key"], row["seq"], row["batch"], row["of"], row["__segment"], position, row["__txnId"])


def position_of(message_id: str) -> tuple[int, int, int]:
    ledger, entry, index = message_id.split(":")
    return int(ledger), int(entry), int(index)


def named_rows(batches: Iterable[pa.RecordBatch]) -> tuple[events.Row, ...]:
    """Convert record batches, which must contain the metadata columns, to rows of a history. The column `id` has the name of each
    row.
    """
    return tuple(
        events.Row(row["id"], row["__segment"], position_of(row["__messageId"]), row["key"], row["__txnId"])
        for batch in batches
        for row in batch.to_pylist()
    )


def read_named(url: str, topics: Sequence[str], who: str, *, final: bool = False) -> events.Read:
    """Run one batch read of all visible rows and return its event. The column `id` holds the names of the rows."""
    began = now()
    options = {"serviceUrl": url, "topics": json.dumps(list(topics)), "includeMetadata": "true"}
    rows = named_rows(spark_driver.read_batch(options))
    return events.Read(now(), began, who, tuple(topics), rows, final=final, ordered=False)


def final_read(url: str, topic: str) -> events.Read:
    """Run the last read of a topic. Every transaction must be decided by now."""
    return read_named(url, [topic], "last reader", final=True)


def _options(url: str, topic: str, **more: str) -> dict[str, str]:
    return {"path": topic, "serviceUrl": url, "includeMetadata": "true", **more}


def read_all(url: str, topic: str) -> list[Row]:
    """Run one batch read of all rows that are visible now."""
    return list(rows_of(spark_driver.read_batch(_options(url, topic))))


class Following:
    """One streaming read from the earliest offset, micro-batch by micro-batch."""

    def __init__(self, url: str, topic: str) -> None:
        self._topic, self._query = topic, MicroBatchExecution()
        self._query.start(_options(url, topic, startingOffsets="earliest"))

    @property
    def log(self) -> int:
        """The number up to which the stream has read, in the cluster's log or in the log of the persistent topic."""
        at = self._query.at
        return int(at["log"]) if not is_persistent(self._topic) else position_of(at[self._topic] + ":0")[0]

    def next(self) -> list[Row]:
        """Return the next micro-batch; empty if there is nothing new."""
        return list(rows_of(self._query.next() or ()))


class MicroBatch(NamedTuple):
    """One micro-batch, with its start and end offsets. `began`: when the read of its rows began (`history.now`)."""

    number: int
    start: dict[str, Any]
    end: dict[str, Any]
    began: float
    found: list[pa.RecordBatch]


def micro_batches(
    options: Mapping[str, str], checkpoint: Path, over: Callable[[], bool], limit: int | None = None
) -> Iterator[MicroBatch]:
    """Yield all micro-batches from the earliest offset, as Spark runs a stream. If an earlier process planned a micro-batch and
    perhaps did not finish it, this micro-batch is read again first. A micro-batch is finished when the next one is asked for.
    After `over` returns true, the stream ends when there are no new rows.

    `options` select the topics. `checkpoint` outlives the reading process. `limit`: rows of a micro-batch (`maxRowsPerTrigger`).
    """
    given = {**options, "includeMetadata": "true", "startingOffsets": "earliest"}
    given |= {} if limit is None else {"maxRowsPerTrigger": str(limit)}
    query = MicroBatchExecution(checkpoint)
    query.start(given)
    while True:
        last = over()
        if not query.construct():
            if last:
                break
            time.sleep(PAUSE_SECONDS)
            continue
        began = now()
        found = query.run() or []
        assert query.started is not None
        yield MicroBatch(query.batch, json.loads(query.started), query.at, began, found)
        query.done()
    query.stop()
