"""A Spark driver without a JVM. It calls the source and the sink in the same way as Spark 4.3 and its Python runner, but in the
process of the caller.

    read_batch(options)                                  # spark.read.format("txnsegment").options(**options).load().collect()
    query = MicroBatchExecution()                      # a streaming query, with its checkpoint
    query.start(options)
    while (batches := query.next()) is not None: ...   # the same as `construct`, `run` and `done`
    spark_write(options, topic, table)                 # df.write.format("txnsegment").options(**options).save(topic)

Instead of `next`, a caller may call `construct`, `run` and `done`. Between any two of them it may `stop` the query and `start` it
again. The query calls its reader in Spark's order (as read in Spark's bytecode and in pyspark/sql/streaming):

- At a start or restart, it makes a new reader. If the last batch of the offset log is not in the commit log, this batch is planned
  again. Earlier batches are never planned again.
- To construct a batch, it calls `initialOffset()` if no batch was ever logged, then `latestOffset(start, limit)`, then
  `reportLatestOffset()`. It logs the end of the batch: always for batch 0, and for a later batch if its end differs from its start.
  Then it calls `commit(end)` for the previous batch.
- To run a batch, it calls `initialOffset()` AGAIN if it is batch 0, also in the process that planned it. Then it calls
  `partitions(start, end)`, runs the tasks with copies of the reader and of their partitions, and writes to the commit log.
- With `Trigger.AvailableNow`, it calls `prepareForTriggerAvailableNow()` first of all.

Offsets are passed as JSON text. Readers, writers, partitions and commit messages are passed as pickles.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from pyspark_txnsegment import DefaultSource
from spark_txn_sink.staging import Staged
from txnsegment.schemas import from_arrow

LIMITS: dict[str, type[Any]] = {one.__name__: one for one in (ReadAllAvailable, ReadMaxBytes, ReadMaxRows)}


def source(options: Mapping[str, str]) -> DefaultSource:
    """Return the data source, pickled and unpickled once, as Spark passes it from the driver to the process that plans."""
    found: DefaultSource = pickle.loads(pickle.dumps(DefaultSource(dict(options))))
    return found


def schema_of(options: Mapping[str, str]) -> StructType:
    """Return the schema that `load()` infers."""
    found = source(options).schema()
    assert isinstance(found, StructType)
    return StructType.fromJson(json.loads(found.json()))


def run_tasks(reader: DataSourceReader | DataSourceStreamReader, partitions: Sequence[InputPartition]) -> list[pa.RecordBatch]:
    """Run the tasks of a read, each with copies of the reader and of its partition. Return their rows, in partition order."""
    crossed = pickle.dumps(reader)
    found: list[pa.RecordBatch] = []
    for partition in partitions:
        task = pickle.loads(crossed)
        found += list(task.read(pickle.loads(pickle.dumps(partition))))
    return found


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    """Return the values of the column `n` of all rows."""
    return [n for batch in batches for n in batch.column(batch.schema.get_field_index("n")).to_pylist()]


def read_batch(options: Mapping[str, str], schema: StructType | None = None) -> list[pa.RecordBatch]:
    """Run a batch read and return its rows. `schema`: the argument of `.schema()`; None: the schema is inferred."""
    reader = source(options).reader(schema_of(options) if schema is None else schema)
    return run_tasks(reader, list(reader.partitions()))


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


class MicroBatchExecution:
    """One streaming query and its checkpoint. `offsets` and `commits` are the two logs of the checkpoint: the ends of all planned
    batches, and the numbers of all finished batches. They survive `stop`; all other state belongs to one run of the query.

    `checkpoint`: a file with a copy of the two logs, with which another process can continue the query; None: no file.
    """

    def __init__(self, checkpoint: Path | None = None) -> None:
        self.offsets: list[str] = []
        self.commits: set[int] = set()
        self._checkpoint = checkpoint
        for line in checkpoint.read_text().splitlines() if checkpoint is not None and checkpoint.exists() else ():
            logged = json.loads(line)
            if "offset" in logged:
                self.offsets.append(logged["offset"])
            else:
                self.commits.add(logged["commit"])
        self.reader: Any = None
        self.batch = 0
        self.constructed = False
        self.available: str | None = None
        self.committed: str | None = None
        self.start_of_0: str | None = None
        self.started: str | None = None
        """The start offset of the batch that was run last."""
        self.initial: str | None = None
        """The start offset of batch 0, as `initialOffset` answered it when the batch was constructed."""

    def start(self, options: Mapping[str, str], *, schema: StructType | None = None, available_now: bool = False) -> None:
        """Start or restart the query, with a new reader. `schema`: the argument of `.schema()`; None: the schema is inferred."""
        self.begin(source(options).streamReader(schema_of(options) if schema is None else schema), available_now=available_now)

    def begin(self, reader: Any, *, available_now: bool = False) -> None:
        """Start or restart the query with this reader. It continues where the two logs end."""
        self.reader = reader
        self.batch, self.constructed, self.available, self.committed, self.start_of_0 = 0, False, None, None, None
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._limit = self._crossed(self.reader.getDefaultReadLimit())
        if self.offsets:  # as Spark's populateStartOffsets does
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
        """Ask the reader for the start of batch 0, which is the first half of `construct`. Return False if it is known already."""
        if self.constructed or self.available is not None or self.start_of_0 is not None:
            return False
        self.start_of_0 = json.dumps(self.reader.initialOffset())
        return True

    def construct(self) -> bool:
        """Plan and log a batch, as Spark's constructNextBatch does. Return whether there is a batch to run."""
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
        self._log({"offset": end})
        self.constructed = True
        if self.batch:
            self.reader.commit(json.loads(self.offsets[self.batch - 1]))
        return True

    def run(self) -> list[pa.RecordBatch] | None:
        """Plan the logged range and read it, as Spark's runBatch does. Return None if the range is empty."""
        assert self.available is not None
        if self.committed is not None and self.committed == self.available:
            return None
        self.started = self.committed if self.committed is not None else json.dumps(self.reader.initialOffset())
        partitions = list(self.reader.partitions(json.loads(self.started), json.loads(self.available)))
        return run_tasks(self.reader, partitions)

    def done(self) -> None:
        """Write the batch to the commit log."""
        self.commits.add(self.batch)
        self._log({"commit": self.batch})
        self.committed = self.available
        self.batch += 1
        self.constructed = False

    def next(self) -> list[pa.RecordBatch] | None:
        """Run a whole micro-batch and return its rows. A batch that was planned and not finished runs first. Return None if there
        is no batch to run.
        """
        if not self.construct():
            return None
        found = self.run()
        self.done()
        return found or []

    @property
    def at(self) -> dict[str, Any]:
        """The end offset of the last planned batch. Before any batch is planned: the start offset of the first batch."""
        self.look()
        found: dict[str, Any] = json.loads(self.available or self.start_of_0 or "{}")
        return found

    def _log(self, entry: dict[str, Any]) -> None:
        if self._checkpoint is not None:
            with self._checkpoint.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.stop()
            self.reader = None


# --- writing ------------------------------------------------------------------------------------------------------------


class SparkWrite:
    """One batch write. The constructor plans the write, and `run` runs its tasks. `commit` and `abort` may be called repeatedly.

    As in Spark, each task and each call of `commit` or `abort` gets its own copy of the writer. `options`: the options of the
    write, with `path`.
    """

    def __init__(self, options: Mapping[str, str], table: pa.Table) -> None:
        self._table = table
        self._pickled = pickle.dumps(source(options).writer(from_arrow(table.schema), False))

    def _writer(self) -> Any:
        return pickle.loads(self._pickled)

    def run(self, tasks: int = 2, *, query: str | None = None, batch: int | None = None) -> list[Staged]:
        """Run the tasks. Return their commit messages. `query`, `batch`: the id of the streaming query and the number of its batch,
        if the write is in the query's `foreachBatch`.
        """
        return _staged(self._writer, self._table, tasks, query, batch)

    def commit(self, messages: Sequence[Staged | None]) -> None:
        self._writer().commit(messages)

    def abort(self, messages: Sequence[Staged | None]) -> None:
        self._writer().abort(messages)


class SparkStreamWrite:
    """One micro-batch of `df.writeStream`. As in Spark, `run`, `commit` and `abort` each make a new writer."""

    def __init__(self, options: Mapping[str, str], table: pa.Table, query: str, batch: int) -> None:
        self._options, self._table, self._query, self._batch = options, table, query, batch

    def _writer(self) -> Any:
        return source(self._options).streamWriter(from_arrow(self._table.schema), False)

    def run(self, tasks: int = 2) -> list[Staged]:
        writer = self._writer()
        return _staged(lambda: writer, self._table, tasks, self._query, self._batch)

    def commit(self, messages: Sequence[Staged | None]) -> None:
        self._writer().commit(messages, self._batch)

    def abort(self, messages: Sequence[Staged | None]) -> None:
        self._writer().abort(messages, self._batch)


def _staged(writer: Callable[[], Any], table: pa.Table, tasks: int, query: str | None, batch: int | None) -> list[Staged]:
    """Divide the rows among the tasks, in order, and run the tasks. Each task finds `query` and `batch` in its local properties."""
    found = []
    size = -(-table.num_rows // tasks)
    known = {"sql.streaming.queryId": query, "streaming.sql.batchId": None if batch is None else str(batch)}
    for task in range(tasks):
        context = TaskContext()
        TaskContext._setTaskContext(context)
        context._partitionId = task
        context._localProperties = {name: value for name, value in known.items() if value is not None}
        try:
            rows: Iterator[pa.RecordBatch] = iter(table.slice(task * size, size).to_batches())
            message = writer().write(rows)
        finally:
            TaskContext._setTaskContext(None)
        found.append(pickle.loads(pickle.dumps(message)))
    return found


def spark_write(
    options: Mapping[str, str],
    topic: str,
    table: pa.Table,
    *,
    between: Callable[[], object] | None = None,
    query: str | None = None,
) -> None:
    """Run a whole batch write. `between`: called after the tasks and before the commit. `query`: the id of the streaming query, if
    the write is in its `foreachBatch`.
    """
    write = SparkWrite({**options, "path": topic}, table)
    messages = write.run(query=query)
    if between is not None:
        between()
    write.commit(messages)
