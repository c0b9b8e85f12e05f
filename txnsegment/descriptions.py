"""What `cluster.topics` tells of topics: their segments, schemas and properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from metadata.common.html import Shown
from metadata.records.records import SegmentState


@dataclass(frozen=True)
class SegmentDescription(Shown):
    """One segment of a topic.

    `start`, `end`: its hash range, both inclusive. `state`: `ACTIVE` or `SEALED`. `parents`: the ids of the segments that were
    split or merged into this segment. `children`: the ids of the segments that continue its range. `created_ms`, `sealed_ms`: ms
    since 1970. `sealed_ms` is None if the segment is not sealed.
    """

    name: str
    id: int
    start: int
    end: int
    state: SegmentState
    parents: tuple[int, ...]
    children: tuple[int, ...]
    created_ms: int
    sealed_ms: int | None


@dataclass(frozen=True)
class TopicDescription(Shown):
    """The current state of a topic.

    `key`: the column that routes rows; None: no key yet. `schema`: None if nothing was written yet and no schema was given.
    `epoch`: the number of changes of its layout.
    """

    name: str
    key: str | None
    schema: StructType | None
    epoch: int
    segments: tuple[SegmentDescription, ...]


@dataclass(frozen=True)
class PersistentDescription(TopicDescription):
    """The current state of a marker-based topic (`persistent://`): one log, without segments and without a key.

    `properties`: the properties that users have set, and those of the system, such as `__contains_txn_messages`. `sealed`: whether
    the log is sealed or is being sealed. `migrated_to`: the successor `topic://`, if the topic was migrated.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    sealed: bool = False
    migrated_to: str | None = None


@dataclass(frozen=True)
class SchemaDescription(Shown):
    """One version of a topic's schema.

    `columns`: the columns of the topic at this version. Later versions may add columns or widen types. `avro`: the Avro schema as
    JSON text; None if Avro cannot express the columns. `why`: the reason for which it cannot; None otherwise. `registered`: whether
    a user registered the Avro schema. If not, the schema is derived from the columns.
    """

    topic: str
    version: int
    registered: bool
    avro: str | None
    why: str | None
    columns: StructType
    created_ms: int
