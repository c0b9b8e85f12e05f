"""`cluster.topics.read` and `.follow`: the committed rows of topics as Arrow, without Spark and without a subscription.

A read is planned as a batch of Spark is, and following as a stream. So they return the same rows and raise the same errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from metadata.client.client import Client
from metadata.common.errors import OptionError, SchemaChanged, SchemaError
from metadata.read.selection import LOG
from spark_txn_source.columns import METADATA_NAMES, columns_now
from spark_txn_source.current_names import with_current_names
from spark_txn_source.entries import in_order, segment_order, with_metadata
from spark_txn_source.following import REST_SECONDS
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.options import ReadOptions
from spark_txn_source.pieces import pieces
from spark_txn_source.plan import read_batch
from spark_txn_source.skipping import each_left
from spark_txn_source.stream import StreamReader
from spark_txn_source.tasks import together
from txnsegment.filters import Filter, RowTest, names_of, selected, tests

Place = str | int | datetime
"""A place in the log: `earliest`, `latest`, a log number, a datetime with a time zone, or the JSON text of an offset, such as a
result of `cluster.snapshot`.
"""
START: Final = ("startingOffsets", "startingTimestamp")
END: Final = ("endingOffsets", "endingTimestamp")


def options_of(
    url: str,
    topics: str | Sequence[str],
    columns: Sequence[str] | None,
    start: Place,
    end: Place = "latest",
    *,
    metadata: bool = False,
) -> dict[str, str]:
    """Return the options of a read of Spark that has these arguments. Raises OptionError."""
    found = {"serviceUrl": url} | ({"topic": topics} if isinstance(topics, str) else {"topics": json.dumps(list(topics))})
    if columns is not None:
        if isinstance(columns, str):
            raise OptionError(f"columns={columns!r} is one text.", advice="Give a list of names.")
        found["columns"] = json.dumps(list(columns))
    if metadata:
        found["includeMetadata"] = "true"
    return found | _place("start", START, start) | ({} if end == "latest" else _place("end", END, end))


def _place(argument: str, options: tuple[str, str], place: Place) -> dict[str, str]:
    """Return the option that names a place. `options`: the option for offsets, and the option for times."""
    match place:
        case str():
            return {options[0]: place}
        case bool():
            pass
        case int() if place >= 0:
            return {options[0]: json.dumps({"log": place})}
        case datetime():
            return {options[1]: place.isoformat()}
    raise OptionError(
        f"{argument}={place!r} is no place in the log.",
        advice="Give earliest, latest, a number of the log, a datetime with a time zone, or an offset as JSON.",
    )


def reader_of(columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return a stream of batches that all have these columns."""
    return pa.RecordBatchReader.from_batches(columns, batches)


def read(client: Client, given: dict[str, str], conditions: Filter = ()) -> pa.RecordBatchReader:
    """Return the rows of a batch read, in the order of the logs. The call plans the read. The rows are read from their files as the
    caller takes them, and memory holds one file of each segment at a time. Raises the errors of a batch read of Spark.

    `conditions`: only rows that meet all of them are returned. The columns that they name are read in any case.
    """
    named = names_of(conditions)
    hidden: list[str] = []
    if "columns" in given:
        chosen = json.loads(given["columns"])
        hidden = [name for name in named if name not in chosen and name not in METADATA_NAMES]
        given = {**given, "columns": json.dumps([*chosen, *hidden])}
    options = with_current_names(client, ReadOptions.parse(given, streaming=False))
    ranges = read_batch(client, options)
    columns = columns_now(client, options)  # asked after the logs, so that no row has a column that is missing here
    wanted = arrow_schema(columns.wanted)
    output = columns_of(columns.output) if columns.with_metadata else wanted
    if strange := [name for name in named if name not in output.names]:
        raise SchemaError(
            f"filter names the column {strange[0]}, which the rows do not have.",
            advice=f"The columns are: {', '.join(output.names)}.",
        )
    needed = tests(conditions, columns.output if columns.with_metadata else columns.wanted)
    rows = _rows(client, ranges, wanted, output, needed)
    if hidden:
        shown = [name for name in output.names if name not in hidden]
        rows = (batch.select(shown) for batch in rows)
        output = pa.schema([output.field(name) for name in shown], output.metadata)
    return reader_of(output, together(rows))


def _rows(
    client: Client, ranges: Iterable[LogRange], wanted: pa.Schema, output: pa.Schema, needed: Sequence[RowTest]
) -> Iterator[pa.RecordBatch]:
    conditions = [one.condition for one in needed if one.condition is not None]
    # The log of a migrated topic comes before the cluster's log, in which its successor goes on.
    for one in sorted(ranges, key=lambda one: one.log == LOG):
        found = [
            (segment, each_left(pieces(segment, one.start, one.end, marks=True, done=one.done_of(segment)), conditions))
            for segment in sorted(one.reading.segments, key=lambda segment: segment_order(segment.name))
        ]
        for rows in in_order(client.cluster.storage, found, wanted):
            yield selected(rows.batch if output is wanted else with_metadata(rows, output), needed)


class Stream(Protocol):
    """A stream reader of the source, which the rows of a followed topic are read with."""

    def initialOffset(self) -> dict[str, Any]: ...

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]: ...

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]: ...

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]: ...

    def commit(self, end: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=Stream)


def follow(client: Client, given: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stream, and wait for more without end. A commit wakes the caller that waits."""
    if "columns" in given:
        given = given | {"schemaChange": "ignoreNewColumns"}
    options = with_current_names(client, ReadOptions.parse(given, streaming=True))

    def open_stream() -> StreamReader:
        return StreamReader(given, columns_now(client, options).output, client)

    return followed(open_stream, lambda stream: stream.wait(REST_SECONDS), keeps_columns="columns" in given)


def followed(open_stream: Callable[[], S], wait: Callable[[S], None], *, keeps_columns: bool) -> Iterator[pa.RecordBatch]:
    """Open a stream, and return its rows micro-batch by micro-batch. No checkpoint and no subscription remembers what was read.
    When the columns of the topics have changed, the stream is opened again, and goes on with the new columns after the same row.
    `keeps_columns`: whether the caller has chosen columns; then a change is an error.
    """
    stream = open_stream()
    return _batches(stream, stream.initialOffset(), open_stream, wait, keeps_columns=keeps_columns)


def _batches(
    stream: S, at: dict[str, Any], open_stream: Callable[[], S], wait: Callable[[S], None], *, keeps_columns: bool
) -> Iterator[pa.RecordBatch]:
    changed = False
    try:
        while True:
            try:
                end = stream.latestOffset(at, ReadAllAvailable())
                tasks = [] if end == at else stream.partitions(at, end)
            except SchemaChanged:
                if keeps_columns or changed:
                    raise
                changed = True
                stream.stop()
                stream = open_stream()
                continue
            if end == at:
                wait(stream)
                continue
            for task in tasks:
                yield from stream.read(task)
            stream.commit(end)
            at, changed = end, False
    finally:
        stream.stop()


def columns_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the columns of a read."""
    return to_arrow_schema(schema, timezone="UTC")
