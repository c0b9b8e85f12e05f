"""The committed rows of a topic as JSON values, to look at: `cluster.rows` and `txnsegment topics read`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.client.providers import Providers
from metadata.records.names import segment_name
from txnsegment.json_values import plain
from txnsegment.reading import options_of, read

MESSAGE_ID = "__messageId"


@dataclass(frozen=True)
class Rows:
    """The names of the columns, and the rows. Rows have JSON values, and are in the order of their transactions."""

    columns: list[str]
    rows: Iterator[dict[str, Any]]


def committed_rows(client: Client, name: str, limit: int, *, message_ids: bool = False) -> Rows:
    """Return the first `limit` committed rows of a topic or of one `segment://...`, at the current cut. A topic that has no schema
    yet has no rows. `message_ids`: whether to add the column `__messageId`, `ledger:entry:index`. Raises TopicNotFound,
    CorruptPart.
    """
    topic = segment_name(name).topic if name.startswith("segment:") else Providers(client).resolve(name)
    if client.topics.schema(client.topics.get(topic)) is None:
        log_of(client, name if name.startswith("segment:") else str(topic)).now()  # raises for a segment that does not exist
        return Rows([], iter(()))
    found = read(client, options_of(client.cluster.url, name, None, "earliest", metadata=message_ids))
    return shown(found, limit, message_ids=message_ids)


def shown(reader: pa.RecordBatchReader, limit: int, *, message_ids: bool) -> Rows:
    """Return the first `limit` rows of a reader. `message_ids`: whether to keep `__messageId` of its metadata columns."""
    columns = with_message_id(reader.schema.empty_table()).column_names if message_ids else reader.schema.names
    batches = (with_message_id(batch) for batch in reader) if message_ids else reader
    return Rows(columns, islice(json_rows(batches), limit))


T = TypeVar("T", pa.RecordBatch, pa.Table)


def with_message_id(batch: T) -> T:
    """Return rows that have the metadata columns with `__messageId` alone of these, as the first column."""
    return batch.select([MESSAGE_ID, *(name for name in batch.schema.names if not name.startswith("__"))])


def json_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches with JSON values."""
    for batch in batches:
        kinds = from_arrow_schema(batch.schema, prefer_timestamp_ntz=True)
        for row in batch.to_pylist():
            yield {field.name: plain(row[field.name], field.dataType) for field in kinds}
