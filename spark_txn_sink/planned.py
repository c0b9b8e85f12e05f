"""What the plan of a write gives to the tasks and to the commit. Tasks import this module, so it imports no metadata store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from metadata.records.names import TopicName
    from metadata.topics.routing import Target

Compression = Literal["zstd", "lz4", "snappy", "none"]


@dataclass(frozen=True)
class TaskOptions:
    """The options that the tasks of a write need."""

    topic: TopicName
    key_column: str | None
    compression: Compression
    entry_bytes: int
    entry_rows: int


@dataclass(frozen=True)
class WritePlan:
    """The plan of one write. It is pickled to the tasks, which open the ledger root but not the metadata store.

    `to`: the active segments, with their hash ranges. `key`: the column that routes rows. `types`: the incoming columns, with the
    types that they have in the topic. `schema_id`: the id of the schema version that has all of these columns. It is None if the
    commit must extend the schema or give the topic its key. `staged_ms`: the store's time before the first part is written.
    `values`: whether the incoming rows are Avro bytes. `avro`: the Avro schema by which the tasks decode such rows. For other rows
    it is the Avro schema that was registered for the topic, or None. `statistics`: whether parts get statistics. `grows`: whether
    the commit may add columns to the topic.
    """

    topic: TopicName
    to: tuple[Target, ...]
    key: str | None
    types: StructType
    schema_id: int | None
    staged_ms: int
    storage_uri: str
    options: TaskOptions
    avro: str | None = None
    values: bool = False
    statistics: bool = True
    grows: bool = False


@dataclass(frozen=True)
class Identity:
    """The application and the version of a write. Both come from the options, but the version of a stream's write is its batch id.

    `app`: the application id. It is None for a stream without `txnAppId`, which uses the query's id. `random`: whether `app` is a
    random id, as for a batch write without `txnAppId`. `accepts_loss`: see `Claim`.
    """

    app: str | None
    version: int
    random: bool
    streaming: bool
    accepts_loss: bool = False
