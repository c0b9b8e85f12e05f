"""Cuts by the metadata records of a real broker (option `metadataUrl`). No cut is after an undecided entry, not even after a crash
of the broker.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import ConfigurationError
from metadata.common.service import parse_service_url
from metadata.records import paths
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Cut, Segment
from pulsar_protocol.layout import EARLIEST, Position
from spark_txn_source.pulsar.places import Places
from spark_txn_source.pulsar.watermarks import RecordedCuts, recorded_cuts
from tests.support.pulsar_topics import Topic, new_topic

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> Iterator[Topic]:
    with new_topic(pulsar_broker, 1) as found:
        yield found


@pytest.fixture
def recorded(pulsar_broker: PulsarBroker) -> Iterator[RecordedCuts]:
    with recorded_cuts(parse_service_url("metadataUrl", pulsar_broker.metadata_url)) as found:
        assert found is not None
        yield found


def by_records(topic: Topic, recorded: RecordedCuts, number: int = 0) -> Cut:
    segments = topic.client.layout(topic.name).segments
    return Places(topic.client, topic.name, recorded).cuts(segments.values())[segments[number].name]


def by_probes(topic: Topic, number: int = 0) -> Cut:
    return Segment(topic.client, topic.segment(number)).cut()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition is true. The broker applies a request a moment after it has answered the request."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def reaches(topic: Topic, recorded: RecordedCuts, position: Position) -> None:
    until(lambda: by_records(topic, recorded).position == position)


def test_plain_entries_are_decided(topic: Topic, recorded: RecordedCuts) -> None:
    assert by_records(topic, recorded) == by_probes(topic)
    first, second = topic.send(topic.segment(), [1]), topic.send(topic.segment(), [2])
    assert first < second
    reaches(topic, recorded, second)
    assert by_records(topic, recorded) == by_probes(topic) == Cut(second, second, True, False)


def test_an_open_transaction_holds_the_cut_until_it_ends(topic: Topic, recorded: RecordedCuts) -> None:
    before = topic.send(topic.segment(), [1])
    reaches(topic, recorded, before)
    txn = topic.client.begin(600_000)
    topic.send(topic.segment(), [2], txn)
    last = topic.send(topic.segment(), [3])
    assert by_records(topic, recorded) == Cut(before, before, False, False)
    topic.client.end(txn, commit=True)
    reaches(topic, recorded, last)


def test_the_cut_is_an_entry_that_is_read(topic: Topic, recorded: RecordedCuts) -> None:
    """The watermark is at the entry of an aborted transaction, which no reader gets. So the cut is at the entry before it."""
    before = topic.send(topic.segment(), [1])
    txn = topic.client.begin(600_000)
    last = topic.send(topic.segment(), [2], txn)
    topic.client.end(txn, commit=False)
    until(lambda: by_records(topic, recorded).whole)
    assert by_records(topic, recorded) == Cut(before, last, True, False)


def test_a_segment_whose_entries_are_all_aborted_has_nothing_to_read(topic: Topic, recorded: RecordedCuts) -> None:
    txn = topic.client.begin(600_000)
    last = topic.send(topic.segment(), [1], txn)
    assert by_records(topic, recorded) == Cut(EARLIEST, EARLIEST, False, False)
    topic.client.end(txn, commit=False)
    until(lambda: by_records(topic, recorded).whole)
    assert by_records(topic, recorded) == Cut(EARLIEST, last, True, False)


class Model:
    """One segment of a real broker, and a record of all entries that the test has sent to it, with their transactions."""

    def __init__(self, topic: Topic, seed: int) -> None:
        self._topic, self._random = topic, random.Random(seed)
        self._open: list[TxnId] = []
        self._entries: list[tuple[Position, TxnId | None]] = []
        self._aborted: set[TxnId] = set()

    def step(self) -> None:
        match self._random.choice(["plain", "begin", "send", "send", "commit", "abort", "unload"]):
            case "begin" if len(self._open) < 3:
                self._open.append(self._topic.client.begin(600_000))
            case "send" if self._open:
                txn = self._random.choice(self._open)
                self._entries.append((self._topic.send(self._topic.segment(), [0], txn), txn))
            case "commit" | "abort" as how if self._open:
                self.end(self._random.choice(self._open), how)
            case "unload" if self._random.random() < 0.2:
                self._topic.unload("namespaces/public/default")
            case _:
                self._entries.append((self._topic.send(self._topic.segment(), [0]), None))

    def end(self, txn: TxnId, how: str) -> None:
        self._topic.client.end(txn, commit=how == "commit")
        self._open.remove(txn)
        if how == "abort":
            self._aborted.add(txn)

    def end_all(self) -> None:
        for txn in [*self._open]:
            self.end(txn, "commit")

    def truth(self) -> Position:
        """Return the position of the last entry that readers get and that has no undecided entry before it."""
        found = EARLIEST
        for position, txn in self._entries:
            if txn in self._open:
                break
            if txn not in self._aborted:
                found = position
        return found


@pytest.mark.parametrize("seed", range(4))
def test_the_cut_is_never_after_an_undecided_entry_and_reaches_the_end(topic: Topic, recorded: RecordedCuts, seed: int) -> None:
    model = Model(topic, seed)
    for _ in range(25):
        model.step()
        assert by_records(topic, recorded).position <= model.truth()
    model.end_all()
    reaches(topic, recorded, model.truth())
    assert by_probes(topic).position == model.truth()


@contextmanager
def after_crash(topic: Topic) -> Iterator[Topic]:
    """Kill the broker and start it again. Yield the topic with a new client."""
    topic.broker.kill()
    topic.broker.start()
    with PulsarClient(topic.broker.url) as client:
        yield Topic(topic.broker, client, topic.name)


def test_rows_that_the_broker_shows_by_mistake_after_its_crash_are_not_read(
    pulsar_broker: PulsarBroker, topic: Topic, recorded: RecordedCuts
) -> None:
    """The segment has no watermark record. After a crash the broker 5.0.0-M1 then delivers the rows of an open transaction. Probes
    cannot detect this fault. The metadata records show it, so a read with `metadataUrl` does not have these rows.
    """
    txn = topic.client.begin(600_000)
    dirty = topic.send(topic.segment(), [1], txn)
    with after_crash(topic) as again:
        assert by_probes(again).position == dirty, "the fault of the broker"
        assert by_records(again, recorded).position == EARLIEST
        plain = again.send(again.segment(), [2])
        until(lambda: record(again) == dirty)
        assert (again.rows(), again.rows(metadataUrl=pulsar_broker.metadata_url)) == ([1], [])
        again.client.end(txn, commit=False)
        reaches(again, recorded, plain)
        assert again.rows(metadataUrl=pulsar_broker.metadata_url) == [2]


def test_a_proven_watermark_is_the_cut_after_a_crash(pulsar_broker: PulsarBroker, topic: Topic, recorded: RecordedCuts) -> None:
    """In about 1 of 15 runs the broker itself delivered the row of the open transaction after its crash, and had set its watermark
    record beyond this row. The test accepts such a run.
    """
    before = topic.send(topic.segment(), [1])
    reaches(topic, recorded, before)
    txn = topic.client.begin(600_000)
    topic.send(topic.segment(), [2], txn)
    with after_crash(topic) as again:
        last = again.send(again.segment(), [3])
        found, shown = by_records(again, recorded).position, by_probes(again).position
        assert found <= shown
        assert found == before or shown == last, "only a broker that shows the row of the open transaction moves the record"
        again.client.end(txn, commit=True)
        reaches(again, recorded, last)


def test_a_watermark_that_lags_after_a_crash_hides_nothing(
    pulsar_broker: PulsarBroker, topic: Topic, recorded: RecordedCuts
) -> None:
    """The test sets the watermark record back by one entry. The record is then as if the broker had been killed after it answered a
    sender and before it wrote the record again.
    """
    first = topic.send(topic.segment(), [1])
    reaches(topic, recorded, first)
    last = topic.send(topic.segment(), [2])
    reaches(topic, recorded, last)
    pulsar_broker.kill()
    store = KazooClient(pulsar_broker.zookeeper.hosts)
    store.start()
    try:
        value = json.dumps({"ledgerId": first.ledger, "entryId": first.entry}, separators=(",", ":")).encode()
        store.set(paths.watermark(f"{topic.name.replace('topic:', 'segment:')}/0000-ffff-0").path, value)
    finally:
        store.stop()
        store.close()
    with after_crash(topic) as again:
        assert record(again) == first
        assert by_records(again, recorded) == Cut(last, last, True, False)


def test_a_stream_reads_whole_sealed_segments_and_their_children(pulsar_broker: PulsarBroker, topic: Topic) -> None:
    stream = topic.stream(startingOffsets="earliest", metadataUrl=pulsar_broker.metadata_url)
    txn = topic.client.begin(600_000)
    topic.send(topic.segment(), [1])
    topic.send(topic.segment(), [2], txn)
    until(lambda: bool(stream.batch()) or len(stream.ends) > 0)
    topic.split(0)
    topic.send(topic.segment(1), [3])
    assert stream.batch() == []
    topic.client.end(txn, commit=False)
    rows: list[int] = []
    until(lambda: bool(rows.extend(stream.batch()) or rows))
    assert rows == [3]
    stream.reader.stop()


def test_the_store_of_another_cluster_is_refused(pulsar_broker: PulsarBroker, topic: Topic) -> None:
    with pytest.raises(ConfigurationError, match="not in this store") as raised:
        topic.rows(metadataUrl=f"{pulsar_broker.metadata_url}other")
    assert "metadataStoreUrl" in raised.value.advice


def record(topic: Topic) -> Position | None:
    """Return the watermark that the store has now."""
    store = KazooClient(topic.broker.zookeeper.hosts)
    store.start()
    try:
        path = paths.watermark(topic.segment()).path
        fields = json.loads(store.get(path)[0]) if store.exists(path) else None
        return fields and Position(fields["ledgerId"], fields["entryId"])
    finally:
        store.stop()
        store.close()
