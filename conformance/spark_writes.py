"""`df.write.format("txnsegment")` without a JVM: the real sink, driven as Spark drives it, in the caller's own process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from spark_txn_sink.staging import Staged
from spark_txn_sink.writer import BatchWriter
from txnsegment.schemas import from_arrow


class SparkWrite:
    """One batch write, planned when it is made; `run` its tasks, then `commit` or `abort` it, as often as Spark might.

    As in Spark the writer crosses to tasks and to the committing process as bytes. `options`: those of the write, with `path`.
    """

    def __init__(self, options: Mapping[str, str], table: pa.Table) -> None:
        self._table = table
        self._pickled = pickle.dumps(BatchWriter(dict(options), from_arrow(table.schema), overwrite=False))

    def _writer(self) -> BatchWriter:
        found: BatchWriter = pickle.loads(self._pickled)
        return found

    def run(self, tasks: int = 2) -> list[Staged]:
        """The rows, divided among tasks in order; what the accepted attempts report."""
        size = -(-self._table.num_rows // tasks)
        shares = [self._table.slice(task * size, size) for task in range(tasks)]
        return [self._writer().write(iter(share.to_batches())) for share in shares]

    def commit(self, messages: list[Staged]) -> None:
        self._writer().commit(messages)

    def abort(self, messages: list[Staged]) -> None:
        self._writer().abort(messages)


def spark_write(
    options: Mapping[str, str],
    topic: str,
    table: pa.Table,
    *,
    between: Callable[[], object] | None = None,
    query: str | None = None,
) -> None:
    """A whole write. `between`: what happens when its tasks are done and it is not committed yet. `query`: the streaming query in
    whose `foreachBatch` it is.
    """
    write = SparkWrite({**options, "path": topic}, table)
    messages = [replace(message, query_id=query) for message in write.run()]
    if between is not None:
        between()
    write.commit(messages)
