"""A stream with `minOffsetsPerTrigger` waits for rows, for at most `maxTriggerDelay` since the last micro-batch with rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from metadata.common.clock import SystemClock
from pyspark_txnsegment import DefaultSource
from txnsegment import Cluster, connect


class Waiting:
    """A topic and a stream that waits for five rows, for at most a minute. The test sets the monotonic clock (`now`)."""

    def __init__(self, folder: Path) -> None:
        self.url, self.now = f"file://{folder}/cluster", 1000.0
        self.cluster: Cluster = connect(self.url)
        self.cluster.topics.create("t", schema="n bigint")
        self.reader: Any = self.stream()
        self.at = self.reader.initialOffset()

    def stream(self, **options: str) -> Any:
        given = {"serviceUrl": self.url, "topic": "t", "startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
        source = DefaultSource({**given, "maxTriggerDelay": "1m", **options})
        return source.streamReader(source.schema())

    def write(self, rows: int) -> None:
        with self.cluster.begin() as txn:
            txn.append("t", pa.table({"n": pa.array(range(rows), pa.int64())}))
            txn.commit()

    def trigger(self, limit: Any = None) -> int:
        """Plan the next micro-batch as Spark does. Return the number of its rows."""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit() if limit is None else limit)
        rows = sum(batch.num_rows for p in self.reader.partitions(self.at, end) for batch in self.reader.read(p))
        self.at = end
        return rows


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Waiting(tmp_path)
    monkeypatch.setattr(SystemClock, "monotonic", lambda _: found.now)
    yield found
    found.reader.stop()
    found.cluster.close()


def test_a_stream_waits_until_enough_rows_are_committed(waiting: Waiting) -> None:
    assert isinstance(waiting.reader.getDefaultReadLimit(), ReadMinRows)
    waiting.write(1)
    assert waiting.trigger() == 1  # the first micro-batch of a run does not wait
    waiting.write(4)
    before = waiting.at
    assert waiting.trigger() == 0
    assert waiting.at == before
    waiting.write(1)
    waiting.now += 0.2
    assert waiting.trigger() == 5


def test_a_stream_waits_no_longer_than_its_delay_after_the_last_rows(waiting: Waiting) -> None:
    waiting.write(1)
    assert waiting.trigger() == 1
    waiting.now += 59
    waiting.write(1)
    assert waiting.trigger() == 0
    waiting.now += 1
    assert waiting.trigger() == 1
    waiting.write(1)
    waiting.now += 59
    assert waiting.trigger() == 0
    waiting.now += 1
    assert waiting.trigger() == 1


def test_an_empty_trigger_after_the_delay_begins_no_new_delay(waiting: Waiting) -> None:
    waiting.write(1)
    assert waiting.trigger() == 1
    waiting.now += 100
    assert waiting.trigger() == 0
    waiting.write(1)
    waiting.now += 1
    assert waiting.trigger() == 1


def test_triggers_that_read_all_do_not_wait(waiting: Waiting) -> None:
    waiting.write(1)
    assert waiting.trigger() == 1
    waiting.write(1)
    assert waiting.trigger() == 0
    assert waiting.trigger(ReadAllAvailable()) == 1  # Trigger.Once
    waiting.write(1)
    waiting.reader.prepareForTriggerAvailableNow()
    assert waiting.trigger() == 1


def test_the_limit_of_rows_holds_after_the_wait(waiting: Waiting) -> None:
    waiting.reader.stop()
    waiting.reader = waiting.stream(maxRowsPerTrigger="2")
    waiting.write(1)
    assert waiting.trigger() == 1
    for _ in range(5):
        waiting.write(1)
    waiting.now += 0.2
    assert waiting.trigger() == 2
    assert waiting.trigger() == 0  # three rows are left
