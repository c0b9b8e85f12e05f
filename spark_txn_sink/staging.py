"""The work of a write's tasks. They route rows, stage parts and report the parts. They register nothing. The parts of failed task
attempts become orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ledgers.arrow import arrow_schema, conform
from ledgers.model import UNASSIGNED, Part
from ledgers.parts import PartWriter, close_all, part_name
from ledgers.storage import LedgerStorage
from metadata.records.folders import folder_of
from metadata.topics.routing import Router
from spark_txn_sink.local_properties import execution_of
from spark_txn_sink.planned import WritePlan


@dataclass
class Staged(WriterCommitMessage):
    """The report of one task.

    `staging_id`: an id that is unique to the task attempt, also if it has no rows. `parts`: (segment, part) pairs. `key`: the
    column by which the task routed its rows. The commit compares the keys of all tasks, because tasks and driver of a stream plan
    separately, and the topic may get its key in between.
    """

    staging_id: str
    parts: tuple[tuple[str, Part], ...]
    staged_ms: int
    query_id: str | None
    key: str | None
    execution: tuple[str, int] | None = None
    """The result of `local_properties.execution_of`.
    """


def stage(plan: WritePlan, batches: Iterable[pa.RecordBatch], *, name_source: Callable[[], str] = part_name) -> Staged:
    """Write the rows of one task into parts and return the report. Rows of one segment stay in order. At most one entry for each
    segment is in memory.

    `name_source`: returns unique names (letters and digits) for the attempt and its parts. Raises SchemaError (a batch does not fit
    the plan), StorageError.
    """
    storage = LedgerStorage(plan.storage_uri)
    schema = arrow_schema(plan.types)
    staging_id = name_source()
    task = _Task.now()
    router = Router(
        plan.to,
        plan.key,
        schema,
        start=task.start,
        entry_bytes=plan.options.entry_bytes,
        entry_rows=plan.options.entry_rows,
    )
    writers: dict[str, PartWriter] = {}
    try:
        for batch in _rows(plan, batches, schema, task):
            for segment, rows in router.route(batch):
                if segment not in writers:
                    writers[segment] = _writer(plan, storage, segment, schema, staging_id, name_source)
                writers[segment].write(rows)
        parts = list(zip(writers, close_all(list(writers.values())), strict=True))
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    found = tuple((segment, part) for segment, part in parts if part is not None)
    return Staged(staging_id, found, plan.staged_ms, task.query_id, plan.key, task.execution)


def _rows(plan: WritePlan, batches: Iterable[pa.RecordBatch], schema: pa.Schema, task: _Task) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the batches with the columns that the parts have. Raises SchemaError, ValueFormatError."""
    if plan.avro is None:
        for batch in batches:
            yield conform(batch, schema)
        return
    from ledgers.avro.parsing import parse
    from ledgers.avro.rows import VALUE, Codec

    codec, seen = Codec(parse(plan.avro)), 0
    for batch in batches:
        if plan.values:

            def named(row: int, seen: int = seen) -> str:
                return f"The value {seen + row} (from 0) of partition {task.partition} in a write to {plan.topic}"

            rows = conform(codec.decode(batch.column(batch.schema.get_field_index(VALUE)), named), schema)
        else:
            rows = conform(batch, schema)
            codec.refuse_nulls(rows, str(plan.topic))
        seen += batch.num_rows
        yield rows


def _writer(
    plan: WritePlan,
    storage: LedgerStorage,
    segment: str,
    schema: pa.Schema,
    staging_id: str,
    name_source: Callable[[], str],
) -> PartWriter:
    return PartWriter(
        storage,
        folder_of(segment),
        schema,
        UNASSIGNED,
        staging_id=staging_id,
        compression=plan.options.compression,
        entry_bytes=plan.options.entry_bytes,
        entry_rows=plan.options.entry_rows,
        name_source=name_source,
        key=plan.key,
        statistics=plan.statistics,
    )


@dataclass(frozen=True)
class _Task:
    """A Spark task. `start`: the task's value for `Router.start`. `query_id`: the streaming query for which the task runs (None: a
    batch write outside of `foreachBatch`). `partition`: the task's partition. `execution`: see `Staged`.
    """

    start: int
    query_id: str | None
    partition: int = 0
    execution: tuple[str, int] | None = None

    @classmethod
    def now(cls) -> _Task:
        """Return the current Spark task. Outside of Spark (in tests) return the first task of a batch."""
        context = TaskContext.get()
        if context is None:
            return cls(0, None)
        given = context.getLocalProperty
        batch, at = given("streaming.sql.batchId"), context.partitionId()
        return cls(at + int(batch or 0), given("sql.streaming.queryId"), at, execution_of(given))
