"""The committed rows of a topic as JSON values, to look at: `cluster.rows` and `txnsegment topics read`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.client.providers import Providers
from metadata.common.errors import ValueFormatError
from metadata.records.names import segment_name
from spark_txn_source.columns import METADATA_NAMES
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
    return shown(found, limit, METADATA_NAMES if message_ids else ())


def shown(reader: pa.RecordBatchReader, limit: int, metadata: Collection[str] = ()) -> Rows:
    """Return the first `limit` rows of a reader. `metadata`: the metadata columns that it has, of which `__messageId` is kept."""
    columns = with_message_id(reader.schema.empty_table(), metadata).column_names if metadata else reader.schema.names
    batches = (with_message_id(batch, metadata) for batch in reader) if metadata else reader
    return Rows(columns, islice(json_rows(batches), limit))


T = TypeVar("T", pa.RecordBatch, pa.Table)


def with_message_id(batch: T, metadata: Collection[str]) -> T:
    """Return rows that have these metadata columns with `__messageId` alone of them, as the first column."""
    return batch.select([MESSAGE_ID, *(name for name in batch.schema.names if name not in metadata)])


def json_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches with JSON values. Raises ValueFormatError for a value that Python cannot represent, such as a date
    before the year 1.
    """
    for batch in batches:
        kinds = from_arrow_schema(batch.schema, prefer_timestamp_ntz=True)
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError) as error:
            raise ValueFormatError(
                f"A row has a value that Python cannot represent: {error}.",
                advice="Leave its column out (--columns, columns=), or read the rows as Arrow (cluster.topics.read).",
            ) from error
        for row in rows:
            yield {field.name: plain(row[field.name], field.dataType) for field in kinds}
