"""Following of topics. A commit at any moment is in the reading, or wakes the reader that waits (protocol.md section 3)."""

from __future__ import annotations

import pytest

from conformance.simulator.store.wakes import Watches
from metadata.client.client import Client
from metadata.read.log_reader import ClusterLog
from metadata.read.reading import LogSelection, Reading
from metadata.read.selection import Topics
from metadata.records.names import topic_name
from spark_txn_source.following import IDLE_SECONDS, REST_SECONDS, Following, FollowingLogs
from tests.support.bench import At, Bench, T, U, each_step


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


def test_an_idle_stream_rests_until_a_commit_to_its_topic() -> None:
    """Spark asks a stream a hundred times a second. Each answer is a write of a ZooKeeper ensemble, so an idle stream rests."""
    bench, wakes = Bench(), at_once()
    followed = FollowingLogs(bench.party(wakes=wakes), Topics((topic_name(T),)))

    def rested() -> bool:
        began = bench.clock.now
        followed.rest()
        followed.read()
        return bench.clock.now - began >= 900 * REST_SECONDS

    def idle() -> None:
        bench.clock.now += int(IDLE_SECONDS * 1000)
        followed.rest()
        followed.read()

    assert not rested(), "the stream has just begun"
    idle()
    assert rested()
    bench.party(wakes=wakes).coordinator.commit(bench.work(topics=(U,)))
    assert rested(), "a commit to another topic wakes no stream"
    bench.party(wakes=wakes).coordinator.commit(bench.work(version=2, topics=(T,)))
    assert not rested()
    followed.news()
    assert not rested(), "a stream that had news is not idle"
    idle()
    assert rested()
    followed.close()


def test_a_commit_to_another_topic_costs_a_poll_no_full_reading() -> None:
    bench, gate = Bench(), At(-1, kinds=At(-1).kinds)
    reader = following(bench.party(gate))
    other = bench.party()

    def steps() -> int:
        before = gate.steps
        seen = reader.read()
        assert seen is reader.read(), "the kept reading"
        return gate.steps - before

    reader.read()
    reader.read()
    alone = steps()
    other.coordinator.commit(bench.work(topics=(U,)))
    assert steps() == alone + 1, "the body of the registration"
    assert steps() == alone
    before = reader.read()
    other.topics.split(topic_name(U), 0)
    assert reader.read() is not before, "a seal may be of any segment"
    before = reader.read()
    number = other.coordinator.commit(bench.work(version=2, topics=(T,))).number
    assert reader.read().cut == number
    reader.close()


def test_a_registration_that_was_folded_unseen_makes_a_full_reading() -> None:
    bench = Bench()
    reader, other = following(bench.party()), bench.party()
    reader.read()
    reader.read()  # the first one woke the reader when it set the watches
    numbers = [other.coordinator.commit(bench.work(version=n, topics=(topic,))).number for n, topic in enumerate((T, U))]
    other.sweeper.sweep()
    assert [e.number for e in other.buffer.log.list(bench.party().cluster.store.view()).entries] == numbers[1:], "the newest stays"
    assert reader.read().cut == numbers[1]
    reader.close()
