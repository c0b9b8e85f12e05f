"""Fewer, larger parts: bring the rows of a segment together before they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ledgers.arrow import arrow_schema
from ledgers.schema import quoted
from metadata.client.client import shared_client
from metadata.common.errors import OptionError, TopicNotFound
from metadata.common.options import option_text
from metadata.records.names import PersistentName, TopicName, even_ranges
from metadata.topics.routing import Target, check_key, places, targets
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import where_to


def repartition_by_segment(df: DataFrame, topic: str, **options: object) -> DataFrame:
    """The same rows in as many partitions as the topic has active segments, each with the rows of one segment: a write of the
    result leaves one part for each segment instead of one for each task and segment. It costs a shuffle.

    `options`: those of the write (`serviceUrl`, `keyColumn`, `segments` if the topic is yet to be made). Without a key the rows
    are spread evenly. Raises OptionError, TopicNotFound (autoCreate=false).
    """
    given = {name: text for name, value in options.items() if (text := option_text(name, value)) is not None}
    parsed = WriteOptions.parse(given | {"path": topic}, streaming=False)
    client = shared_client(parsed.service_url.text)
    name = where_to(client, parsed)
    found = client.topics.find(name)
    if found is None and not parsed.auto_create:
        raise TopicNotFound(f"There is no topic {name}.", advice="Create it, or leave autoCreate on.")
    if found is None:
        to, key = _to_be_made(name, parsed.segments), parsed.key_column
    else:
        to, key = targets(found), found.layout.key or parsed.key_column
    if key is None:  # a persistent topic, too: one log, one part
        return df.repartition(len(to))
    if parsed.value_format == "avro":
        raise OptionError(
            f"The rows are values, and {key!r}, by which {name} routes them, is inside.",
            advice="Repartition before the rows become values, or write them as they are.",
        )
    check_key(key, arrow_schema(df.schema))
    return df.repartitionById(len(to), _segment_of(to)(F.col(quoted(key))))


def _to_be_made(name: TopicName, segments: int) -> Sequence[Target]:
    """The targets of a topic that the write will make."""
    ranges = even_ranges(segments)
    if isinstance(name, PersistentName):
        return [Target(str(name), r) for r in ranges]
    return [Target(name.segment(r, i), r) for i, r in enumerate(ranges)]


def _segment_of(to: Sequence[Target]) -> Callable[[Column], Column]:
    def segment_index(keys: pa.Array) -> pa.Array:
        return pa.array(places(keys, to), pa.int32())

    made: Callable[[Column], Column] = F.arrow_udf(segment_index, "int")
    return made
