"""The batch reader of several Pulsar topics. It makes a reader for each topic, as for a read of this topic alone, so each topic is
read up to its own cut. The other functions also serve the stream reader of several topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from metadata.common.errors import OffsetOutOfRange
from metadata.common.workers import tells_errors
from pulsar_protocol.client import PulsarClient
from spark_txn_source.pulsar.asking import AT_ONCE, each
from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.columns import Part, PulsarColumns, parts_of
from spark_txn_source.pulsar.dividing import divide
from spark_txn_source.pulsar.option_table import At, Place
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.selection import topics_now
from spark_txn_source.pulsar.tasks import PulsarTask, read_task
from spark_txn_source.pulsar.topics import layout, shared_client

T = TypeVar("T")


def in_parallel(topics: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
    """Call `ask` for each topic, with several topics at the same time. Return the results in the order of the topics."""
    listed = list(topics)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(listed, threads.map(ask, listed), strict=True))


def of_topic(
    options: PulsarReadOptions, topic: str, count: int, segments: Mapping[str, frozenset[str]] | None = None
) -> PulsarReadOptions:
    """Return the options for one topic of a read of `count` topics. Each topic gets an equal share of the limits. If the start or
    the end of the read gives positions, the topic gets the positions in its own segments. `segments`: the names of each topic's
    segments; None: the start and the end are not changed.
    """

    def share(limit: int | None) -> int | None:
        return None if limit is None else max(1, limit // count)

    def own(place: Place | int) -> Place | int:
        if not isinstance(place, At) or segments is None:
            return place
        return At({name: at for name, at in place.segments.items() if name in segments[topic]})

    return replace(
        options,
        selection=(topic,),
        start=own(options.start),
        end=own(options.end),
        max_rows_per_trigger=share(options.max_rows_per_trigger),
        max_bytes_per_trigger=share(options.max_bytes_per_trigger),
    )


def parts(client: PulsarClient, options: PulsarReadOptions, columns: Mapping[str, PulsarColumns]) -> dict[str, Part]:
    """Return the part of each topic of a read. Raises OffsetOutOfRange as `parts_options`."""
    return {topic: Part(one, columns[topic]) for topic, one in parts_options(client, options, columns).items()}


def parts_options(client: PulsarClient, options: PulsarReadOptions, topics: Iterable[str]) -> dict[str, PulsarReadOptions]:
    """Return the options for each topic of a read. Raises OffsetOutOfRange if the start or the end names a segment that belongs to
    none of the topics.
    """
    names = list(topics)
    places = [place for place in (options.start, options.end) if isinstance(place, At)]
    segments = None
    if places:
        layouts = each(names, lambda topic: layout(client, topic))
        segments = {topic: frozenset(one.name for one in found.segments.values()) for topic, found in layouts.items()}
        strange = sorted({name for place in places for name in place.segments}.difference(*segments.values()))
        if strange:
            raise OffsetOutOfRange(
                f"{strange[0]} is no segment of a topic that is read now ({', '.join(sorted(names))}).",
                advice="Leave it out of the offsets.",
            )
    return {topic: of_topic(options, topic, len(names), segments) for topic in names}


@tells_errors
class SeveralBatchReader(DataSourceReader):
    """The reader of a batch from several topics. In the list of tasks the tasks of one topic follow one another."""

    def __init__(self, options: PulsarReadOptions, schema: StructType) -> None:
        client = shared_client(options.url)
        columns = parts_of(client, options, topics_now(client, options.selection), schema)
        self._options, self._parts, self._schema = options, parts(client, options, columns), schema

    def partitions(self) -> Sequence[InputPartition]:
        def planned(topic: str) -> list[PulsarTask]:
            return BatchReader({}, self._schema, self._parts[topic]).undivided()

        options = self._options
        found = [task for tasks in in_parallel(self._parts, planned).values() for task in tasks]
        return divide(shared_client(options.url), found, options.min_partitions, options.max_partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)
