"""Readers without a JVM. They call the classes of the real source in the same way as Spark, in the process of the caller."""

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
    """Convert record batches, which must contain the metadata columns, to rows of a history. The column `id` has the id of each row
    in the history.
    """
    return tuple(
        events.Row(row["id"], row["__segment"], position_of(row["__messageId"]), row["key"], row["__txnId"])
        for batch in batches
        for row in batch.to_pylist()
    )


def read_named(url: str, topics: Sequence[str], who: str, *, final: bool = False) -> events.Read:
    """Run one batch read of all visible rows, and return it as an event. The topics must have the columns `id` and `key`."""
    began = now()
    options = {"serviceUrl": url, "topics": json.dumps(list(topics)), "includeMetadata": "true"}
    rows = named_rows(spark_driver.read_batch(options))
    return events.Read(now(), began, who, tuple(topics), rows, final=final, ordered=False)


def final_read(url: str, topic: str) -> events.Read:
    """Run the last batch read of a topic, and return it as an event. Call this when every transaction is decided."""
    return read_named(url, [topic], "last reader", final=True)


def _options(url: str, topic: str, **more: str) -> dict[str, str]:
    return {"path": topic, "serviceUrl": url, "includeMetadata": "true", **more}


def read_all(url: str, topic: str) -> list[Row]:
    """Run one batch read and return all rows that are visible now."""
    return list(rows_of(spark_driver.read_batch(_options(url, topic))))


class Following:
    """One streaming read from the earliest offset, micro-batch by micro-batch."""

    def __init__(self, url: str, topic: str) -> None:
        self._topic, self._query = topic, MicroBatchExecution()
        self._query.start(_options(url, topic, startingOffsets="earliest"))

    @property
    def log(self) -> int:
        """The number up to which the stream has read: in the cluster's log or, for a persistent topic, in the log of the topic."""
        at = self._query.at
        return int(at["log"]) if not is_persistent(self._topic) else position_of(at[self._topic] + ":0")[0]

    def next(self) -> list[Row]:
        """Return the rows of the next micro-batch; none if there is nothing new."""
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
    """Yield all micro-batches from the earliest offset, as Spark runs a stream. A micro-batch is recorded as finished when the
    caller asks for the next one. If an earlier process planned a micro-batch that is not recorded as finished, this function yields
    it first, again. Once `over` has returned true, the stream ends when there are no new rows.

    `options`: the options that select the topics. `checkpoint`: the file by which a later process continues the stream. `limit`:
    the soft limit of rows in a micro-batch (`maxRowsPerTrigger`); None: no limit.
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
