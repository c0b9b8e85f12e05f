"""Readers as Spark calls them: MicroBatchExecution of Spark 4.3 and its Python runner, without a JVM.

What Spark does, and this does in the same order (read in Spark's bytecode and in pyspark/sql/streaming):

- a (re)start makes a new reader. The last batch of the offset log is planned again unless the commit log has it; a batch before
  it is never looked at;
- a batch is constructed: `initialOffset()` if no batch was ever logged, `latestOffset(start, limit)`, `reportLatestOffset()`. Batch
  0 is always logged, a later one if its end differs. Once it is logged, `commit(end)` of the batch before;
- a batch runs: batch 0 asks for `initialOffset()` ANEW, also in the run that planned it; then `partitions(start, end)`, and tasks
  on copies of reader and partitions; then the commit log gets it;
- `Trigger.AvailableNow` calls `prepareForTriggerAvailableNow()` before all that.

Offsets cross as JSON text, readers and partitions as pickles.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from pyspark_txnsegment import DefaultSource

LIMITS: dict[str, type[Any]] = {one.__name__: one for one in (ReadAllAvailable, ReadMaxBytes, ReadMaxRows)}


def source(options: Mapping[str, str]) -> DefaultSource:
    """The data source, as it crosses from the driver to the process that plans."""
    found: DefaultSource = pickle.loads(pickle.dumps(DefaultSource(dict(options))))
    return found


def schema_of(options: Mapping[str, str]) -> StructType:
    """What `load()` asks for."""
    found = source(options).schema()
    assert isinstance(found, StructType)
    return StructType.fromJson(json.loads(found.json()))


def run_tasks(reader: DataSourceReader | DataSourceStreamReader, partitions: list[InputPartition]) -> list[pa.RecordBatch]:
    """The tasks of a read, each with copies of the reader and of its partition; what they yield, in the order of partitions."""
    crossed = pickle.dumps(reader)
    found: list[pa.RecordBatch] = []
    for partition in partitions:
        task = pickle.loads(crossed)
        found += list(task.read(pickle.loads(pickle.dumps(partition))))
    return found


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    """The rows by their number."""
    return [n for batch in batches for n in batch.column(batch.schema.get_field_index("n")).to_pylist()]


def read_batch(options: Mapping[str, str]) -> list[int]:
    """`spark.read.format("txnsegment").options(**options).load().collect()`: the rows by their number."""
    reader = source(options).reader(schema_of(options))
    reader = pickle.loads(pickle.dumps(reader))
    return numbers(run_tasks(reader, list(reader.partitions())))


class Engine:
    """One streaming query's engine and checkpoint. `offsets` and `commits` are its logs and survive `stop`; all else is a run's."""

    def __init__(self) -> None:
        self.offsets: list[str] = []
        self.commits: set[int] = set()
        self.reader: Any = None
        self.batch = 0
        self.constructed = False
        self.available: str | None = None
        self.committed: str | None = None
        self.start_of_0: str | None = None
        self.initial: str | None = None
        """What `initialOffset` answered when batch 0 was constructed."""

    def start(self, options: Mapping[str, str], *, available_now: bool) -> None:
        self.begin(source(options).streamReader(schema_of(options)), available_now=available_now)

    def begin(self, reader: Any, *, available_now: bool) -> None:
        """Go on where the two logs say."""
        self.reader = reader
        self.batch, self.constructed, self.available, self.committed, self.start_of_0 = 0, False, None, None, None
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._limit = self._crossed(self.reader.getDefaultReadLimit())
        if self.offsets:  # populateStartOffsets
            self.batch = len(self.offsets) - 1
            self.constructed = True
            self.available = self.offsets[-1]
            if self.batch:
                self.committed = self.offsets[-2]
            if self.commits and max(self.commits) == self.batch:
                self.committed = self.available
                self.batch += 1
                self.constructed = False

    @staticmethod
    def _crossed(limit: ReadLimit) -> ReadLimit:
        found = json.loads(json.dumps(dataclasses.asdict(limit) | {"_type": type(limit).__name__}))
        made: ReadLimit = LIMITS[found.pop("_type")](**found)
        return made

    def look(self) -> bool:
        """The first half of constructing batch 0: where to start. Others may commit before the second one. False: that is known."""
        if self.constructed or self.available is not None or self.start_of_0 is not None:
            return False
        self.start_of_0 = json.dumps(self.reader.initialOffset())
        return True

    def construct(self) -> bool:
        """constructNextBatch: plan and log a batch; whether there is one to run."""
        if self.constructed:
            return True
        first = self.available is None
        self.look()
        start = self.available if self.available is not None else self.start_of_0
        assert start is not None
        end = json.dumps(self.reader.latestOffset(json.loads(start), self._limit))
        self.reader.reportLatestOffset()
        self.available = end
        if self.committed is not None and self.committed == end:
            return False
        if first:
            self.initial = start
        assert self.batch == len(self.offsets)
        self.offsets.append(end)
        self.constructed = True
        if self.batch:
            self.reader.commit(json.loads(self.offsets[self.batch - 1]))
        return True

    def run(self) -> list[int] | None:
        """runBatch: plan the logged range and read it; None: Spark sees nothing new in it."""
        assert self.available is not None
        if self.committed is not None and self.committed == self.available:
            return None
        start = self.committed if self.committed is not None else json.dumps(self.reader.initialOffset())
        partitions = list(self.reader.partitions(json.loads(start), json.loads(self.available)))
        return numbers(run_tasks(self.reader, partitions))

    def done(self) -> None:
        """The commit log gets the batch."""
        self.commits.add(self.batch)
        self.committed = self.available
        self.batch += 1
        self.constructed = False

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.stop()
            self.reader = None
