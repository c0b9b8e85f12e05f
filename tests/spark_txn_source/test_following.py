"""Following of topics. A commit at any moment is in the reading, or wakes the reader that waits (protocol.md section 3)."""

from __future__ import annotations

import pytest

from conformance.simulator.store.wakes import Watches
from metadata.client.client import Client
from metadata.read.log_reader import ClusterLog
from metadata.read.reading import LogSelection, Reading
from metadata.records.names import topic_name
from spark_txn_source.following import Following
from tests.support.bench import At, Bench, T, each_step


def at_once() -> Watches:
    """Return watches without a delay: the write that changes a watched record wakes the reader before the write returns."""
    return Watches(delays=lambda: (0,), later=lambda wake, _: wake())


def following(party: Client) -> Following[Reading]:
    return Following(ClusterLog(party.buffer, LogSelection((T,))))


@pytest.mark.parametrize("split", [False, True], ids=["first reading", "first reading of new segments"])
def test_a_commit_between_a_reading_and_its_watches_wakes_the_reader(split: bool) -> None:
    """A transaction is committed at each step of a reading. If the reading lacks the transaction, the commit wakes the reader."""

    def run(gate: At) -> None:
        bench, wakes = Bench(), at_once()
        steps, gate.k = gate.k, -1
        reader = following(bench.party(gate, wakes))
        if split:
            reader.read()
            bench.party(wakes=wakes).topics.split(topic_name(T), 0)
        numbers = []

        def meanwhile() -> None:
            numbers.append(bench.party(wakes=wakes).coordinator.commit(bench.work(topics=(T,))).number)

        gate.meanwhile, gate.k = meanwhile, gate.steps + steps
        cut = reader.read().cut
        if numbers and (numbers[0] is None or cut < numbers[0]):
            assert reader.wait(0), f"{gate.hit}: nothing would wake the reader"
            assert reader.read().cut == numbers[0]
        reader.close()

    assert len(list(each_step(run, At))) >= 3


def test_a_sealed_segment_is_watched_only_while_it_may_hold_open_transactions() -> None:
    """A topic that was split and merged many times has mostly sealed segments. Without open transactions they need no watch."""
    bench, wakes = Bench(), at_once()
    party = bench.party(wakes=wakes)
    reader = following(party)
    reader.read()
    before = len(reader._watches)
    for _ in range(5):
        newest = max(party.topics.get(topic_name(T)).active(), key=lambda s: s.segment_id).segment_id
        party.topics.split(topic_name(T), newest)
    party.coordinator.commit(bench.work(topics=(T,)))
    assert reader.wait(0)
    reading = reader.read()
    assert len(reading.segments) == before - 1 + 10
    assert len(reader._watches) == before + 5
    reader.close()
