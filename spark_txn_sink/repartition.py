"""`repartition_by_segment` brings the rows of each segment together before a write, which then makes fewer and larger parts."""

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
    """Repartition a DataFrame so that each partition has the rows of one segment of the topic. A write then makes one part for each
    segment, and not one for each task and segment. The repartitioning is a shuffle.

        repartition_by_segment(df, "orders").write.format("txnsegment").mode("append").save("orders")

    `options`: the options of the write (`serviceUrl`, `keyColumn`, and `segments` for a topic that the write creates). Without a
    key the rows are spread evenly. Raises OptionError, and TopicNotFound with `autoCreate=false`.
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
    if key is None:  # a marker-based topic has no key, and one target
        return df.repartition(len(to))
    if parsed.value_format == "avro":
        raise OptionError(
            f"Cannot repartition Avro values for {name}: its key {key!r} is a field inside of the values.",
            advice="Repartition before the rows are encoded, or write them without repartitioning.",
        )
    check_key(key, arrow_schema(df.schema))
    return df.repartitionById(len(to), _segment_of(to)(F.col(quoted(key))))


def _to_be_made(name: TopicName, segments: int) -> Sequence[Target]:
    """Return the segments with which the write will create the topic."""
    ranges = even_ranges(segments)
    if isinstance(name, PersistentName):
        return [Target(str(name), r) for r in ranges]
    return [Target(name.segment(r, i), r) for i, r in enumerate(ranges)]


def _segment_of(to: Sequence[Target]) -> Callable[[Column], Column]:
    def segment_index(keys: pa.Array) -> pa.Array:
        return pa.array(places(keys, to), pa.int32())

    made: Callable[[Column], Column] = F.arrow_udf(segment_index, "int")
    return made
