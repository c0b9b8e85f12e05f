"""Tailing of persistent topics: an idle poll costs one round trip, and no change is missed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metadata.client.client import Client, client
from metadata.common.errors import TopicNotFound
from metadata.instream.client import InStream
from metadata.instream.migrating import Migrator
from metadata.read.selection import Pattern, Topics
from metadata.records.names import PersistentName, topic_name
from spark_txn_source.following import FollowingLogs
from tests.support.bench import PERSISTENT, At, Bench

T, U = PERSISTENT

Y = topic_name("topic://public/default/y")
STEPS = At(-1).kinds


class Followed:
    """A stream's process and another process, which changes the topics. The stream has no wake-ups, and its time never changes."""

    def __init__(self) -> None:
        self.bench, self.gate = Bench(topics=PERSISTENT), At(-1, kinds=STEPS)
        self.other: InStream = self.bench.instream()
        self.client: Client = client(self.bench.instream(self.gate).cluster)
        self.topics = FollowingLogs(self.client, Topics((T, U)))

    def poll(self) -> tuple[int, dict[str, int]]:
        """Return the number of round trips of a poll, and the cut of each topic."""
        before = self.gate.steps
        found = self.topics.read()
        return self.gate.steps - before, {one.log: one.cut for one in found}

    def settle(self) -> None:
        for _ in range(2):  # the first reading sets the watches; the second finds changes from before they were set
            self.poll()


@pytest.fixture
def followed() -> Iterator[Followed]:
    found = Followed()
    yield found
    found.topics.close()
    found.client.close()


def test_a_terminated_topic_costs_a_poll_one_round_trip(followed: Followed) -> None:
    """A terminated topic can change only through its record, so the poll reads only the record."""
    other = followed.other
    other.coordinator.commit(followed.bench.work())
    seal = other.sealing.terminate(T)
    followed.settle()
    end = other.buffer.read(U).end
    for _ in range(3):
        assert followed.poll() == (2, {str(T): seal, str(U): end}), "one trip for T's record, one for U's log"
    number = other.coordinator.append(None, {U: [followed.bench.part("plain")]})[str(U)]
    assert followed.poll()[1] == {str(T): seal, str(U): number}
    assert followed.poll() == (2, {str(T): seal, str(U): number})


def test_the_successor_of_a_sealed_topic_is_seen_at_once(followed: Followed) -> None:
    other = followed.other
    seal = other.sealing.seal(T, "migrate", to=str(Y))
    followed.settle()
    assert followed.poll()[1][str(T)] == seal
    Migrator(other.cluster, other.coordinator).finish(T)
    assert followed.poll()[1][str(T)] == seal
    assert [one.successor for one in followed.topics.read()] == [None, str(Y), None]
    followed.settle()
    assert followed.poll()[0] == 2, "one trip for the cluster's log, which has the successor, and one for U's log"


def test_the_deletion_of_a_terminated_topic_is_seen_at_once(followed: Followed) -> None:
    """The deletion adds no entry to the log, but it changes the topic's record. A poll reads this record, so the next poll raises
    TopicNotFound.
    """
    followed.other.sealing.terminate(T)
    followed.settle()
    followed.other.sealing.delete(T)
    with pytest.raises(TopicNotFound, match=str(T)):
        followed.topics.read()


def test_a_new_topic_of_a_pattern_is_seen_at_once(followed: Followed) -> None:
    followed.topics = FollowingLogs(followed.client, Pattern("persistent://public/default/.*"))
    followed.settle()
    new = PersistentName("public", "default", "new")
    followed.other.topics.create(new)
    number = followed.other.coordinator.append(None, {new: [followed.bench.part("plain")]})[str(new)]
    assert followed.poll()[1][str(new)] == number
