"""The committed rows of a topic, read from the parts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ledgers.arrow import arrow_schema, conform
from ledgers.parts import read_part
from metadata.read.reading import LogSelection
from txnsegment import Cluster


def rows_by_segment(cluster: Cluster, topic: str) -> Mapping[str, Sequence[dict[str, Any]]]:
    """Return all committed rows of a topic, by segment and in order, read directly from the parts of a reading."""
    name = cluster.topics.describe(topic).name
    reading = cluster.client.buffer.read(LogSelection((name,)))
    struct = cluster.topics.describe(topic).schema
    assert struct is not None
    schema = arrow_schema(struct)
    storage = cluster.client.cluster.storage
    found: dict[str, list[dict[str, Any]]] = {}
    for segment in reading.segments:
        parts = itertools.chain.from_iterable(ledger.parts for ledger in segment.ledgers(0, reading.cut))
        batches = [conform(entry.batch, schema) for part in parts for entry in read_part(storage, part)]
        found[segment.name] = [row for batch in batches for row in batch.to_pylist()]
    return found


def rows(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    return [row for found in rows_by_segment(cluster, topic).values() for row in found]
