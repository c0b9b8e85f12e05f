"""Reads return each transaction of txnsegment's writers as a whole or not at all, on a real broker.

While a transaction of another program is open in segment B, the broker delivers no later row of B. So the broker delivers the row
of a committed transaction in A, and not yet the one in B.
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import OffsetOutOfRange
from pulsar_protocol import sent_reader
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.layout import Layout, Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import Sent, decode, log_name, record_sent
from spark_txn_source.pulsar import batch
from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.stream import StreamReader

pytestmark = pytest.mark.pulsar

VALUE = StructType([StructField("value", BinaryType())])
VISIBLE_SECONDS = 30.0


@dataclass
class Place:
    """A topic with two segments, and the log in which writers record the rows of their transactions."""

    client: PulsarClient
    url: str
    topic: str

    def __post_init__(self) -> None:
        self.a, self.b = (one.name for one in self.client.layout(self.topic).active)
        self.log = self.client.layout(log_name(self.topic)).active[0].name

    def send(self, segment: str, value: str, txn: TxnId | None = None) -> Position:
        with Producer(self.client, segment) as producer:
            return producer.send([Message(value.encode())], txn)

    def transaction(self, name: str, *, recorded: bool = True, commit: bool = True) -> None:
        """Write one row into each segment in one transaction, and end the transaction. `recorded`: record these rows in the log
        before the end.
        """
        txn = self.client.begin(600_000)
        places = {segment: self.send(segment, f"{name}-{segment[-1]}", txn) for segment in (self.a, self.b)}
        if recorded:
            record_sent(self.client, self.log, Sent(txn, {segment: (at, at) for segment, at in places.items()}))
        self.client.end(txn, commit=commit)

    @property
    def options(self) -> dict[str, str]:
        return {"serviceUrl": self.url, "topic": self.topic, "startingOffsets": "earliest", "valueFormat": "binary"}

    def read(self) -> list[str]:
        """Return the rows of a batch read."""
        reader = BatchReader(self.options, VALUE)
        return values(reader, reader.partitions())

    def read_until(self, wanted: list[str]) -> None:
        """Repeat a batch read until it returns exactly these rows. The broker applies a commit a moment after it has answered."""
        deadline = time.monotonic() + VISIBLE_SECONDS
        while (found := sorted(self.read())) != wanted:
            assert time.monotonic() < deadline, found


def values(reader: BatchReader | StreamReader, partitions: object) -> list[str]:
    return [
        value.decode()
        for partition in partitions  # type: ignore[attr-defined]
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]


@pytest.fixture
def place(pulsar_broker: PulsarBroker) -> Iterator[Place]:
    topic = f"topic://public/default/whole-{uuid.uuid4().hex[:8]}"
    pulsar_broker.create(topic, 2)
    pulsar_broker.create(log_name(topic), 1)
    with PulsarClient(pulsar_broker.url) as client:
        yield Place(client, pulsar_broker.url, topic)


def test_a_batch_has_all_rows_of_a_transaction_or_none(place: Place) -> None:
    place.transaction("first")
    place.read_until(["first-0", "first-1"])
    other = place.client.begin(600_000)
    place.send(place.b, "other", other)
    place.transaction("second")
    place.send(place.a, "plain")
    for _ in range(3):
        assert sorted(place.read()) == ["first-0", "first-1"], "the second transaction is hidden in one segment"
    place.client.end(other, commit=False)
    place.read_until(["first-0", "first-1", "plain", "second-0", "second-1"])


def test_a_transaction_of_another_program_is_read_segment_by_segment(place: Place) -> None:
    """No writer has recorded the rows of this transaction, so a reader cannot know that it gets only some of them (docs/pulsar.md,
    What is not promised).
    """
    other = place.client.begin(600_000)
    place.send(place.b, "other", other)
    place.transaction("foreign", recorded=False)
    place.read_until(["foreign-0"])
    place.client.end(other, commit=True)
    place.read_until(["foreign-0", "foreign-1", "other"])


def test_an_aborted_transaction_holds_nothing_back(place: Place) -> None:
    """The row of the aborted transaction is the last one of segment B. Segment A has a later row, which is read."""
    place.transaction("first")
    place.transaction("gone", commit=False)
    place.send(place.a, "plain")
    place.read_until(["first-0", "first-1", "plain"])


def test_micro_batches_split_no_transaction(place: Place) -> None:
    """With a limit of one row, each micro-batch still has whole transactions."""
    for number in range(4):
        place.transaction(f"t{number}")
    place.read_until(sorted(f"t{number}-{segment}" for number in range(4) for segment in (0, 1)))
    reader = StreamReader(place.options | {"maxRowsPerTrigger": "1"}, VALUE)
    offset, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, ReadMaxRows(1))) != offset:
        batches.append(sorted(values(reader, reader.partitions(offset, end))))
        offset = end
    assert batches == [[f"t{number}-0", f"t{number}-1"] for number in range(4)]


def test_a_stream_waits_for_the_rest_of_a_transaction(place: Place) -> None:
    reader = StreamReader(place.options, VALUE)
    other = place.client.begin(600_000)
    place.send(place.b, "other", other)
    place.send(place.a, "plain")
    place.transaction("second")
    deadline = time.monotonic() + VISIBLE_SECONDS
    start = offset = reader.initialOffset()
    while (end := reader.latestOffset(offset, ReadAllAvailable())) == offset:
        assert time.monotonic() < deadline
    assert values(reader, reader.partitions(offset, end)) == ["plain"]
    place.client.end(other, commit=True)
    offset, found = end, []
    while len(found) < 3:
        assert time.monotonic() < deadline
        end = reader.latestOffset(offset, ReadAllAvailable())
        part = values(reader, reader.partitions(offset, end)) if end != offset else []
        assert ("second-0" in part) == ("second-1" in part), part
        found, offset = found + part, end
    assert sorted(found) == ["other", "second-0", "second-1"]
    assert start != offset


def end_of(reader: StreamReader, offset: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(offset, ReadAllAvailable())


def batches_until(reader: StreamReader, offset: dict[str, Any], count: int) -> list[list[str]]:
    """Return the rows of each micro-batch from `offset` on, until `count` rows were read."""
    deadline = time.monotonic() + VISIBLE_SECONDS
    found: list[list[str]] = []
    while sum(map(len, found)) < count:
        assert time.monotonic() < deadline, found
        end = end_of(reader, offset)
        if end != offset:
            found.append(values(reader, reader.partitions(offset, end)))
        offset = end
    return found


class Split(Place):
    """A topic with two segments, A and B, of which A can be split."""

    def split(self, broker: PulsarBroker) -> None:
        """Split segment A into A1 and A2."""
        broker.split(self.topic, 0)
        self.a1, self.a2 = (one.name for one in self.client.layout(self.topic).active if one.name != self.b)

    def sent(self, txn: TxnId, *places: tuple[str, Position], commit: bool = True) -> None:
        """Record the one row that the transaction has in each of these segments, and end the transaction."""
        record_sent(self.client, self.log, Sent(txn, {segment: (at, at) for segment, at in places}))
        self.client.end(txn, commit=commit)


@pytest.fixture
def split(place: Place) -> Split:
    return Split(place.client, place.url, place.topic)


def test_a_transaction_over_a_split_is_read_in_one_task(split: Split, pulsar_broker: PulsarBroker) -> None:
    """The transaction has rows in the parent, in a child and in another segment. The task reads the parent's row before the child's
    row.
    """
    txn = split.client.begin(600_000)
    parent, other = split.send(split.a, "parent", txn), split.send(split.b, "other", txn)
    split.split(pulsar_broker)
    child = split.send(split.a1, "child", txn)
    split.sent(txn, (split.a, parent), (split.a1, child), (split.b, other))
    split.send(split.a1, "later")
    split.read_until(["child", "later", "other", "parent"])
    reader = StreamReader(split.options, VALUE)
    first, second = batches_until(reader, reader.initialOffset(), 4)
    assert sorted(first) == ["child", "other", "parent"]
    assert first.index("parent") < first.index("child")
    assert second == ["later"], "a later micro-batch reads the child's other rows"


def test_transactions_that_cross_at_a_split_are_read_together(split: Split, pulsar_broker: PulsarBroker) -> None:
    """Transaction one has a row in A, and a row in B. Transaction two has a row in a child of A, and a row in B that precedes the
    row of transaction one there.
    """
    one = split.client.begin(600_000)
    parent = split.send(split.a, "one-a", one)
    split.split(pulsar_broker)
    two = split.client.begin(600_000)
    child, before = split.send(split.a1, "two-a1", two), split.send(split.b, "two-b", two)
    split.sent(two, (split.a1, child), (split.b, before))
    after = split.send(split.b, "one-b", one)
    split.sent(one, (split.a, parent), (split.b, after))
    split.read_until(["one-a", "one-b", "two-a1", "two-b"])
    reader = StreamReader(split.options, VALUE)
    (rows,) = batches_until(reader, reader.initialOffset(), 4)
    assert sorted(rows) == ["one-a", "one-b", "two-a1", "two-b"]


def test_a_child_is_not_read_while_its_parent_is_undecided(split: Split, pulsar_broker: PulsarBroker) -> None:
    other = split.client.begin(600_000)
    split.send(split.a, "held", other)
    split.send(split.a, "earlier")
    split.split(pulsar_broker)
    split.send(split.a1, "later")
    split.send(split.b, "beside")
    split.read_until(["beside"])
    split.client.end(other, commit=True)
    split.read_until(["beside", "earlier", "held", "later"])


def test_a_split_during_the_plan_of_a_batch_tears_nothing(
    split: Split, pulsar_broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan has read the layout, and then a transaction writes to a segment that was created afterwards. The batch has no row of
    this transaction.
    """
    real, calls = batch.layout, []

    def slow(client: PulsarClient, topic: str) -> Layout:
        found = real(client, topic)
        calls.append(found)
        if len(calls) == 1:
            split.split(pulsar_broker)
            txn = split.client.begin(600_000)
            child, other = split.send(split.a1, "child", txn), split.send(split.b, "other", txn)
            split.sent(txn, (split.a1, child), (split.b, other))
            visible = PulsarClient(split.url)
            with visible:
                assert Segment(visible, split.b).first_after(Position(other.ledger, other.entry - 1)).position == other
        return found

    monkeypatch.setattr(batch, "layout", slow)
    assert split.read() == []
    split.read_until(["child", "other"])


def test_rows_that_come_before_a_split_but_after_the_target_are_read_in_the_next_run(
    split: Split, pulsar_broker: PulsarBroker
) -> None:
    """`Trigger.AvailableNow` fixes its target. Then the segment gets a row and is split. This run does not read the row, the next
    run does.
    """
    split.send(split.a, "first")
    split.read_until(["first"])
    reader = StreamReader(split.options, VALUE)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    split.send(split.a, "second")
    split.split(pulsar_broker)
    split.send(split.a1, "third")
    end = end_of(reader, start)
    assert values(reader, reader.partitions(start, end)) == ["first"]
    assert end_of(reader, end) == end
    again = StreamReader(split.options, VALUE)
    assert batches_until(again, end, 2) == [["second"], ["third"]]


def test_the_log_of_writers_may_be_split_and_merged(split: Split, pulsar_broker: PulsarBroker) -> None:
    other = split.client.begin(600_000)
    split.send(split.b, "other", other)
    split.transaction("first")
    reader = StreamReader(split.options, VALUE)
    start = reader.initialOffset()
    name = log_name(split.topic)
    for change in ("split", "merge"):
        if change == "split":
            pulsar_broker.split(name, 0)
        else:
            pulsar_broker.merge(name, 1, 2)
        split.log = split.client.layout(name).active[0].name
        split.transaction(change)
        for _ in range(2):
            assert split.read() == [], "all transactions are hidden in segment B"
            assert values(reader, reader.partitions(start, end_of(reader, start))) == []
    split.client.end(other, commit=False)
    rows = ["first-0", "first-1", "merge-0", "merge-1", "split-0", "split-1"]
    split.read_until(rows)
    assert sorted(itertools.chain(*batches_until(reader, start, 6))) == rows


def test_times_split_no_transaction(place: Place) -> None:
    """The transaction has a row in A from before the time, and a row in B from after the time. A batch up to the time has neither
    row. A read from the next millisecond on has both.
    """
    place.send(place.a, "before")
    txn = place.client.begin(600_000)
    first = place.send(place.a, "txn-a", txn)
    middle = int(time.time() * 1000) + 1
    while int(time.time() * 1000) <= middle:
        place.client.layout(place.topic)
    second = place.send(place.b, "txn-b", txn)
    record_sent(place.client, place.log, Sent(txn, {place.a: (first, first), place.b: (second, second)}))
    place.client.end(txn, commit=True)
    place.send(place.b, "after")
    place.read_until(["after", "before", "txn-a", "txn-b"])
    early = place.options | {"endingTimestamp": str(middle)}
    late = {key: value for key, value in place.options.items() if key != "startingOffsets"} | {"startingTimestamp": str(middle + 1)}
    reader = BatchReader(early, VALUE)
    assert values(reader, reader.partitions()) == ["before"]
    reader = BatchReader(late, VALUE)
    assert sorted(values(reader, reader.partitions())) == ["after", "txn-a", "txn-b"]
    stream = StreamReader(late, VALUE)
    assert sorted(itertools.chain(*batches_until(stream, stream.initialOffset(), 3))) == ["after", "txn-a", "txn-b"]


def test_a_stream_that_starts_again_reads_the_log_of_writers_from_its_offset(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        place.transaction(f"t{number}")
    place.read_until(sorted(f"t{number}-{segment}" for number in range(3) for segment in (0, 1)))
    first = StreamReader(place.options, VALUE)
    offset = end_of(first, first.initialOffset())
    place.transaction("new")
    place.read_until(sorted([f"t{number}-{segment}" for number in range(3) for segment in (0, 1)] + ["new-0", "new-1"]))
    seen: list[Sent | None] = []

    def decoded(data: bytes, log: str) -> Sent | None:
        seen.append(decode(data, log))
        return seen[-1]

    monkeypatch.setattr(sent_reader, "decode", decoded)
    again = StreamReader(place.options, VALUE)
    assert sorted(itertools.chain(*batches_until(again, offset, 2))) == ["new-0", "new-1"]
    assert len(seen) == 1, "the records before the offset are not read again"


def test_an_offset_of_another_cluster_is_refused(place: Place) -> None:
    """The positions in such an offset lie after the last entry. Without the error, a stream would wait for ever for the entries at
    these positions.
    """
    place.send(place.a, "row")
    place.read_until(["row"])
    reader = StreamReader(place.options, VALUE)
    strange = {"topic": place.topic, "epoch": 0, "segments": {place.a: "999999:3"}}
    with pytest.raises(OffsetOutOfRange, match=r"starts after 999999:3, but the last entry"):
        end_of(reader, strange)
    with pytest.raises(OffsetOutOfRange, match=r"starts after 999999:3"):
        BatchReader(place.options | {"startingOffsets": json.dumps(strange)}, VALUE).partitions()
