"""Options of other connectors of Spark, and what txnsegment has in their place: those of Kafka (Spark 4), pulsar-spark, Delta Lake
and Iceberg. Their names are those of the sources of these connectors. Options of the same name and meaning as ours are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Side = Literal["source", "sink"]

KAFKA: Final = "Spark's Kafka connector"
PULSAR: Final = "the connector pulsar-spark"
DELTA: Final = "Delta Lake"
ICEBERG: Final = "Iceberg"


@dataclass(frozen=True)
class Foreign:
    """Options of another connector that have the same place here.

    names   their names. A name that ends in `*` stands for all options that begin with the rest of it
    source  our option of reads in their place; None: reads have none
    sink    our option of writes in their place; None: writes have none
    note    one sentence: what differs, or why there is no option
    """

    owner: str
    names: tuple[str, ...]
    source: str | None
    sink: str | None
    note: str

    def matches(self, key: str) -> bool:
        """Return whether the option of this name, in lower case, is one of these."""
        return any(key.startswith(name[:-1].lower()) if name.endswith("*") else key == name.lower() for name in self.names)

    def advice(self, side: Side) -> str:
        """Return what to do about one of these options on a side."""
        here, there = (self.source, self.sink) if side == "source" else (self.sink, self.source)
        if here is not None:
            return f"Did you mean {here}? {self.note}"
        if there is not None:
            done = "write" if side == "source" else "read"
            return f"There is no such option here. Where you {done}, {there} is in its place. {self.note}"
        return f"There is no such option: leave it out. {self.note}"


def _both(owner: str, names: str, option: str, note: str) -> Foreign:
    return Foreign(owner, tuple(names.split()), option, option, note)


def _read(owner: str, names: str, option: str, note: str) -> Foreign:
    return Foreign(owner, tuple(names.split()), option, None, note)


def _write(owner: str, names: str, option: str, note: str) -> Foreign:
    return Foreign(owner, tuple(names.split()), None, option, note)


def _none(owner: str, names: str, why: str) -> Foreign:
    return Foreign(owner, tuple(names.split()), None, None, why)


_A_LOG: Final = "A topic is a log: rows are appended, and never changed, replaced or deleted one by one."
_TRIES: Final = "txnsegment waits and tries again by rules of its own."
_UP_TO: Final = 'It is {"log": N}, and reads the rows up to number N.'
_CHECKPOINT: Final = "A query needs none, since its checkpoint has its position."
_PACKED: Final = "Tasks are packed by bytes."
_TLS: Final = "pulsar+ssl://host:6651 turns TLS on; the environment names the certificates (docs/pulsar.md)."

TABLE: Final[Sequence[Foreign]] = (
    # --- Kafka ---
    _both(KAFKA, "kafka.bootstrap.servers", "serviceUrl", "It names the cluster."),
    Foreign(KAFKA, ("subscribe",), "topics", "topic", "One topic is also the argument of load, save and start."),
    _read(KAFKA, "subscribePattern", "topicsPattern", "It matches the full name, topic://tenant/namespace/name."),
    _read(KAFKA, "assign", "topics", "Names of segments (segment://..) read single segments."),
    _read(KAFKA, "startingOffsetsByTimestamp", "startingTimestamp", "One time counts for all segments."),
    _read(KAFKA, "endingOffsetsByTimestamp", "endingTimestamp", "One time counts for all segments."),
    _read(
        KAFKA,
        "startingOffsetsByTimestampStrategy",
        "startingTimestamp",
        "It needs no strategy: a time after the newest row begins after this row.",
    ),
    _read(KAFKA, "maxOffsetsPerTrigger", "maxRowsPerTrigger", "A micro-batch takes whole transactions."),
    _read(KAFKA, "maxRecordsPerPartition", "maxPartitionBytes", _PACKED),
    _read(KAFKA, "groupIdPrefix kafka.group.id", "subscription", _CHECKPOINT),
    _read(
        KAFKA,
        "includeHeaders",
        "includeMetadata",
        "Its columns begin with __; of Pulsar topics __properties is one. In our topics write headers as a column of their own.",
    ),
    _none(KAFKA, "kafkaConsumer.pollTimeoutMs fetchOffset.*", _TRIES),
    _read(KAFKA, "kafka.isolation.level", "isolationLevel", "Reads return committed rows unless it is given."),
    _read(KAFKA, "kafka.auto.offset.reset", "startingOffsets", "It counts for a new checkpoint."),
    _write(KAFKA, "kafka.transactional.id", "txnAppId", "Every write is a transaction also without it."),
    _write(KAFKA, "kafka.transaction.timeout.ms", "txnTimeoutMs", "It counts from opening a transaction to deciding it."),
    _write(KAFKA, "kafka.compression.type", "compression", "It is the codec of Parquet parts."),
    _none(KAFKA, "kafka.acks kafka.enable.idempotence", "Every write is an exactly-once transaction."),
    _none(KAFKA, "kafka.*", "It is a setting of Kafka's clients, and txnsegment has none of them."),
    # --- pulsar-spark ---
    _both(PULSAR, "service.url", "serviceUrl", "It names the cluster."),
    _write(PULSAR, "admin.url", "adminUrl", "It is for writes to a Pulsar cluster, which create topics."),
    _read(PULSAR, "startingTime startingOffsetsByTimes", "startingTimestamp", "One time counts for all segments."),
    _read(PULSAR, "endingTime endingOffsetsByTimes", "endingTimestamp", "One time counts for all segments."),
    _read(PULSAR, "startOptionKey", "startingOffsets", "It is earliest, latest or a position."),
    _read(PULSAR, "endOptionKey", "endingOffsets", "It is latest or a position."),
    _read(PULSAR, "maxEntriesPerTrigger", "maxRowsPerTrigger", "It counts rows, and a micro-batch takes whole transactions."),
    _read(
        PULSAR,
        "forwardStrategy ensureEntriesPerTopic",
        "maxRowsPerTrigger",
        "How it is shared out among segments cannot be chosen.",
    ),
    _read(PULSAR, "subscriptionPrefix predefinedSubscription", "subscription", _CHECKPOINT),
    _none(PULSAR, "pollTimeoutMs", _TRIES),
    _none(PULSAR, "allowDifferentTopicSchemas", "Topics are read as a union by column name, with widened types."),
    _none(PULSAR, "topic.schema.class jsonOptions", "The columns of the DataFrame are the schema."),
    _none(
        PULSAR, "waitingForNonExistedTopic", "A topic must exist before it is read; topicsPattern finds topics that are made later."
    ),
    _both(PULSAR, "tlsTrustCertsFilePath tlsAllowInsecureConnection tlsHostnameVerificationEnable", "serviceUrl", _TLS),
    _none(
        PULSAR,
        "pulsar.client.* pulsar.admin.* pulsar.producer.* pulsar.consumer.* pulsar.reader.*",
        "It is a setting of Pulsar's Java clients, and txnsegment has none of them.",
    ),
    # --- Delta Lake ---
    _read(DELTA, "maxFilesPerTrigger", "maxRowsPerTrigger", "A micro-batch takes whole transactions."),
    _read(DELTA, "startingVersion", "startingOffsets", 'It is {"log": N}, and reads the rows after number N.'),
    _read(DELTA, "endingVersion versionAsOf", "endingOffsets", _UP_TO),
    _read(DELTA, "timestampAsOf", "endingTimestamp", "It ends a batch at the transactions published by then."),
    _read(DELTA, "ignoreDeletes ignoreFileDeletion", "failOnDataLoss", "Rows go only by retention, or with their topic."),
    _none(DELTA, "ignoreChanges skipChangeCommits readChangeFeed readChangeData", _A_LOG),
    _none(DELTA, "excludeRegex", "Files have no names that a reader knows; select rows with where, columns with columns."),
    _read(
        DELTA,
        "schemaTrackingLocation schemaLocation allowSourceColumnRename allowSourceColumnDrop allowSourceColumnTypeChange",
        "schemaChange",
        "Columns are only added or widened.",
    ),
    _none(DELTA, "streamingSourceTrackingId", "Spark's checkpoint keeps the sources of a query apart."),
    _none(DELTA, "overwriteSchema", "Columns are only added or widened: write to a new topic."),
    _none(DELTA, "replaceWhere replaceOn replaceUsing targetAlias partitionOverwriteMode dataChange", _A_LOG),
    _none(DELTA, "useNullIntolerantEqualityWithDPO", _A_LOG),
    _write(DELTA, "userMetadata", "txnAppId", "A transaction carries its application and its version only."),
    _none(DELTA, "optimizeWrite", "Small files are joined by compaction (docs/storage.md)."),
    _write(DELTA, "maxRecordsPerFile", "entryRows", "It limits an entry; a task writes one file for each segment."),
    _write(DELTA, "writePartitionColumns", "keyColumn", "Rows are routed to segments by a column, and no column is left out."),
    # --- Iceberg ---
    _read(ICEBERG, "snapshot-id end-snapshot-id branch tag", "endingOffsets", _UP_TO),
    _read(ICEBERG, "start-snapshot-id", "startingOffsets", 'It is {"log": N}, and reads the rows after number N.'),
    _read(ICEBERG, "as-of-timestamp end-timestamp", "endingTimestamp", "It ends a batch at the transactions published by then."),
    _read(ICEBERG, "start-timestamp stream-from-timestamp", "startingTimestamp", "It reads rows published at or after this time."),
    _read(
        ICEBERG,
        "streaming-max-rows-per-micro-batch streaming-max-files-per-micro-batch",
        "maxRowsPerTrigger",
        "A micro-batch takes whole transactions.",
    ),
    _none(ICEBERG, "streaming-skip-delete-snapshots streaming-skip-overwrite-snapshots", _A_LOG),
    _read(ICEBERG, "split-size lookback file-open-cost", "maxPartitionBytes", _PACKED),
    _none(ICEBERG, "vectorization-enabled vectorization-batch-size batch-size", "Rows are always read as Arrow batches."),
    _none(ICEBERG, "locality scan-task-set-id", "Spark places the tasks, and the driver plans them."),
    _write(ICEBERG, "compression-codec", "compression", "It is the codec of Parquet parts."),
    _none(ICEBERG, "compression-level compression-strategy", "Each codec has one level, its default."),
    _none(ICEBERG, "write-format delete-format", "Parts are Parquet files."),
    _write(ICEBERG, "target-file-size-bytes", "entryBytes", "It limits an entry; compaction joins small files (docs/storage.md)."),
    _none(ICEBERG, "target-delete-file-size-bytes overwrite-mode rewritten-file-scan-task-set-id", _A_LOG),
    _none(ICEBERG, "check-nullability check-ordering", "Columns are found by name, and each may be null."),
    _write(
        ICEBERG,
        "merge-schema",
        "mergeSchema",
        "A read has the columns of all rows.",
    ),
    _none(ICEBERG, "fanout-enabled", "A task writes to all segments at once, so rows need no order."),
    _write(
        ICEBERG,
        "distribution-mode use-table-distribution-and-ordering output-spec-id",
        "keyColumn",
        "Rows are routed to segments by this column.",
    ),
    _read(ICEBERG, "isolation-level", "isolationLevel", "Writes need none, since each is a transaction."),
    _write(ICEBERG, "validate-from-snapshot-id", "txnVersion", "Appends do not conflict; a version commits once."),
    _write(ICEBERG, "snapshot-property*", "txnAppId", "A transaction carries its application and its version only."),
    _none(ICEBERG, "handle-timestamp-without-timezone", "Columns of both types of timestamps are written as they are."),
)


def foreign(name: str, table: Sequence[Foreign] = TABLE) -> Foreign | None:
    """Return the row of an option, whose name is matched without regard to case. Earlier rows of the table count first."""
    key = name.lower()
    return next((row for row in table if row.matches(key)), None)


def targets(table: Sequence[Foreign] = TABLE) -> Mapping[Side, set[str]]:
    """Return all of our options that the table names, by side."""
    return {"source": {row.source for row in table if row.source}, "sink": {row.sink for row in table if row.sink}}
