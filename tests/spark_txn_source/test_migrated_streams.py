"""Streams and writers of a persistent topic continue during its migration. The tests use Spark's own classes, but need no JVM."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ledgers.avro.modes import Compatibility
from metadata.client.providers import Providers, Selected
from metadata.common.errors import DataLoss, SchemaError, TopicNotFound, TopicSealed
from metadata.maintenance.trimming import Trimmer
from metadata.records.names import TopicName, persistent_name, topic_name
from metadata.rules.transitions import Claim
from metadata.store.contract import time_ms
from metadata.topics import policies
from metadata.write.write_set import WriteSet
from spark_txn_sink import commit as committing
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from spark_txn_sink.planned import Identity, WritePlan
from spark_txn_sink.staging import stage
from tests.support.spark_bench import Query, SparkBench, X
from txnsegment import connect
from txnsegment.schemas import from_arrow

TO = "topic://public/default/went-on"


@pytest.fixture
def bench(tmp_path: Path) -> SparkBench:
    return SparkBench(f"file://{tmp_path}")


def migrate(bench: SparkBench, segments: int = 2) -> None:
    bench.client.instream.migrator.migrate(persistent_name(X), topic_name(TO), segments=segments)


def staged(bench: SparkBench, version: int, values: list[int]) -> WriteSet:
    claim = Claim(version, "query", f"attempt {version}", replays=True)
    return WriteSet("app", X, claim, {X: bench.parts(X, values)}, time_ms(bench.client.cluster.store), 10_000)


def test_a_stream_and_a_writer_continue_over_a_migration(bench: SparkBench) -> None:
    commit = bench.client.instream.coordinator.commit
    commit(staged(bench, 0, [1, 2]))
    old, behind = bench.stream(X, startingOffsets="earliest"), bench.stream(X, startingOffsets="earliest")
    assert old.next() == [1, 2]
    late, written = staged(bench, 1, [3]), staged(bench, 2, [4, 5])
    commit(late)
    migrate(bench)
    assert commit(late).skipped
    commit(written)  # the rows of this write were staged for the persistent topic, which is now sealed
    assert commit(written).skipped
    assert [n for found in old.rest() for n in found] == [3, 4, 5]
    assert [n for found in behind.rest() for n in found] == [1, 2, 3, 4, 5]
    assert old.at == behind.at
    new = bench.stream(TO, startingOffsets="earliest", maxRowsPerTrigger="1")
    assert [found for found in new.rest() if found] == [[1, 2], [3], [4, 5]]
    assert new.at["log"] == old.at["log"]
    assert bench.numbers(X) == bench.numbers(TO) == bench.numbers([X, TO]) == [1, 2, 3, 4, 5]
    assert sorted(row["n"] for row in bench.batch([], topicsPattern=".*default/(x|went-on)")) == [1, 2, 3, 4, 5]
    both = [(row["__segment"].partition(":")[0], row["__messageId"]) for row in bench.batch(TO, includeMetadata="true")]
    assert both[:3] == [("persistent", "1:0:0"), ("persistent", "1:0:1"), ("persistent", "3:0:0")]


def test_the_migrate_command_and_lineage_show_the_successor(bench: SparkBench) -> None:
    from txnsegment import lineage

    bench.commit(X, [1])
    with connect(bench.url) as cluster:
        made = cluster.topics.migrate(X, TO, segments=2)
        assert [(s.name.partition(":")[0], s.parents) for s in made.segments] == [
            ("persistent", ()),
            ("segment", (0,)),
            ("segment", (0,)),
        ]
        assert X in lineage.svg(made)
        with cluster.producer(X) as producer:
            producer.send({"n": 2})
        assert bench.numbers(TO) == [1, 2]
        with pytest.raises(TopicSealed, match="schema changes there"):
            bench.client.topics.schemas.set_compatibility(persistent_name(X), Compatibility.FULL)
        with cluster.consumer(X, "s", start="earliest") as consumer:
            messages = list(consumer.messages(timeout=0))
            assert [m.value["n"] for m in messages] == [1, 2]
            consumer.ack(messages)
            assert consumer.lag().rows == 0


@pytest.mark.parametrize("younger", ["commit", "tasks"])
def test_a_sink_continues_when_a_migration_falls_between_its_tasks_and_its_commit(bench: SparkBench, younger: str) -> None:
    """Spark makes one writer for the tasks and, in another process, a second writer for the commit. The topic is migrated between
    the plans of the two writers. The rows are committed once. `younger`: the writer that is planned after the migration.
    """
    bench.commit(X, [0])
    rows = pa.table({"n": pa.array([1, 2], pa.int64()), "more": ["a", "b"]})

    def plan() -> WritePlan:
        given = {"serviceUrl": bench.url, "topic": X, "mergeSchema": "true"}
        return plan_write(bench.client, WriteOptions.parse(given, streaming=True), from_arrow(rows.schema))

    older = plan()
    migrate(bench)
    tasks, ours = (plan(), older) if younger == "tasks" else (older, plan())
    staged = dataclasses.replace(stage(tasks, rows.to_batches()), query_id="query")
    for _ in range(2):  # Spark repeats a commit that it has not recorded
        committing.commit(bench.client, ours, Identity(None, 3, random=False, streaming=True), 30_000, [staged])
    committing.abort(bench.client, ours, Identity(None, 3, random=False, streaming=True), [staged])
    assert bench.numbers(X) == bench.numbers(TO) == [0, 1, 2]
    assert [row["more"] for row in bench.batch(TO) if row["n"]] == ["a", "b"]


def test_a_plain_producer_of_a_migrated_topic_gets_an_error(bench: SparkBench) -> None:
    """One of two producers has written a row before the migration. The next flush of each producer raises TopicSealed."""
    bench.commit(X, [1])
    with connect(bench.url) as cluster:
        producer, begun = (cluster.producer(X, plain=True) for _ in range(2))
        begun.send({"n": 2})
        begun.flush()
        producer.send({"n": 3})
        begun.send({"n": 4})
        cluster.topics.migrate(X, TO, segments=2)
        for one in (producer, begun):
            with pytest.raises(TopicSealed, match=f"{X} was migrated to {TO}.*without plain=True"):
                one.flush()
        with cluster.producer(X) as again:
            again.send({"n": 3})
    assert bench.numbers(TO) == [1, 2, 3]


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_flush_of_a_plain_producer_is_safe_beside_a_migration_at_each_lookup(
    bench: SparkBench, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush makes two lookups: of the topic's name, and of the name's model. The topic is migrated after lookup `looks`. If
    `looks` is 3, it is not migrated. After a migration the flush raises TopicSealed and writes no row.
    """
    bench.commit(X, [1])
    asked = 0
    select = Providers.select

    def selecting(self: Providers, names: Sequence[TopicName]) -> dict[TopicName, Selected]:
        nonlocal asked
        asked += 1
        found = select(self, names)
        if asked == looks:
            migrate(bench)
        return found

    with connect(bench.url) as cluster:
        producer = cluster.producer(X, plain=True)
        producer.send({"n": 2})
        monkeypatch.setattr(Providers, "select", selecting)
        if looks < 3:
            with pytest.raises(TopicSealed, match=f"{X} was .*sealed"):
                producer.flush()
        else:
            producer.flush()
            assert asked == 2
        monkeypatch.undo()
    assert bench.numbers(X) == ([1] if looks < 3 else [1, 2])


def test_a_running_consumer_continues_with_the_successor(bench: SparkBench) -> None:
    bench.commit(X, [1])
    with connect(bench.url) as cluster, cluster.consumer(X, "s", start="earliest") as consumer:
        rows = consumer.messages(timeout=0)
        first = next(rows)
        bench.commit(X, [2])
        cluster.topics.migrate(X, TO, segments=2)
        with cluster.producer(X) as producer:
            producer.send({"n": 3})
        again = [first, *rows, *consumer.messages(timeout=0)]
        assert [m.value["n"] for m in again] == [1, 2, 3]
        consumer.ack(again[:2])
        consumer.ack_cumulative(again[2])
        assert consumer.lag().rows == 0
        assert list(consumer.messages(timeout=0)) == []
        with cluster.producer(X) as producer:
            producer.send({"n": 4})
        assert [m.value["n"] for m in consumer.messages(timeout=0)] == [4]
    with connect(bench.url) as cluster, cluster.consumer(TO, "s") as consumer:
        assert [m.value["n"] for m in consumer.messages(timeout=0)] == [4]


def test_a_migration_under_load(bench: SparkBench) -> None:
    """A writer commits batches and a stream reads them while the topic migrates. No row is lost, duplicated or reordered."""
    writer = SparkBench(bench.url)
    total, at, rest = 24, 10, 20  # the migration starts at version `at`, and ends before version `rest`
    writer.client.instream.coordinator.commit(staged(writer, 0, [0]))
    query = bench.stream(X, startingOffsets="earliest", maxRowsPerTrigger="2")
    begun, over = threading.Event(), threading.Event()

    def write() -> None:
        for version in range(1, total):
            if version == rest:
                over.wait()
            work = staged(writer, version, [version])
            if version == at:
                begun.set()
            writer.client.instream.coordinator.commit(work)
            assert writer.client.instream.coordinator.commit(work).skipped  # Spark repeats a batch that it has not recorded

    def migrated() -> None:
        begun.wait()
        try:
            bench.client.instream.migrator.migrate(persistent_name(X), topic_name(TO), segments=1, wait_ms=30_000)
        finally:
            over.set()

    found: list[int] = []
    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(write), threads.submit(migrated)]
        while not all(one.done() for one in done):
            found += query.next()
        for one in done:
            one.result()
    found += [n for some in query.rest() for n in some]
    assert found == list(range(total))
    assert [n for some in bench.stream(TO, startingOffsets="earliest").rest() for n in some] == found
    assert query.at["log"] > 0


def test_a_pattern_of_the_old_name_continues_with_the_successor(bench: SparkBench) -> None:
    """A pattern matches the old name. After the migration a running stream, a restarted stream and a batch with the pattern read
    the successor, and the other topics that match.
    """
    old, other = "persistent://public/default/(x|z)", "persistent://public/default/z"
    bench.commit(X, [1, 2])
    query, matching = (bench.stream([], topicsPattern=p, startingOffsets="earliest") for p in (old, ".*default/(x|went-on)"))
    assert query.next() == matching.next() == [1, 2]
    bench.commit(X, [3])
    migrate(bench)
    assert [n for found in query.rest() for n in found] == [3]
    with connect(bench.url) as cluster:
        for n in (4, 5):
            with cluster.producer(X) as producer:
                producer.send({"n": n})
    assert [found for found in query.rest() if found] == [[4, 5]]
    assert [n for found in matching.rest() for n in found] == [3, 4, 5]
    again = Query(bench.stream([], topicsPattern=old).reader, json.loads(json.dumps(query.at)))
    bench.commit(other, [6])
    with connect(bench.url) as cluster, cluster.producer(TO) as producer:
        producer.send({"n": 7})
    assert sorted(n for found in again.rest() for n in found) == [6, 7]
    assert bench.numbers([], topicsPattern=old) == [1, 2, 3, 4, 5, 6, 7]
    assert bench.numbers([], topicsPattern="persistent://.*") == bench.numbers([], topicsPattern=".*") == [1, 2, 3, 4, 5, 6, 7]


def test_deleted_rows_of_a_migrated_topic_are_a_loss_for_streams(bench: SparkBench) -> None:
    """The successor is deleted and created again. A stream that has read all rows before continues with the new topic. Any other
    stream gets DataLoss. No stream reads an old row.
    """
    bench.commit(X, [1, 2])
    end, behind = (bench.stream([], topicsPattern="persistent://.*", startingOffsets="earliest") for _ in range(2))
    assert end.next() == [1, 2]
    bench.commit(X, [3])
    migrate(bench)
    named = bench.stream(X, startingOffsets="earliest")
    assert [n for found in end.rest() for n in found] == [3]
    bench.client.topics.delete(topic_name(TO))
    with pytest.raises(SchemaError, match="no topic matches"):
        bench.numbers([], topicsPattern=".*")
    with pytest.raises(TopicNotFound, match="which was deleted"):
        named.next()
    with pytest.raises(DataLoss, match=f"{X} was migrated to {TO}, which was deleted"):
        behind.next()
    assert [n for found in end.rest() for n in found] == []
    bench.client.topics.create(topic_name(TO), schema=from_arrow(pa.schema({"n": pa.int64()})))
    with connect(bench.url) as cluster, cluster.producer(X) as producer:
        producer.send({"n": 4})
    assert [n for found in end.rest() for n in found] == [4]
    assert bench.numbers(X) == bench.numbers(TO) == bench.numbers([], topicsPattern="persistent://.*") == [4]
    with pytest.raises(DataLoss, match=f"{X} was migrated"):
        named.next()
    assert bench.stream(X, startingOffsets="earliest").next() == [4]
    given = json.dumps({X: "1:0"})
    with pytest.raises(DataLoss, match=f"{X} was migrated"):
        bench.numbers(X, startingOffsets=given)
    assert bench.numbers(X, startingOffsets=given, failOnDataLoss="false") == [4]


def test_trimmed_rows_of_a_migrated_topic_are_a_loss_for_streams(bench: SparkBench) -> None:
    bench.commit(X, [1, 2])
    end, behind = (bench.stream(X, startingOffsets="earliest") for _ in range(2))
    assert end.next() == [1, 2]
    migrate(bench)
    policies.put(bench.client.cluster, TO, {"retention_bytes": 1})
    assert Trimmer(bench.client.cluster, bench.client.buffer).trim(topic_name(TO)).rows == 2
    with pytest.raises(DataLoss, match="trimmed by retention"):
        behind.next()
    assert [n for found in end.rest() for n in found] == []
    with connect(bench.url) as cluster, cluster.producer(X) as producer:
        producer.send({"n": 3})
    assert [n for found in end.rest() for n in found] == [3]
    assert bench.numbers(X) == [3]
    assert bench.stream(TO, startingOffsets="earliest").next() == []
