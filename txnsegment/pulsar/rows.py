"""The committed rows of a topic of a Pulsar cluster, read without Spark, for `txnsegment topics read`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql import types as T

from metadata.common.service import SERVICE_URL
from metadata.records.names import topic_name
from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.columns import METADATA_FIELDS, columns_now
from txnsegment.rows import MESSAGE_ID, Rows, plain


def committed_rows(url: str, name: str, limit: int, *, message_ids: bool = False) -> Rows:
    """Return the first `limit` committed rows of a topic (`topic://..`, a bare name, `persistent://..`) or of one `segment://..`.

    Rows of a segment keep their order, and come after those of its parents. A transaction of txnsegment's writers is there as a
    whole or not at all. `message_ids`: whether to add the column `__messageId`, `ledger:entry:index`. Raises TopicMissing.
    """
    full = name if re.match(r"(persistent|segment):", name) else str(topic_name(name))
    options = {SERVICE_URL.name: url, "topic": full}
    schema = columns_now(options)
    if message_ids:
        options["includeMetadata"] = "true"
        schema = T.StructType([next(field for field in METADATA_FIELDS if field.name == MESSAGE_ID), *schema.fields])
    reader = BatchReader(options, schema)

    def rows() -> Iterator[dict[str, Any]]:
        for task in reader.undivided():
            for batch in reader.read(task):
                for row in batch.to_pylist():
                    yield {field.name: plain(row[field.name], field.dataType) for field in schema}

    return Rows(schema.fieldNames(), islice(rows(), limit))
