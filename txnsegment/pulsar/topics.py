"""The topics of a Pulsar cluster."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metadata.common.errors import OptionError
from metadata.records.names import topic_name
from metadata.records.records import SegmentState
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.values import codec
from txnsegment.topics import SegmentDescription, TopicDescription


class PulsarTopics:
    """The scalable topics of a Pulsar cluster. A bare `name` means `topic://public/default/name`. Topics are created, split and
    merged by Pulsar's own administration.
    """

    def __init__(self, client: PulsarClient) -> None:
        self._client = client

    def list(self, pattern: str | None = None, *, namespace: str = "public/default") -> list[TopicDescription]:
        """Return the scalable topics of a namespace, by name, without those whose name begins with `__`. `pattern`: a regular
        expression for the full name, from end to end. Raises OptionError for a bad pattern.
        """
        try:
            wanted = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise OptionError(f"The pattern {pattern!r} is no regular expression: {error}.", advice="Correct it.") from error
        names = [name for name in sorted(self._client.topics(namespace)) if not topic_name(name).name.startswith("__")]
        return [self.describe(name) for name in names if wanted is None or wanted.fullmatch(name)]

    def describe(self, name: str) -> TopicDescription:
        """Return the schema and the segments of a topic. Raises TopicMissing."""
        full = str(topic_name(name))
        layout = self._client.layout(full)
        return TopicDescription(
            name=full,
            key=None,
            schema=_columns(self._client.schema(full), full),
            epoch=layout.epoch,
            segments=tuple(
                SegmentDescription(
                    name=one.name,
                    id=one.id,
                    start=one.start,
                    end=one.end,
                    state=SegmentState.ACTIVE if one.active else SegmentState.SEALED,
                    parents=one.parents,
                    children=one.children,
                    created_ms=one.created_ms,
                    sealed_ms=one.sealed_ms,
                )
                for one in layout.segments.values()
            ),
        )


def _columns(schema: Any | None, topic: str) -> StructType | None:
    """Return the columns of a topic's rows, or None if it has no schema."""
    if schema is None:
        return None
    found: StructType = from_arrow_schema(codec(schema, topic).columns)
    return found
