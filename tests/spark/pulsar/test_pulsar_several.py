"""Tests of several topics of a real Pulsar broker in one read: `topics` and `topicsPattern`, in batches and streams."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from conformance.pulsar_server import PulsarBroker
from ledgers.errors import SchemaError
from metadata.common.errors import DataLoss, OffsetOutOfRange, OptionError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import TopicMissing
from pulsar_protocol.producer import Producer
from pulsar_protocol.values import codec_for
from pyspark_txnsegment import DefaultSource
from spark_txn_source.pulsar.readers import batch_reader, stream_reader
from spark_txn_source.pulsar.several_streams import SeveralStreamReader
from tests.support.pulsar_topics import Stream, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.pulsar


class Group:
    """Topics with a common prefix of their names: `a`, `b` and so on."""

    def __init__(self, broker: PulsarBroker, client: PulsarClient) -> None:
        self.broker, self.client = broker, client
        self.prefix = f"several-{uuid.uuid4().hex[:8]}"
        self.a, self.b = self.create("a", 2), self.create("b")

    def create(self, name: str, segments: int = 1) -> Topic:
        return Topic(self.broker, self.client, self.broker.create(f"{self.prefix}-{name}", segments))

    @property
    def pattern(self) -> str:
        return f"topic://public/default/{self.prefix}-[a-y]"

    def options(self, **more: str) -> dict[str, str]:
        topics = {} if "topicsPattern" in more else {"topics": f"{self.prefix}-a, {self.prefix}-b"}
        return {"serviceUrl": self.broker.url, **topics, **more}

    def read(self, **more: str) -> list[dict[str, Any]]:
        given = self.options(**more)
        reader = batch_reader(given, DefaultSource(given).schema())
        batches = [batch for one in reader.partitions() for batch in reader.read(one)]
        return [row for batch in batches for row in batch.to_pylist()]

    def rows(self, **more: str) -> list[int]:
        return [int(row["value"]) for row in self.read(**more)]

    def stream(self, **more: str) -> Stream:
        given = self.options(startingOffsets="earliest", **more) if "startingOffsets" not in more else self.options(**more)
        found = stream_reader(given, DefaultSource(given).schema())
        assert isinstance(found, SeveralStreamReader)
        return Stream(found)


@pytest.fixture
def group(pulsar_broker: PulsarBroker) -> Iterator[Group]:
    with PulsarClient(pulsar_broker.url) as client:
        yield Group(pulsar_broker, client)


def send_rows(topic: Topic, columns: pa.Schema, rows: list[dict[str, Any]]) -> None:
    values = codec_for(columns, "avro")
    with Producer(topic.client, topic.segment(), schema=values.schema) as producer:
        producer.send([Message(one) for one in values.encode(pa.RecordBatch.from_pylist(rows, columns))])


# --- batches ------------------------------------------------------------------------------------------------------


def test_a_batch_reads_several_topics_and_names_them(group: Group) -> None:
    group.a.send(group.a.segment(0), [1, 2])
    group.a.send(group.a.segment(1), [3])
    group.b.send(group.b.segment(), [4])
    found = group.read(includeMetadata="true")
    assert sorted((row["__topic"], int(row["value"])) for row in found) == [
        (group.a.name, 1),
        (group.a.name, 2),
        (group.a.name, 3),
        (group.b.name, 4),
    ]


def test_the_columns_are_united_by_name_with_widened_types(group: Group) -> None:
    send_rows(group.a, pa.schema([("id", pa.int32()), ("name", pa.string())]), [{"id": 1, "name": "x"}])
    send_rows(group.b, pa.schema([("id", pa.int64()), ("more", pa.float64())]), [{"id": 1 << 40, "more": 0.5}])
    assert group.read() == [{"id": 1, "name": "x", "more": None}, {"id": 1 << 40, "name": None, "more": 0.5}]
    assert group.read(columns="more, id") == [{"more": None, "id": 1}, {"more": 0.5, "id": 1 << 40}]


def test_columns_that_conflict_are_named_with_their_topics(group: Group) -> None:
    send_rows(group.a, pa.schema([("id", pa.int64())]), [{"id": 1}])
    send_rows(group.b, pa.schema([("id", pa.string())]), [{"id": "x"}])
    with pytest.raises(SchemaError, match=f"column id is bigint in {group.a.name}, but string in {group.b.name}"):
        group.read()
    assert len(group.read(valueFormat="binary")) == 2


def test_a_pattern_reads_the_matching_topics(group: Group) -> None:
    group.a.send(group.a.segment(), [1])
    group.b.send(group.b.segment(), [2])
    other = group.create("z")
    other.send(other.segment(), [3])
    assert group.rows(topicsPattern=group.pattern) == [1, 2]
    with pytest.raises(TopicMissing, match="No topic of public/default matches"):
        group.rows(topicsPattern="topic://public/default/nothing-.*-here")


def test_a_batch_of_topics_has_the_positions_of_its_options(group: Group) -> None:
    first = group.a.send(group.a.segment(0), [1])
    group.a.send(group.a.segment(0), [2])
    group.b.send(group.b.segment(), [3])
    last = group.b.send(group.b.segment(), [4])
    start = json.dumps({"segments": {group.a.segment(0): first.text}})
    assert group.rows(startingOffsets=start) == [2, 3, 4]
    assert group.rows(endingOffsets=json.dumps({"segments": {group.b.segment(): last.text}})) == [3, 4]
    strange = json.dumps({"segments": {"segment://public/default/other/0000-ffff-0": first.text}})
    with pytest.raises(OffsetOutOfRange, match="no segment of a topic that is read now"):
        group.rows(startingOffsets=strange)


def test_the_least_number_of_tasks_is_that_of_all_topics(group: Group) -> None:
    group.a.send(group.a.segment(0), [0])
    for number in range(1, 13):
        group.b.send(group.b.segment(), [number])
    given = group.options(minPartitions="7")
    reader = batch_reader(given, DefaultSource(given).schema())
    assert len(reader.partitions()) == 7
    assert group.rows(minPartitions="7") == list(range(13))


# --- streams ------------------------------------------------------------------------------------------------------


def test_a_stream_reads_each_row_of_its_topics_once(group: Group) -> None:
    stream = group.stream()
    group.a.send(group.a.segment(0), [1])
    group.b.send(group.b.segment(), [2])
    assert stream.batch() == [1, 2]
    assert stream.batch() == []
    group.b.send(group.b.segment(), [3])
    assert stream.batch() == [3]
    group.a.split(0)
    group.a.send(group.a.segment(2), [4])
    assert stream.batch() == [4]
    assert set(stream.ends[-1]["topics"]) == {group.a.name, group.b.name}
    again = group.stream()
    again.ends = stream.ends
    assert again.batch() == []


def test_a_limit_is_shared_by_the_topics(group: Group) -> None:
    for number in range(6):
        group.a.send(group.a.segment(0), [number])
        group.b.send(group.b.segment(), [10 + number])
    batches = list(group.stream(maxRowsPerTrigger="4").batches(ReadMaxRows(4)))
    assert batches == [[0, 1, 10, 11], [2, 3, 12, 13], [4, 5, 14, 15]]


def test_the_same_offsets_give_the_same_rows(group: Group) -> None:
    for number in range(4):
        group.a.send(group.a.segment(0), [number])
        group.b.send(group.b.segment(), [10 + number])
    stream = group.stream(maxRowsPerTrigger="4")
    first = stream.reader.initialOffset()
    batches = list(stream.batches(ReadMaxRows(4)))
    again = group.stream(maxRowsPerTrigger="4", minPartitions="3")
    starts = [first, *stream.ends]
    assert [again.read(start, end) for start, end in zip(starts, stream.ends, strict=False)] == batches


def test_a_replay_of_a_first_batch_that_begins_at_the_end(group: Group) -> None:
    group.a.send(group.a.segment(0), [1])
    stream = group.stream(startingOffsets="latest")
    start = stream.reader.initialOffset()
    assert stream.reader.latestOffset(start, ReadAllAvailable()) == start
    group.b.send(group.b.segment(), [2])
    end = stream.reader.latestOffset(start, ReadAllAvailable())
    group.a.send(group.a.segment(0), [3])
    group.b.send(group.b.segment(), [4])
    again = group.stream(startingOffsets="latest")
    assert again.read(again.reader.initialOffset(), end) == [2]
    again.ends = [end]
    assert again.batch() == [3, 4], "the first batch's end has the start of the topic that had no rows"


def test_a_stream_of_a_pattern_reads_new_topics_from_their_beginning(group: Group) -> None:
    stream = group.stream(topicsPattern=group.pattern, startingOffsets="latest")
    group.a.send(group.a.segment(0), [1])
    start = stream.reader.initialOffset()
    group.a.send(group.a.segment(0), [2])
    stream.ends = [start]
    assert stream.batch() == [2]
    new = group.create("c")
    new.send(new.segment(), [3])
    group.b.send(group.b.segment(), [4])
    assert sorted(stream.batch()) == [3, 4]
    restarted = group.stream(topicsPattern=group.pattern)
    restarted.ends = stream.ends
    new.send(new.segment(), [5])
    assert restarted.batch() == [5]
    assert restarted.batch() == []


def test_a_deleted_topic_of_a_pattern_is_data_loss(group: Group) -> None:
    stream, lax = group.stream(topicsPattern=group.pattern), group.stream(topicsPattern=group.pattern, failOnDataLoss="false")
    group.a.send(group.a.segment(0), [1])
    group.b.send(group.b.segment(), [2])
    assert stream.batch() == lax.batch() == [1, 2]
    group.broker.rest("DELETE", f"scalable/public/default/{group.prefix}-b?force=true")
    group.a.send(group.a.segment(0), [3])
    with pytest.raises(DataLoss, match=f"{group.b.name} was deleted"):
        stream.batch()
    assert lax.batch() == [3]
    once = group.stream(topicsPattern=group.pattern)
    once.ends = stream.ends
    once.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=f"{group.b.name} was deleted"):
        once.batch()


def test_topics_that_were_added_or_left_out(group: Group) -> None:
    """Queries over several topics go on from the checkpoint of a query over one topic."""
    one = group.a.stream(startingOffsets="earliest")
    group.a.send(group.a.segment(0), [1])
    group.b.send(group.b.segment(), [2])
    assert one.batch() == [1]
    both = group.stream()
    both.ends = one.ends
    with pytest.raises(OptionError, match="topicsChanged=continue"):
        both.batch()
    both = group.stream(topicsChanged="continue")
    both.ends = list(one.ends)
    assert both.batch() == [2]
    assert both.batch() == []
    other = group.create("c")
    other.send(other.segment(), [3])
    names = f"{group.prefix}-b, {group.prefix}-c"
    changed = group.stream(topics=names, topicsChanged="continue")
    changed.ends = list(both.ends)
    group.a.send(group.a.segment(0), [4])
    assert changed.read(one.ends[-1], both.ends[-1]) == [2], "the last batch is planned again, as its offsets say"
    assert changed.batch() == [3]
    assert set(changed.ends[-1]["topics"]) == {group.b.name, other.name}


def test_available_now_ends_at_the_rows_of_its_start(group: Group) -> None:
    for number in range(3):
        group.a.send(group.a.segment(0), [number])
        group.b.send(group.b.segment(), [10 + number])
    stream = group.stream(topicsPattern=group.pattern, maxRowsPerTrigger="4")
    stream.reader.prepareForTriggerAvailableNow()
    group.a.send(group.a.segment(0), [99])
    new = group.create("c")
    new.send(new.segment(), [98])
    assert list(stream.batches(ReadMaxRows(4))) == [[0, 1, 10, 11], [2, 12]]


def test_a_query_over_several_topics_goes_on_from_its_checkpoint(spark: SparkSession, group: Group, tmp_path: Path) -> None:
    found: list[list[tuple[str, int]]] = []

    def run() -> None:
        stream = spark.readStream.format("txnsegment").options(
            serviceUrl=group.broker.url, topicsPattern=group.pattern, startingOffsets="earliest", includeMetadata="true"
        )
        writer = stream.load().writeStream.foreachBatch(
            lambda rows, _: found.append(sorted((row["__topic"], int(row["value"])) for row in rows.collect()))
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        with ExitStack() as ending:
            ending.callback(query.stop)
            assert query.awaitTermination(240)

    group.a.send(group.a.segment(1), [1])
    group.b.send(group.b.segment(), [2])
    run()
    new = group.create("c")
    new.send(new.segment(), [3])
    group.a.send(group.a.segment(0), [4])
    run()
    assert [one for one in found if one] == [[(group.a.name, 1), (group.b.name, 2)], [(group.a.name, 4), (new.name, 3)]]
    named = spark.read.format("txnsegment").option("serviceUrl", group.broker.url).load([group.a.name, group.b.name])
    assert sorted(int(row["value"]) for row in named.collect()) == [1, 2, 4]
