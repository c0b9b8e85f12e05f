"""The committed rows of a topic of a Pulsar cluster, read without Spark: `cluster.topics.read`, `.follow` and `cluster.rows`."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa

from metadata.records.names import topic_name
from spark_txn_source.pulsar.columns import METADATA_FIELDS, columns_now
from spark_txn_source.pulsar.readers import batch_reader, stream_reader
from txnsegment.reading import Stream, columns_of, followed, options_of, reader_of
from txnsegment.rows import Rows, shown

METADATA_NAMES = frozenset(field.name for field in METADATA_FIELDS)
POLL_SECONDS = 0.1
"""How long a program that follows a topic waits before it asks the broker again."""


def full_name(name: str) -> str:
    return name if re.match(r"(persistent|segment):", name) else str(topic_name(name))


def read(options: dict[str, str]) -> pa.RecordBatchReader:
    """Return the rows of a batch read. The rows of a segment keep their order, and come after those of its parents. Raises the
    errors of a batch read of Spark.
    """
    schema = columns_now(options)
    reader = batch_reader(options, schema)
    tasks = reader.partitions()
    return reader_of(columns_of(schema), (batch for task in tasks for batch in reader.read(task)))


def follow(options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stream, and wait for more without end."""

    def open_stream() -> Stream:
        return cast("Stream", stream_reader(options, columns_now(options)))

    def wait(_: Any) -> None:
        threading.Event().wait(POLL_SECONDS)

    return followed(open_stream, wait, keeps_columns="columns" in options)


def committed_rows(url: str, name: str, limit: int, *, message_ids: bool = False) -> Rows:
    """Return the first `limit` committed rows of a topic (`topic://..`, a bare name, `persistent://..`) or of one `segment://..`.

    A transaction of txnsegment's writers is there as a whole or not at all. `message_ids`: whether to add the column `__messageId`,
    `ledger:entry:index`. Raises TopicMissing.
    """
    found = read(options_of(url, full_name(name), None, "earliest", metadata=message_ids))
    return shown(found, limit, METADATA_NAMES if message_ids else ())
