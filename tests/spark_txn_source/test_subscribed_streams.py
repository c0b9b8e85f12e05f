"""Streams of a subscription, driven as Spark drives them. Topics are created, deleted and migrated meanwhile, and queries drop
topics and add them again. The streams acknowledge the rows that they delivered, report a moved cursor only after a real move, and
keep their offsets small.
"""

from __future__ import annotations

import json
import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest

from conformance.harness.spark_driver import MicroBatchExecution, numbers
from metadata.common.errors import AckConflict, OptionError
from metadata.write.coordinator import Coordinator
from pyspark_txnsegment import DefaultSource
from spark_txn_source.stream import StreamReader
from txnsegment import Cluster

SCALABLE, PERSISTENT = "topic://public/default/", "persistent://public/default/"
BOTH = pytest.mark.parametrize("domain", [SCALABLE, PERSISTENT])


class Query:
    """A streaming query and its checkpoint."""

    def __init__(self, cluster: Cluster, *topics: str, **options: str) -> None:
        self.cluster, self.engine, self.given = cluster, MicroBatchExecution(), options
        self.start(*topics)

    def start(self, *topics: str, available_now: bool = False, **options: str) -> None:
        if topics:
            what = {"topicsPattern": topics[0]} if "*" in topics[0] else {"topics": ",".join(topics)}
            self.options = {"serviceUrl": self.cluster.url, "subscription": "s", **what}
        self.engine.stop()
        self.engine.start(self.options | self.given | options, available_now=available_now)

    def batch(self) -> list[int] | None:
        """Return the rows of the next batch, or None if no batch is due."""
        found = self.engine.next()
        return None if found is None else sorted(numbers(found))

    def rest(self) -> list[int]:
        found: list[int] = []
        for _ in range(50):
            rows = self.batch()
            if rows is None:
                return found
            found += rows
        raise AssertionError("the query does not end")

    @property
    def at(self) -> dict[str, Any]:
        return json.loads(self.engine.offsets[-1])


def make(cluster: Cluster, *topics: str, subscription: str | None = "s") -> None:
    for topic in topics:
        cluster.topics.create(topic, schema="n bigint")
        if subscription is not None:
            cluster.subscriptions.create(topic, subscription)


def write(cluster: Cluster, topic: str, *values: int) -> None:
    for n in values:
        with cluster.begin() as txn:
            txn.append(topic, pa.table({"n": pa.array([n], pa.int64())}))
            txn.commit()


def left(cluster: Cluster, topic: str, name: str = "s") -> list[int]:
    with cluster.consumer(topic, name) as consumer:
        return [message.value["n"] for message in consumer.messages(timeout=0)]


def acknowledge(cluster: Cluster, topic: str, *values: int, name: str = "s") -> None:
    with cluster.consumer(topic, name) as consumer:
        for message in list(consumer.messages(timeout=0)):
            if message.value["n"] in values:
                consumer.ack(message)


class Killed(BaseException):
    pass


def killed_before_its_commit(query: Query) -> None:
    """Crash the query after it logged a batch and before it commits the previous batch. Spark never commits that batch later."""

    def dies(_: object) -> None:
        raise Killed

    query.engine.reader.commit = dies
    with pytest.raises(Killed):
        query.engine.construct()


# --- no conflict without a seek ------------------------------------------------------------------------------------


def test_rows_read_under_the_old_name_stay_unacknowledged(cluster: Cluster) -> None:
    old, new = PERSISTENT + "x", SCALABLE + "x"
    make(cluster, old)
    write(cluster, old, 1, 2)
    query = Query(cluster, old, maxRowsPerTrigger="1", topicsChanged="continue")
    assert [query.batch(), query.batch()] == [[1], [2]]
    cluster.topics.migrate(old, new)
    write(cluster, new, 3, 4, 5)
    query.start(new)
    killed_before_its_commit(query)
    query.start()
    assert query.rest() == [3, 4, 5]
    assert left(cluster, new) == [5]


def test_acks_beyond_the_start_count_under_the_new_name(cluster: Cluster) -> None:
    old, new = PERSISTENT + "x", SCALABLE + "x"
    make(cluster, old)
    write(cluster, old, 1, 2, 3, 4)
    acknowledge(cluster, old, 4)
    query = Query(cluster, old, maxRowsPerTrigger="1")
    assert [query.batch(), query.batch()] == [[1], [2]]
    cluster.topics.migrate(old, new)
    query.start(new, topicsChanged="continue")
    cluster.subscriptions.seek(new, "s", to="earliest")
    with pytest.raises(AckConflict, match="moved back"):
        query.rest()
    assert left(cluster, new) == [1, 2, 3, 4]


def test_a_persistent_topic_left_out_for_a_while_loses_no_row(cluster: Cluster) -> None:
    x, y = PERSISTENT + "x", PERSISTENT + "y"
    make(cluster, x, y)
    write(cluster, x, 1)
    write(cluster, y, 2)
    query = Query(cluster, x, y, topicsChanged="continue")
    assert query.rest() == [1, 2]
    query.start(y)
    for n in (3, 4):
        write(cluster, y, n)
        assert query.rest() == [n]
    assert left(cluster, x) == [1], "row 1 was delivered but not acknowledged, because the query does not read x any more"
    query.start(x, y)
    for n in (5, 6):
        write(cluster, x, n)
        assert query.rest() == [n]
    assert left(cluster, x) == [6]


def test_a_stream_continues_without_its_segmented_topics(cluster: Cluster) -> None:
    x, y = PERSISTENT + "x", SCALABLE + "y"
    make(cluster, x, y)
    write(cluster, x, 1)
    write(cluster, y, 2)
    query = Query(cluster, x, y, topicsChanged="continue")
    assert query.rest() == [1, 2]
    query.start(x)
    for n in (3, 4):
        write(cluster, x, n)
        assert query.rest() == [n]
    assert (left(cluster, x), left(cluster, y)) == ([4], [2])
    write(cluster, y, 5)
    cluster.subscriptions.seek(y, "s", to=query.at["log"])
    query.start(x, y)
    assert query.rest() == [5]


# --- added and newly matched topics --------------------------------------------------------------------------------


def test_an_undecided_row_below_the_start_of_an_added_topic_is_not_skipped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction on the added topic is registered and not decided yet, so the query waits. After the commit, the row lies below
    the query's offset and is unacknowledged. So the query raises an error and does not skip the row.
    """
    a, b = SCALABLE + "a", SCALABLE + "b"
    make(cluster, a, b)
    registered, go_on, decide = threading.Event(), threading.Event(), Coordinator._decide

    def held(*given: Any) -> None:
        if threading.current_thread() is writer:
            registered.set()
            assert go_on.wait(60)
        decide(*given)

    monkeypatch.setattr(Coordinator, "_decide", held)
    writer = threading.Thread(target=write, args=(cluster, b, 100))
    writer.start()
    try:
        assert registered.wait(60)
        query = Query(cluster, a, topicsChanged="continue")
        for n in (1, 2):
            write(cluster, a, n)
            assert query.rest() == [n]
        query.start(a, b)
        write(cluster, a, 3)
        before = query.at
        assert query.rest() == []
        assert query.at == before, "the query waits, and runs no empty batches meanwhile"
    finally:
        go_on.set()
        writer.join()
    with pytest.raises(OptionError, match="would acknowledge them without having read them"):
        query.rest()
    assert left(cluster, b) == [100]
    cluster.subscriptions.seek(b, "s", to=before["log"])
    query.start()
    assert query.rest() == [3]


@BOTH
def test_a_change_to_a_subscription_with_unread_rows_is_refused(cluster: Cluster, domain: str) -> None:
    topic = domain + "a"
    make(cluster, topic)
    cluster.subscriptions.create(topic, "u")
    write(cluster, topic, 1, 2, 3, 4, 5)
    acknowledge(cluster, topic, 4)
    query = Query(cluster, topic, maxRowsPerTrigger="1")
    assert [query.batch(), query.batch()] == [[1], [2]]
    acknowledge(cluster, topic, 1, 2, name="u")
    query.start(subscription="u")
    with pytest.raises(OptionError, match="would acknowledge them without having read them"):
        query.rest()
    assert left(cluster, topic, "u") == [3, 4, 5]
    acknowledge(cluster, topic, 4, name="u")
    query.start(subscription="u")
    assert query.rest() == [3, 5]
    assert left(cluster, topic, "u") == [5]


@BOTH
@pytest.mark.parametrize("call", ["commit", "reportLatestOffset"])
def test_a_topic_that_matches_a_pattern_between_two_calls_loses_no_row(
    cluster: Cluster, domain: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = domain + "a", domain + "b"
    make(cluster, a, subscription=None)
    write(cluster, a, 1)
    query = Query(cluster, domain + ".*")
    assert query.rest() == [1]
    write(cluster, a, 2)
    plain = getattr(StreamReader, call)

    def met(*given: Any) -> Any:
        if b not in [topic.name for topic in cluster.topics.list()]:
            make(cluster, b, subscription=None)
            write(cluster, b, 3)
        return plain(*given)

    monkeypatch.setattr(StreamReader, call, met)
    assert query.rest() == [2, 3]
    assert left(cluster, b) == [3], "the last batch is not acknowledged yet"


def test_a_recreated_topic_of_a_pattern_loses_no_row(cluster: Cluster) -> None:
    topic = SCALABLE + "a"
    make(cluster, topic, subscription=None)
    write(cluster, topic, 1)
    query = Query(cluster, SCALABLE + ".*")
    assert query.rest() == [1]
    for n in (2, 3):
        cluster.topics.delete(topic)
        make(cluster, topic, subscription=None)
        write(cluster, topic, n)
        assert query.rest() == [n]


# --- offsets stay small --------------------------------------------------------------------------------------------


def test_removed_topics_leave_no_entry_in_the_offset(cluster: Cluster) -> None:
    keep = PERSISTENT + "keep"
    make(cluster, keep, subscription=None)
    query = Query(cluster, PERSISTENT + ".*")
    assert query.rest() == []
    for n in range(3):
        topic = f"{PERSISTENT}t{n}"
        make(cluster, topic, subscription=None)
        write(cluster, topic, 1, 2)
        cluster.retention.set(topic, keep_bytes=1)
        assert cluster.retention.trim(topic).rows == 2
        write(cluster, topic, 3)
        assert query.rest() == [3]
        assert query.at["from"].keys() == {topic}
        cluster.topics.delete(topic)
        for _ in range(3):
            write(cluster, keep, 4)
            assert query.rest() == [4]
    assert not {"from", "acked"} & query.at.keys()
    assert set(query.at["ackedTo"]) == {"log", keep}


def test_acks_of_a_removed_topic_leave_the_offset(cluster: Cluster) -> None:
    a, b = PERSISTENT + "a", PERSISTENT + "b"
    make(cluster, a, b)
    write(cluster, a, 1, 2)
    acknowledge(cluster, a, 2)
    query = Query(cluster, PERSISTENT + ".*", failOnDataLoss="false")
    assert query.rest() == [1]
    assert "acked" in query.at
    cluster.topics.delete(a)
    for n in (3, 4):
        write(cluster, b, n)
        assert query.rest() == [n]
    assert "acked" not in query.at


@BOTH
def test_the_offsets_of_short_runs_drop_acks_beyond_the_start(cluster: Cluster, domain: str) -> None:
    """An `AvailableNow` run of one batch plans this batch before it has committed any batch. The offsets of such runs still drop
    the field `acked`, and a later seek is still reported.
    """
    topic = domain + "a"
    make(cluster, topic)
    write(cluster, topic, 1, 2, 3)
    acknowledge(cluster, topic, 2)
    query = Query(cluster, topic)
    query.start(available_now=True)
    assert query.rest() == [1, 3]
    for n in (4, 5):
        write(cluster, topic, n)
        query.start(available_now=True)
        assert query.rest() == [n]
    assert "acked" not in query.at
    cluster.subscriptions.seek(topic, "s", to="earliest")
    for n in (6, 7):
        write(cluster, topic, n)
        query.start(available_now=True)
        with pytest.raises(AckConflict, match="moved back"):
            query.rest()
        assert left(cluster, topic)[:5] == [1, 2, 3, 4, 5]


# --- continuing after a seek, by the error's advice ----------------------------------------------------------------


def given_up(cluster: Cluster, failed: pytest.ExceptionInfo[AckConflict]) -> None:
    topic, name, _, number = str(failed.value).split(" seek ")[1].split()
    cluster.subscriptions.seek(topic, name, to=int(number))


@BOTH
def test_one_seek_gives_up_acks_far_beyond_the_start(cluster: Cluster, domain: str) -> None:
    topic = domain + "a"
    make(cluster, topic)
    write(cluster, topic, *range(1, 10))
    acknowledge(cluster, topic, 8)
    query = Query(cluster, topic, maxRowsPerTrigger="1")
    assert [query.batch(), query.batch()] == [[1], [2]]
    cluster.subscriptions.seek(topic, "s", to="earliest")
    with pytest.raises(AckConflict) as failed:
        query.rest()
    given_up(cluster, failed)
    query.start()
    assert query.rest() == [3, 4, 5, 6, 7, 9]


def test_one_seek_gives_up_acks_in_several_segments(cluster: Cluster) -> None:
    topic = SCALABLE + "a"
    cluster.topics.create(topic, schema="n bigint", segments=3)
    cluster.subscriptions.create(topic, "s")
    for n in range(1, 10):
        with cluster.begin() as txn:
            txn.append(topic, pa.table({"n": pa.array([10 * n + k for k in range(9)], pa.int64())}))
            txn.commit()
    with cluster.consumer(topic, "s") as consumer:
        for message in list(consumer.messages(timeout=0)):
            number, first = int(message.id.split(":")[0]), message.segment.endswith("-0")
            if number == (4 if first else 8):
                consumer.ack(message)
    query = Query(cluster, topic, maxRowsPerTrigger="9")
    assert len(query.batch() or []) == 9
    cluster.subscriptions.seek(topic, "s", to="earliest")
    with pytest.raises(AckConflict) as failed:
        query.rest()
    given_up(cluster, failed)
    query.start()
    assert 81 - 18 <= len(query.rest()) + 9 < 81


def test_the_error_names_the_successor_of_a_migrated_topic(cluster: Cluster) -> None:
    old, new, beside = PERSISTENT + "x", SCALABLE + "x", SCALABLE + "beside"
    make(cluster, old, beside)
    write(cluster, beside, *range(10))
    write(cluster, old, 1, 2, 3, 4)
    query = Query(cluster, old, maxRowsPerTrigger="1")
    assert [query.batch(), query.batch(), query.batch()] == [[1], [2], [3]]
    cluster.topics.migrate(old, new)
    write(cluster, new, 5, 6)
    cluster.subscriptions.seek(new, "s", to="earliest")
    with pytest.raises(AckConflict) as failed:
        query.rest()
    given_up(cluster, failed)
    assert left(cluster, new) == [4, 5, 6]
    query.start()
    assert query.rest() == [4, 5, 6]
    cluster.subscriptions.seek(new, "s", to="earliest")
    write(cluster, new, 7)
    with pytest.raises(AckConflict) as failed:
        query.rest()
    given_up(cluster, failed)
    assert left(cluster, new) == [7]


def test_a_reader_that_was_pickled_refuses_to_acknowledge(cluster: Cluster) -> None:
    """Spark pickles the reader for its tasks, which only read. A commit by the copy is an error: it would acknowledge nothing."""
    make(cluster, "a")
    write(cluster, "a", 1)
    options = {"serviceUrl": cluster.url, "topics": "a", "subscription": "s"}
    reader = StreamReader(options, DefaultSource(options).schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    copy = pickle.loads(pickle.dumps(reader))
    with pytest.raises(NotImplementedError, match="cannot commit"):
        copy.commit(end)
    assert left(cluster, "a") == [1]
