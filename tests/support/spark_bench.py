"""Calls the reader and the sink as Spark calls them, over persistent topics of a real embedded cluster, without a JVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from conformance.harness.spark_driver import numbers, read_batch, rows_of, run_tasks, schema_of, source
from ledgers.model import Part
from metadata.client.client import Client, shared_client
from metadata.records.names import persistent_name
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from spark_txn_sink.staging import stage
from spark_txn_source.stream import StreamReader
from txnsegment.schemas import from_arrow

X, Y = "persistent://public/default/x", "persistent://public/default/y"


class SparkBench:
    """An embedded cluster. Its rows are numbers in the column `n`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Client = shared_client(url)

    # --- writing ----------------------------------------------------------------------------------------------------

    def parts(self, topic: str, values: Iterable[int] | pa.Table, entry_rows: int = 1000) -> list[Part]:
        """Stage the rows as the sink does. Return the parts."""
        table = values if isinstance(values, pa.Table) else pa.table({"n": pa.array(list(values), pa.int64())})
        given = {"serviceUrl": self.url, "topic": topic, "entryRows": str(entry_rows), "mergeSchema": "true"}
        plan = plan_write(self.client, WriteOptions.parse(given, streaming=False), from_arrow(table.schema))
        found = [part for _, part in stage(plan, table.combine_chunks().to_batches()).parts]
        _, schema_id = self.client.topics.evolve(plan.topic, plan.types)
        return [dataclasses.replace(part, schema=schema_id) for part in found]

    def plain(self, topic: str, values: Iterable[int] | pa.Table, entry_rows: int = 1000) -> int:
        """Append the rows without a transaction. Return the ledger id."""
        parts = self.parts(topic, values, entry_rows)
        return self.client.instream.coordinator.append(None, {persistent_name(topic): parts})[topic]

    def begin(self, *topics: str) -> str:
        return self.client.instream.coordinator.begin(topics=[persistent_name(t) for t in topics])

    def append(self, txn: str, topic: str, values: Iterable[int] | pa.Table) -> int:
        return self.client.instream.coordinator.append(txn, {persistent_name(topic): self.parts(topic, values)})[topic]

    def end(self, txn: str, *, commit: bool = True) -> None:
        self.client.instream.coordinator.end(txn, commit=commit)

    def commit(self, topic: str, values: Iterable[int] | pa.Table) -> int:
        """Commit a transaction of one append. Return the ledger id."""
        txn = self.begin(topic)
        number = self.append(txn, topic, values)
        self.end(txn)
        return number

    # --- reading ----------------------------------------------------------------------------------------------------

    def options(self, topic: str | list[str], **options: str) -> dict[str, str]:
        what = {"topic": topic} if isinstance(topic, str) else {"topics": ",".join(topic)} if topic else {}
        return {"serviceUrl": self.url, **what, **options}

    def batch(self, topic: str | list[str], **options: str) -> list[dict[str, Any]]:
        given = self.options(topic, **options)
        return rows_of(read_batch(given))

    def numbers(self, topic: str | list[str], **options: str) -> list[int]:
        return sorted(row["n"] for row in self.batch(topic, **options))

    def stream(self, topic: str | list[str], **options: str) -> Query:
        given = self.options(topic, **options)
        return Query(source(given).streamReader(schema_of(given)))


class Query:
    """A streaming query, driven as Spark drives it. `at`: the offset up to which the query has read, as in a checkpoint."""

    def __init__(self, reader: StreamReader, at: dict[str, Any] | None = None) -> None:
        self.reader = reader
        self.at = reader.initialOffset() if at is None else at

    def next(self, limit: ReadLimit | None = None) -> list[int]:
        """Plan a micro-batch, read it, and read it again as a replay. Return the rows. The replay of the first micro-batch begins
        at a new initial offset, as in Spark.
        """
        end = self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())
        found = self.read(self.at, end)
        assert self.read(self.reader.initialOffset() if "initial" in self.at else self.at, end) == found
        self.at = end
        return found

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        if start == end:
            return []  # Spark plans no micro-batch
        return numbers(run_tasks(self.reader, self.reader.partitions(start, end)))

    def rest(self, most: int = 100) -> Iterator[list[int]]:
        """Yield the rows of each micro-batch until there are no new rows."""
        for _ in range(most):
            before = self.at
            found = self.next()
            if position_of(self.at) == position_of(before):
                return
            yield found
        raise AssertionError("it does not come to an end")


def position_of(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the position that an offset has, without the other fields, such as the start of the first micro-batch."""
    return {name: value for name, value in offset.items() if name not in ("initial", "began", "cluster", "subscription")}
