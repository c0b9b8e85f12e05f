"""Tests of the options of a read from Pulsar. They need no broker."""

from __future__ import annotations

import pytest

from metadata.common.errors import OptionError
from pulsar_protocol.layout import Position
from spark_txn_source.pulsar.option_table import At
from spark_txn_source.pulsar.options import PulsarReadOptions

URL = {"serviceUrl": "pulsar://localhost:6650", "topic": "orders"}


def parse(streaming: bool | None = True, **more: str) -> PulsarReadOptions:
    return PulsarReadOptions.parse({**URL, **more}, streaming=streaming)


def test_defaults() -> None:
    stream, batch = parse(), parse(streaming=False)
    assert (stream.topic, stream.start, batch.start, batch.end) == ("topic://public/default/orders", "latest", "earliest", "latest")
    assert (stream.max_partition_bytes, batch.max_partition_bytes) == (None, 128 << 20)
    assert (stream.value_format, stream.fail_on_data_loss, stream.include_metadata) == ("columns", True, False)


def test_a_place_names_segments_with_positions() -> None:
    assert parse(startingOffsets='{"segments":{"segment://a/b/c/0000-ffff-0":"3:14"}}').start == At(
        {"segment://a/b/c/0000-ffff-0": Position(3, 14)}
    )
    assert parse(startingTimestamp="1735689600000").start == 1735689600000


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"startingOffsets": "soon"}, "neither a known word nor JSON"),
        ({"startingOffsets": "begin"}, r"Write earliest, latest, or \{\"segments\""),
        ({"adminUrl": "http://h:8080"}, r"adminUrl cannot be used with a read .* it is for writes.* Leave it out"),
        ({"startingOffsets": '{"log": 3}'}, "field segments"),
        ({"startingOffsets": '{"segments": {"a": "x"}}'}, "is no position"),
        ({"startingOffsets": '{"segments": {"a": 5}}'}, "startingOffsets"),
        ({"startingOffsets": '{"segments": {}, "more": 1}'}, "unknown fields"),
        ({"startingOffsets": "earliest", "startingTimestamp": "0"}, "are both given"),
        ({"topics": "a, b", "topic": "c"}, "given in 2 ways"),
        ({"topicsPattern": ".*"}, "does not begin with"),
        ({"schemaVersion": "-1"}, "whole number from 0"),
        ({"schemaVersion": "1", "valueFormat": "binary"}, "no schema is used"),
        ({"minPartitions": "0"}, "whole number from 1"),
        ({"isolationLevel": "read_uncommitted"}, "read_committed"),
        ({"valueFormat": "avro"}, "columns, binary"),
        ({"valueFormat": "binary", "columns": "a"}, "only column is value"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"keyColumn": "k"}, "option of the sink"),
        ({"path": "other"}, "they differ"),
        ({"metadataUrl": "oxia://host:6648/broker"}, "records in ZooKeeper only"),
        ({"metadataUrl": "zk://host:2181", "topic": "persistent://public/default/a"}, "topic:// topics only"),
    ],
)
def test_what_cannot_work_is_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**more)


def test_the_end_of_a_read_is_latest_or_positions() -> None:
    with pytest.raises(OptionError, match=r"Write latest, or \{\"segments\""):
        parse(streaming=False, endingOffsets="end")


def test_a_batch_has_no_subscription() -> None:
    with pytest.raises(OptionError, match="acknowledges nothing"):
        parse(streaming=False, subscription="s")
    assert parse(subscription="s").subscription == "s"
