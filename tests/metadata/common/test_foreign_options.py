"""Options of other connectors: each gives the name of ours, or the reason why there is none."""

from __future__ import annotations

from typing import Final

import pytest

from metadata.common.errors import OptionError
from metadata.common.foreign_options import DELTA, ICEBERG, KAFKA, PULSAR, TABLE, foreign, targets
from metadata.common.options import SINK_NAMES, SOURCE_NAMES, SPARK_OWN, OptionTable
from spark_txn_sink.options import SINK
from spark_txn_sink.pulsar.options import SINK as PULSAR_SINK
from spark_txn_source.option_table import SOURCE
from spark_txn_source.pulsar.option_table import SOURCE as PULSAR_SOURCE

OPTIONS: Final = {
    KAFKA: "kafka.bootstrap.servers subscribe subscribePattern assign startingOffsets endingOffsets startingTimestamp "
    "endingTimestamp startingOffsetsByTimestamp endingOffsetsByTimestamp startingOffsetsByTimestampStrategy "
    "failOnDataLoss kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs "
    "maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix "
    "kafka.group.id includeHeaders topic kafka.max.poll.records kafka.ssl.truststore.location",
    PULSAR: "service.url admin.url topic topics topicsPattern startingOffsets endingOffsets startingTime endingTime "
    "startOptionKey endOptionKey maxEntriesPerTrigger maxBytesPerTrigger subscriptionPrefix predefinedSubscription "
    "pollTimeoutMs failOnDataLoss tlsTrustCertsFilePath tlsAllowInsecureConnection tlsHostnameVerificationEnable "
    "allowDifferentTopicSchemas topic.schema.class pulsar.client.operationTimeoutMs pulsar.admin.x "
    "pulsar.producer.batchingEnabled pulsar.reader.receiverQueueSize",
    DELTA: "replaceOn replaceUsing targetAlias replaceWhere mergeSchema excludeRegex overwriteSchema userMetadata "
    "useNullIntolerantEqualityWithDPO partitionOverwriteMode maxFilesPerTrigger maxBytesPerTrigger "
    "ignoreFileDeletion ignoreChanges ignoreDeletes skipChangeCommits failOnDataLoss optimizeWrite dataChange "
    "startingTimestamp startingVersion readChangeFeed readChangeData endingTimestamp endingVersion compression "
    "maxRecordsPerFile txnAppId txnVersion schemaTrackingLocation schemaLocation streamingSourceTrackingId "
    "allowSourceColumnDrop allowSourceColumnRename allowSourceColumnTypeChange queryName checkpointLocation path "
    "versionAsOf timestampAsOf writePartitionColumns",
    ICEBERG: "snapshot-id as-of-timestamp start-snapshot-id end-snapshot-id start-timestamp end-timestamp branch tag "
    "split-size lookback file-open-cost vectorization-enabled batch-size locality stream-from-timestamp "
    "streaming-max-files-per-micro-batch streaming-max-rows-per-micro-batch streaming-skip-delete-snapshots "
    "streaming-skip-overwrite-snapshots write-format target-file-size-bytes delete-format "
    "target-delete-file-size-bytes check-nullability snapshot-property.owner fanout-enabled check-ordering "
    "rewritten-file-scan-task-set-id handle-timestamp-without-timezone output-spec-id overwrite-mode "
    "distribution-mode use-table-distribution-and-ordering merge-schema validate-from-snapshot-id isolation-level "
    "compression-codec compression-level compression-strategy",
}
"""The options of each connector, as in its source: KafkaSourceProvider, PulsarOptions, DeltaOptions, SparkReadOptions and
SparkWriteOptions.
"""

NAMED: Final = [(owner, name) for owner, names in OPTIONS.items() for name in names.split()]
OURS: Final = {name.lower() for name in (*SOURCE_NAMES, *SINK_NAMES, *SPARK_OWN)}


@pytest.mark.parametrize(("owner", "name"), NAMED)
def test_each_option_of_a_connector_is_ours_or_has_a_row(owner: str, name: str) -> None:
    row = foreign(name.upper())
    assert name.lower() in OURS or (row is not None and row.owner in {owner, KAFKA, DELTA, PULSAR})


def test_each_row_names_options_that_exist() -> None:
    named = targets()
    assert named["source"] <= {*SOURCE_NAMES}
    assert named["sink"] <= {*SINK_NAMES, "adminUrl"}
    assert "adminUrl" in {option.name for option in PULSAR_SINK.options}


def test_no_row_hides_an_option_of_ours_or_a_later_row() -> None:
    for at, row in enumerate(TABLE):
        assert row.note.endswith(".")
        for name in row.names:
            key = name.removesuffix("*").lower()
            assert key not in OURS
            assert foreign(key, TABLE[:at]) is None


@pytest.mark.parametrize(
    "table", [SOURCE, SINK, PULSAR_SOURCE, PULSAR_SINK], ids=["source", "sink", "Pulsar source", "Pulsar sink"]
)
@pytest.mark.parametrize("name", [name for row in TABLE for name in row.names])
def test_each_side_names_the_owner_and_gives_the_note(table: OptionTable, name: str) -> None:
    row = foreign(name.removesuffix("*"))
    assert row is not None
    with pytest.raises(OptionError) as refused:
        table.read({name.removesuffix("*"): "x"}, streaming=None)
    assert f"has no option '{name.removesuffix('*')}', which is one of {row.owner}" in str(refused.value)
    assert row.note in str(refused.value)


@pytest.mark.parametrize(
    ("table", "name", "told"),
    [
        (SOURCE, "kafka.bootstrap.servers", "Did you mean serviceUrl?"),
        (SINK, "KAFKA.BOOTSTRAP.SERVERS", "Did you mean serviceUrl?"),
        (SINK, "subscribe", "Did you mean topic?"),
        (SINK, "versionAsOf", "Where you read, endingOffsets is in its place"),
        (SOURCE, "maxRecordsPerFile", "Where you write, entryRows is in its place"),
        (SOURCE, "readChangeFeed", "leave it out. A topic is a log"),
        (SOURCE, "kafka.fetch.min.bytes", "a setting of Kafka's clients"),
        (SOURCE, "kafka.sasl.jaas.config", "looks like a credential"),
        (SOURCE, "authParams", "looks like a credential"),
        (SOURCE, "topik", "Did you mean topic?"),
    ],
)
def test_what_is_told(table: OptionTable, name: str, told: str) -> None:
    with pytest.raises(OptionError) as refused:
        table.read({name: "x"}, streaming=None)
    assert told in str(refused.value)
