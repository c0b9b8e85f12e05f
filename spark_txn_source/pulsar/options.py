"""The options of a read from Pulsar, parsed and checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metadata.common.errors import OptionError
from metadata.common.options import Given
from metadata.common.service import SERVICE_URL, ServiceUrl, service_url
from metadata.records.row_ranges import Rows
from spark_txn_source.option_table import (
    ACKNOWLEDGED,
    COLUMNS,
    ENDING_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    INCLUDE_METADATA,
    MAX_BYTES,
    MAX_ROWS,
    MIN_PARTITIONS,
    PARTITION_BYTES,
    SCHEMA_VERSION,
    STARTING_TIMESTAMP,
    SUBSCRIPTION,
    TOPICS_CHANGED,
    TopicsChanged,
)
from spark_txn_source.options import MAX_PARTITION_BYTES
from spark_txn_source.pulsar.option_table import (
    ENDING_OFFSETS,
    METADATA_URL,
    SOURCE,
    STARTING_OFFSETS,
    TOPICS_PATTERN,
    VALUE_FORMAT,
    At,
    Place,
    ValueFormat,
)
from spark_txn_source.pulsar.selection import Selection, TopicsPattern, selection


@dataclass(frozen=True)
class PulsarReadOptions:
    """The options of one read. `start`, `end`: a place, or a publish time in ms. An option that has no default and was not given is
    None.
    """

    url: str
    metadata_url: ServiceUrl | None
    selection: Selection
    start: Place | int
    end: Place | int
    columns: tuple[str, ...] | None
    include_metadata: bool
    value_format: ValueFormat
    schema_version: int | None
    max_rows_per_trigger: int | None
    max_bytes_per_trigger: int | None
    fail_on_data_loss: bool
    subscription: str | None
    min_partitions: int | None
    max_partition_bytes: int | None
    topics_changed: TopicsChanged
    acknowledged: Mapping[str, Rows] | None
    """The rows of each segment that are left out. None: this is not a read of `txn.read`. Otherwise `start` and `end` are fixed
    positions, between which all entries are decided.
    """

    @property
    def topic(self) -> str:
        """The only topic that is read."""
        assert isinstance(self.selection, tuple), "a pattern has several topics"
        (found,) = self.selection
        return found

    @property
    def several(self) -> bool:
        """Whether several topics are read, or the topics that match a pattern."""
        return isinstance(self.selection, TopicsPattern) or len(self.selection) > 1

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool | None) -> PulsarReadOptions:
        """Parse and check the options. `streaming`: whether the read is a stream, or None if this is not known yet. Raises
        OptionError.
        """
        given = SOURCE.read(options, streaming=streaming)
        if given.value(VALUE_FORMAT) == "binary" and COLUMNS in given and given.get(COLUMNS) != ("value",):
            raise OptionError(
                "The options valueFormat=binary and columns are both given: with valueFormat=binary the only column is value.",
                advice="Leave one of the two out.",
            )
        if given.value(VALUE_FORMAT) == "binary" and SCHEMA_VERSION in given:
            raise OptionError(
                "The options valueFormat=binary and schemaVersion are both given: with valueFormat=binary no schema is used.",
                advice="Leave one of the two out.",
            )
        selected = selection(given, given.get(TOPICS_PATTERN))
        old = [] if isinstance(selected, TopicsPattern) else [one for one in selected if one.startswith("persistent://")]
        if METADATA_URL in given and old:
            raise OptionError(
                f"The option metadataUrl cannot be used with {old[0]}: brokers keep watermark records of topic:// topics only.",
                advice="Leave metadataUrl out.",
            )
        if SCHEMA_VERSION in given and (isinstance(selected, TopicsPattern) or len(selected) > 1):
            raise OptionError(
                "The option schemaVersion needs the schema of one topic, and several topics are read.",
                advice="Read each topic by itself.",
            )
        begin, end = given.get(STARTING_OFFSETS), given.get(ENDING_OFFSETS)
        if ACKNOWLEDGED in given and not (isinstance(begin, At) and isinstance(end, At)):
            raise OptionError(
                "The option acknowledged is given without positions in startingOffsets and endingOffsets.",
                advice="Only txn.read sets it. Read with txn.read(spark, topic, subscription=...).",
            )
        partition_bytes = given.get(PARTITION_BYTES)
        return cls(
            url=service_url(given.get(SERVICE_URL)).text,
            metadata_url=given.get(METADATA_URL),
            selection=selected,
            start=_one_of(given, STARTING_OFFSETS.name, STARTING_TIMESTAMP.name, "latest" if streaming else "earliest"),
            end=_one_of(given, ENDING_OFFSETS.name, ENDING_TIMESTAMP.name, "latest"),
            columns=given.get(COLUMNS),
            include_metadata=given.value(INCLUDE_METADATA),
            value_format=given.value(VALUE_FORMAT),
            schema_version=given.get(SCHEMA_VERSION),
            max_rows_per_trigger=given.get(MAX_ROWS),
            max_bytes_per_trigger=given.get(MAX_BYTES),
            fail_on_data_loss=given.value(FAIL_ON_DATA_LOSS),
            subscription=given.get(SUBSCRIPTION),
            min_partitions=given.get(MIN_PARTITIONS),
            topics_changed=given.value(TOPICS_CHANGED),
            max_partition_bytes=MAX_PARTITION_BYTES if partition_bytes is None and not streaming else partition_bytes,
            acknowledged=given.get(ACKNOWLEDGED),
        )


def _one_of(given: Given, offsets: str, timestamp: str, default: Place) -> Place | int:
    options = {STARTING_OFFSETS.name: STARTING_OFFSETS, ENDING_OFFSETS.name: ENDING_OFFSETS}
    times = {STARTING_TIMESTAMP.name: STARTING_TIMESTAMP, ENDING_TIMESTAMP.name: ENDING_TIMESTAMP}
    place, ms = given.get(options[offsets]), given.get(times[timestamp])
    if place is not None and ms is not None:
        raise OptionError(f"{offsets} and {timestamp} are both given.", advice="Give one of the two.")
    return place if place is not None else ms if ms is not None else default
