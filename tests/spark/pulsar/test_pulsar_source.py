"""The source on a real Pulsar broker. The tests call the readers as Spark calls them, but without Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import DataLoss, OffsetOutOfRange
from pulsar_protocol import cut
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import TopicMissing
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.subscription import all_but
from spark_txn_source.pulsar import places
from tests.support.pulsar_topics import Topic, new_topic

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> Iterator[Topic]:
    with new_topic(pulsar_broker) as found:
        yield found


@pytest.fixture
def wide(pulsar_broker: PulsarBroker) -> Iterator[Topic]:
    """A topic of two segments."""
    with new_topic(pulsar_broker, 2) as found:
        yield found


# --- batches ------------------------------------------------------------------------------------------------------


def test_a_batch_reads_committed_rows_of_all_segments(wide: Topic) -> None:
    wide.send(wide.segment(0), [1, 2, 3])
    wide.send(wide.segment(1), range(10, 20), compression="zstd")
    txn = wide.client.begin(600_000)
    wide.send(wide.segment(0), [4, 5], txn, "lz4")
    last = wide.send(wide.segment(1), [6], txn)
    wide.client.end(txn, commit=True)
    wide.decided(wide.segment(1), last)
    assert sorted(wide.rows()) == [1, 2, 3, 4, 5, 6, *range(10, 20)]


def test_rows_after_an_open_transaction_wait_and_aborted_rows_are_never_read(topic: Topic) -> None:
    one = topic.segment()
    topic.send(one, [1])
    txn = topic.client.begin(600_000)
    topic.send(one, [2], txn)
    last = topic.send(one, [3])
    assert topic.rows() == [1]
    topic.client.end(txn, commit=False)
    topic.decided(one, last)
    assert topic.rows() == [1, 3]


def test_a_message_in_chunks_is_one_row_of_the_batch_that_has_its_last_chunk(topic: Topic) -> None:
    one = topic.segment()
    before = topic.send(one, [1])
    with Producer(topic.client, one) as producer:
        last = producer.send_chunks(Message(b"0" * 500 + b"2"), 100)
    topic.send(one, [3])
    assert last.entry > before.entry + 1, "the message has several entries"
    inside = json.dumps({"segments": {one: Position(last.ledger, last.entry - 1).text}})
    assert topic.rows() == [1, 2, 3]
    assert topic.rows(endingOffsets=inside) == [1]
    assert topic.rows(startingOffsets=inside) == [2, 3]


def test_an_empty_topic_has_no_rows(wide: Topic) -> None:
    assert wide.rows() == []


def test_a_batch_has_the_start_and_the_end_that_its_options_give(topic: Topic) -> None:
    one = topic.segment()
    places = [topic.send(one, [number]) for number in range(10)]

    def at(number: int) -> str:
        return json.dumps({"segments": {one: places[number].text}})

    assert topic.rows(startingOffsets=at(6)) == [7, 8, 9]
    assert topic.rows(endingOffsets=at(2)) == [0, 1, 2]
    assert topic.rows(startingOffsets=at(2), endingOffsets=at(5)) == [3, 4, 5]
    assert topic.rows(startingOffsets="latest") == []
    beyond = json.dumps({"segments": {one: Position(places[9].ledger, 10).text}})
    with pytest.raises(OffsetOutOfRange, match="is not decided"):
        topic.rows(endingOffsets=beyond)


@pytest.fixture
def slow_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers each probe, but later than the search for a cut waits."""
    take = cut.Probe.take
    slow = cut.ANSWER_SECONDS / 2
    monkeypatch.setattr(cut.Probe, "take", lambda probe, seconds: seconds >= slow and take(probe, seconds))


def test_a_batch_from_a_broker_that_answers_slowly_has_all_rows(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each probe reaches the broker later than a stream waits, and sooner than a batch waits."""
    one = topic.segment()
    for number in range(4):
        topic.send(one, [number])
    ask = cut.Probe.ask

    def late(probe: cut.Probe) -> cut.Probe:
        threading.Timer(1.5 * cut.PATIENCE_SECONDS, ask, [probe]).start()
        return probe

    monkeypatch.setattr(cut.Probe, "ask", late)
    assert topic.rows() == [0, 1, 2, 3]
    stream = topic.stream(startingOffsets="earliest")
    stream.reader.prepareForTriggerAvailableNow()
    assert list(stream.batches()) == [[0, 1, 2, 3]]


@pytest.mark.usefixtures("slow_probes")
def test_an_end_that_is_decided_is_accepted_if_the_broker_was_too_slow_to_show_it_to_the_cut(topic: Topic) -> None:
    one = topic.segment()
    sent, times = [], []
    for number in range(4):
        times.append(int(time.time() * 1000))
        sent.append(topic.send(one, [number]))
        sent_by = time.time() * 1000
        while time.time() * 1000 < sent_by + 1:
            time.sleep(0.001)  # the next entry needs a later publish time
    end = json.dumps({"segments": {one: sent[2].text}})
    assert topic.rows(endingOffsets=end) == [0, 1, 2]
    assert topic.rows(endingOffsets=end, startingTimestamp=str(times[1])) == [1, 2], "the start is not below the time"


def test_an_end_in_an_open_transaction_is_refused(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    one = topic.segment()
    txn = topic.client.begin(600_000)
    last = topic.send(one, [1], txn)
    end = json.dumps({"segments": {one: last.text}})
    with monkeypatch.context() as patched:
        patched.setattr(places, "ANSWER_SECONDS", 0.5)
        with pytest.raises(OffsetOutOfRange, match="is not decided"):
            topic.rows(endingOffsets=end)
    topic.client.end(txn, commit=True)
    topic.decided(one, last)
    assert topic.rows(endingOffsets=end) == [1]


def test_a_batch_starts_and_ends_at_publish_times(topic: Topic) -> None:
    one = topic.segment()
    times = []
    for number in range(6):
        place = topic.send(one, [number])
        times.append(Segment(topic.client, one).first_after(Position(place.ledger, place.entry - 1)).publish_ms)
        while time.time() * 1000 <= times[-1] + 1:
            time.sleep(0.001)  # the next entry needs a later publish time
    assert topic.rows(startingTimestamp=str(times[3])) == [3, 4, 5]
    assert topic.rows(endingTimestamp=str(times[3])) == [0, 1, 2, 3]
    assert topic.rows(startingTimestamp=str(times[1]), endingTimestamp=str(times[4] - 1)) == [1, 2, 3]
    assert topic.rows(startingTimestamp=str(times[5] + 1)) == []


def test_a_topic_that_does_not_exist_is_named(topic: Topic) -> None:
    topic.name += "x"
    with pytest.raises(TopicMissing, match=topic.name):
        topic.rows()


# --- the cut ------------------------------------------------------------------------------------------------------


def test_the_cut_is_below_the_first_open_entry(topic: Topic) -> None:
    name = topic.segment()
    segment = Segment(topic.client, name)
    assert segment.cut().position == EARLIEST
    plain = [topic.send(name, [number]) for number in range(40)]
    assert segment.cut().position == plain[-1]
    txn = topic.client.begin(600_000)
    hidden = topic.send(name, [1], txn)
    last = [topic.send(name, [number]) for number in range(40)][-1]
    for floor in (EARLIEST, plain[3], plain[-1]):
        found = segment.cut(floor)
        assert (found.position, found.last, found.whole) == (plain[-1], last, False)
    topic.client.end(txn, commit=True)
    topic.decided(name, hidden)
    assert segment.cut().position == last
    assert segment.cut(plain[-1]).whole


def test_a_sealed_segment_is_whole_when_its_last_transactions_are_aborted(topic: Topic) -> None:
    name = topic.segment()
    segment = Segment(topic.client, name)
    last = topic.send(name, [1])
    txn = topic.client.begin(600_000)
    topic.send(name, [2], txn)
    topic.split()
    assert not segment.cut(sealed=True).whole, "a transaction is open"
    topic.client.end(txn, commit=False)
    deadline = time.monotonic() + 20
    while not (found := segment.cut(sealed=True)).whole:
        assert time.monotonic() < deadline
    assert found.position == last


# --- streams ------------------------------------------------------------------------------------------------------


def test_a_stream_reads_each_row_once(wide: Topic) -> None:
    stream = wide.stream(startingOffsets="earliest")
    wide.send(wide.segment(0), [1, 2])
    wide.send(wide.segment(1), [3])
    assert sorted(stream.batch()) == [1, 2, 3]
    assert stream.batch() == []
    wide.send(wide.segment(1), [4])
    assert stream.batch() == [4]


def test_a_stream_starts_at_the_end_unless_told_otherwise(topic: Topic) -> None:
    topic.send(topic.segment(), [1])
    stream = topic.stream()
    assert stream.batch() == []
    topic.send(topic.segment(), [2])
    assert stream.batch() == [2]


def test_a_stream_waits_for_open_transactions(topic: Topic) -> None:
    one, stream = topic.segment(), topic.stream(startingOffsets="earliest")
    topic.send(one, [1])
    txn = topic.client.begin(600_000)
    last = topic.send(one, [2], txn)
    topic.send(one, [3])
    assert stream.batch() == [1]
    assert stream.batch() == []
    topic.client.end(txn, commit=True)
    topic.decided(one, last)
    assert stream.batch() == [2, 3]


def test_children_are_read_after_their_parent(topic: Topic) -> None:
    stream = topic.stream(startingOffsets="earliest")
    parent = topic.segment()
    topic.send(parent, [1])
    txn = topic.client.begin(600_000)
    last = topic.send(parent, [2], txn)
    topic.split()
    topic.send(topic.segment(1), [3])
    topic.send(topic.segment(2), [4])
    assert stream.batch() == [1]
    assert stream.batch() == [], "an open transaction holds the parent back, and the parent its children"
    topic.client.end(txn, commit=True)
    topic.decided(parent, last)
    assert stream.batch() == [2]
    assert sorted(stream.batch()) == [3, 4]
    assert stream.batch() == []
    assert stream.ends[-1]["ended"] == [parent]


def test_a_stream_with_a_limit_reads_everything_in_several_batches(wide: Topic) -> None:
    for number in range(10):
        wide.send(wide.segment(number % 2), range(number * 10, number * 10 + 10))
    stream = wide.stream(startingOffsets="earliest", maxRowsPerTrigger="40")
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(40)
    batches = list(stream.batches(ReadMaxRows(40)))
    assert [len(one) for one in batches] == [40, 40, 20]
    assert sorted(number for one in batches for number in one) == list(range(100))


def test_the_same_offsets_give_the_same_rows(wide: Topic) -> None:
    for number in range(6):
        wide.send(wide.segment(number % 2), range(number * 5, number * 5 + 5))
    stream = wide.stream(startingOffsets="earliest", maxRowsPerTrigger="10")
    first = stream.reader.initialOffset()
    batches = list(stream.batches(ReadMaxRows(10)))
    wide.send(wide.segment(0), [1000])
    again = wide.stream(startingOffsets="earliest")
    starts = [first, *stream.ends]
    assert [again.read(start, end) for start, end in zip(starts, stream.ends, strict=False)] == batches


def test_a_replay_of_the_first_batch_starts_where_it_was_planned(topic: Topic) -> None:
    one = topic.segment()
    topic.send(one, [1])
    stream = topic.stream()
    start = stream.reader.initialOffset()
    topic.send(one, [2])
    end = stream.reader.latestOffset(start, ReadMaxRows(100))
    topic.send(one, [3])
    again = topic.stream()
    assert again.read(again.reader.initialOffset(), end) == [2]


def test_available_now_ends_at_the_rows_of_its_start(topic: Topic) -> None:
    one = topic.segment()
    for number in range(5):
        topic.send(one, [number])
    stream = topic.stream(startingOffsets="earliest", maxRowsPerTrigger="2")
    stream.reader.prepareForTriggerAvailableNow()
    topic.send(one, [99])
    assert list(stream.batches(ReadMaxRows(2))) == [[0, 1], [2, 3], [4]]


def cursor(topic: Topic, segment: str, name: str) -> Position:
    """Return the last acknowledged position of a durable subscription."""
    channel = topic.client.broker_of(segment)
    number = channel.add("consumer", lambda event: None)
    channel.ask("subscribe", topic=segment, subscription=name, sub_type=2, consumer_id=number, durable=True)
    found = channel.ask("get_last_message_id", consumer_id=number).consumer_mark_delete_position
    channel.ask("close_consumer", consumer_id=number)
    channel.remove("consumer", number)
    entry = found.entry_id
    return Position(found.ledger_id, entry - (1 << 64) if entry >> 63 else entry)


def test_a_subscription_follows_the_batches_one_entry_behind(topic: Topic) -> None:
    """The cursor of a segment that was read to its end is at its last entry."""
    parent = topic.segment()
    first = topic.send(parent, [1])
    stream = topic.stream(startingOffsets="earliest", subscription="kept")
    assert stream.batch() == [1]
    assert cursor(topic, parent, "kept") == all_but(first)
    second = topic.send(parent, [2])
    assert cursor(topic, parent, "kept") == all_but(first)
    topic.split()
    topic.send(topic.segment(1), [3])
    assert cursor(topic, topic.segment(1), "kept").entry == -1, "the controller gave the child a cursor at its beginning"
    assert stream.batch() == [2]
    assert cursor(topic, parent, "kept") == second
    assert stream.batch() == [3]
    stream.reader.stop()
    again = topic.stream(startingOffsets="earliest", subscription="kept")
    again.ends = stream.ends
    last = topic.send(topic.segment(2), [4])
    assert again.batch() == [4]
    assert cursor(topic, topic.segment(2), "kept") == all_but(last)
    again.reader.stop()


# --- persistent topics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_persistent_topic_is_read(topic: Topic, partitions: int) -> None:
    name = topic.name.replace("topic://", "persistent://") + f"-{partitions}"
    path = name.replace("://", "/")
    topic.broker.rest("PUT", f"{path}/partitions" if partitions else path, partitions or None)
    topic.name = name
    parts = [f"{name}-partition-{number}" for number in range(partitions)] or [name]
    stream = topic.stream(startingOffsets="earliest", subscription="kept")
    last = [topic.send(part, [number]) for number, part in enumerate(parts)]
    assert sorted(topic.rows()) == list(range(len(parts)))
    assert sorted(stream.batch()) == list(range(len(parts)))
    assert [cursor(topic, part, "kept") for part in parts] == [all_but(place) for place in last]
    topic.send(parts[-1], [9])
    assert stream.batch() == [9]
    stream.reader.stop()


def test_the_cut_of_several_ledgers(topic: Topic) -> None:
    """Each unload of a topic begins a new ledger."""
    topic.name = name = topic.name.replace("topic://", "persistent://")
    path = name.replace("://", "/")
    topic.broker.rest("PUT", path)
    segment = Segment(topic.client, name)
    stream = topic.stream(startingOffsets="earliest", maxRowsPerTrigger="2")
    last = [topic.send(name, [number]) for number in range(5)]
    for first in (5, 10):
        topic.unload(path)
        assert segment.cut().position == last[-1], "the new ledger has no entry"
        last += [topic.send(name, [number]) for number in range(first, first + 5)]
    assert len({one.ledger for one in last}) == 3
    txn = topic.client.begin(600_000)
    topic.send(name, [100], txn)
    topic.send(name, [101])
    for floor in (EARLIEST, last[2], last[7], last[-1]):
        found = segment.cut(floor)
        assert (found.position, found.whole) == (last[-1], False)
    assert topic.rows() == list(range(15))
    assert [number for one in stream.batches(ReadMaxRows(2)) for number in one] == list(range(15))


# --- losses -------------------------------------------------------------------------------------------------------


def test_an_offset_below_the_first_kept_position_is_data_loss(topic: Topic) -> None:
    one = topic.segment()
    ledger = topic.send(one, [1]).ledger
    lost = json.dumps({"segments": {one: f"{ledger - 1}:7"}})
    with pytest.raises(DataLoss, match=f"{one}.*after {ledger - 1}:7.*{ledger}:0"):
        topic.rows(startingOffsets=lost)
    assert topic.rows(startingOffsets=lost, failOnDataLoss="false") == [1]
    with pytest.raises(DataLoss, match=one):
        topic.stream(startingOffsets=lost).batch()
