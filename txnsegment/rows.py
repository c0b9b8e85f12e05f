"""The committed rows of a topic, read without Spark, for `txnsegment topics read`."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from pyspark.sql import types as T

from ledgers.arrow import arrow_schema
from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.client.providers import Providers
from metadata.records.names import segment_name
from spark_txn_source.entries import in_order
from spark_txn_source.pieces import large_pieces

MESSAGE_ID = "__messageId"


@dataclass(frozen=True)
class Rows:
    """The names of the columns, and the rows. Rows have JSON values, and are in the order of their transactions."""

    columns: list[str]
    rows: Iterator[dict[str, Any]]


def committed_rows(client: Client, name: str, limit: int, *, message_ids: bool = False) -> Rows:
    """Return the first `limit` committed rows of a topic or of one `segment://...`, at the current cut.

    The rows of a transaction come together. The rows of a segment (or marker-based topic) keep their order. Only the needed files
    are read. `message_ids`: whether to add the column `__messageId`, `ledger:entry:index`. Raises TopicNotFound, CorruptPart.
    """
    topic = segment_name(name).topic if name.startswith("segment:") else Providers(client).resolve(name)
    full = name if name.startswith("segment:") else str(topic)
    reading = log_of(client, full).now()
    schema = client.topics.schema(client.topics.get(topic))  # read after the log, so the schema has every column of the parts
    if schema is None:
        return Rows([], iter(()))
    extra = [T.StructField(MESSAGE_ID, T.StringType(), False)] if message_ids else []
    output = T.StructType([*extra, *schema.fields])

    def rows() -> Iterator[dict[str, Any]]:
        found = [(segment, large_pieces(segment, 0, reading.cut, marks=True)) for segment in reading.segments]
        for some in in_order(client.cluster.storage, found, arrow_schema(schema)):
            for i, row in enumerate(some.batch.to_pylist()):
                shown = {MESSAGE_ID: f"{some.ledger}:{some.entry}:{some.first_row + i}"} if message_ids else {}
                yield shown | {field.name: plain(row[field.name], field.dataType) for field in schema}

    return Rows(output.fieldNames(), islice(rows(), limit))


def plain(value: Any, kind: T.DataType) -> Any:
    """Return a value as JSON represents it: binaries in base64; decimals, times and intervals as text; maps as objects if their
    keys are text.
    """
    if value is None:
        return None
    match kind:
        case T.StructType():
            return {field.name: plain(value[field.name], field.dataType) for field in kind}
        case T.ArrayType():
            return [plain(one, kind.elementType) for one in value]
        case T.MapType():
            pairs = [(plain(k, kind.keyType), plain(v, kind.valueType)) for k, v in value]
            return dict(pairs) if isinstance(kind.keyType, T.StringType) else [{"key": k, "value": v} for k, v in pairs]
        case T.VariantType():
            return json.loads(T.VariantVal(value["value"], value["metadata"]).toJson())
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal() | datetime.timedelta():
            return str(value)
        case datetime.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case datetime.date():
            return value.isoformat()
    return value
