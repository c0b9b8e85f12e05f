"""Spark reads `persistent://` topics: batch and stream, starts, ends, limits, replays. The tests need no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from metadata.common.errors import (
    DataLoss,
    OffsetOutOfRange,
    OptionError,
    SchemaChanged,
    SchemaError,
    SubscriptionNotFound,
    TopicNotFound,
)
from metadata.records.names import persistent_name, topic_name
from metadata.records.persistent_records import EntryKind, LogEntry
from spark_txn_source.options import ReadOptions
from tests.support.spark_bench import Query, SparkBench, X, Y, position_of
from txnsegment import connect
from txnsegment.positions import unread


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SparkBench]:
    found = SparkBench(f"file://{tmp_path}/cluster")
    yield found
    found.client.close()


def scalable(bench: SparkBench, *values: int, topic: str = "t") -> int:
    """Commit one transaction to a `topic://` topic. Return its number."""
    with connect(bench.url) as cluster:
        if cluster.client.topics.find(topic_name(topic)) is None:
            cluster.topics.create(topic, schema="n bigint")
        with cluster.begin() as txn:
            txn.append(topic, pa.table({"n": pa.array(values, pa.int64())}))
            number = txn.commit().number
    assert number is not None
    return number


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_reads_up_to_the_first_undecided_transaction(bench: SparkBench) -> None:
    bench.plain(X, [1, 2])
    bench.commit(X, [3])
    aborted = bench.begin(X)
    bench.append(aborted, X, [100])
    bench.end(aborted, commit=False)
    open_txn = bench.begin(X)
    bench.append(open_txn, X, [4])
    bench.plain(X, [5])
    assert bench.numbers(X) == [1, 2, 3]
    assert bench.numbers(X, isolationLevel="read_uncommitted") == [1, 2, 3, 4, 5, 100]
    bench.end(open_txn)
    assert bench.numbers(X) == [1, 2, 3, 4, 5]


def test_metadata_columns(bench: SparkBench) -> None:
    first = bench.plain(X, [1, 2, 3], entry_rows=2)
    txn = bench.begin(X)
    second = bench.append(txn, X, [4])
    bench.end(txn)
    found = bench.batch(X, includeMetadata="true")
    assert [(r["n"], r["__topic"], r["__segment"], r["__messageId"], r["__txnId"]) for r in found] == [
        (1, X, X, f"{first}:0:0", None),
        (2, X, X, f"{first}:0:1", None),
        (3, X, X, f"{first}:1:0", None),
        (4, X, X, f"{second}:0:0", txn),
    ]


def test_a_read_covers_both_transaction_models(bench: SparkBench) -> None:
    """A read of topics of both models has the union of their columns. A pattern must match the whole name of a topic."""
    scalable(bench, 1)
    bench.plain(X, pa.table({"n": pa.array([2], pa.int64()), "more": ["a"]}))
    bench.plain(Y, [3])
    rows = bench.batch(["t", X, Y])
    assert sorted((row["n"], row["more"]) for row in rows) == [(1, None), (2, "a"), (3, None)]
    for pattern, found in ((".*", [1, 2, 3]), ("persistent://.*", [2, 3]), ("topic://.*", [1]), (".*/[tx]", [1, 2])):
        assert bench.numbers([], topicsPattern=pattern) == found
    with pytest.raises(SchemaError, match="no topic matches"):
        bench.batch([], topicsPattern="t")
    with pytest.raises(TopicNotFound, match="persistent://public/default/none"):
        bench.batch("persistent://public/default/none")


def test_starts_and_ends_of_a_batch(bench: SparkBench) -> None:
    number = scalable(bench, 0)
    first = bench.plain(X, [1, 2, 3], entry_rows=2)
    second, third = bench.commit(X, [4]), bench.plain(X, [5])
    only = {"startingOffsets": json.dumps({X: f"{first}:1"})}
    assert bench.numbers(X, **only) == [4, 5]
    assert bench.numbers(X, startingOffsets=json.dumps({"log": 0, X: "0:0"})) == [1, 2, 3, 4, 5]
    assert bench.numbers(X, **only, endingOffsets=json.dumps({X: f"{second}:0"})) == [4]
    assert bench.numbers(X, startingOffsets="latest") == []
    both = json.dumps({"log": number, X: f"{second}:0"})
    assert bench.numbers(["t", X], startingOffsets=both) == [5]
    assert bench.numbers(["t", X], endingOffsets=both) == [0, 1, 2, 3, 4]
    for wrong, what in (
        ({X: f"{first}:0"}, "within one append, whose last entry is"),
        ({X: f"{third + 5}:0"}, "lies beyond what is decided"),
        ({"log": 4711, X: f"{third}:0"}, "beyond"),
    ):
        with pytest.raises(OffsetOutOfRange, match=what):
            bench.batch(["t", X] if "log" in wrong else X, endingOffsets=json.dumps(wrong))


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_log_number_of_an_offset_is_ignored_without_topics_of_the_log(bench: SparkBench, level: str) -> None:
    """A stream's offset always has a number of the cluster's log. A batch without `topic://` topics ignores this number."""
    number, last = scalable(bench, 0), bench.plain(X, [1, 2])
    at = {X: f"{last}:0"}
    for log in (number, number + 1000):
        given = json.dumps({"log": log, **at})
        assert bench.numbers(X, endingOffsets=given, isolationLevel=level) == [1, 2]
    with pytest.raises(OffsetOutOfRange, match="beyond"):
        bench.numbers(["t", X], endingOffsets=json.dumps({"log": number + 1000, **at}), isolationLevel=level)


def test_timestamps(bench: SparkBench) -> None:
    for n in range(3):
        bench.plain(X, [n])
    times = [row["__publishTime"] for row in bench.batch(X, includeMetadata="true")]
    ms = [int(time.timestamp() * 1000) for time in times]
    assert bench.numbers(X, startingTimestamp=str(ms[2])) == [n for n in range(3) if ms[n] >= ms[2]]
    assert bench.numbers(X, endingTimestamp=str(ms[0])) == [n for n in range(3) if ms[n] <= ms[0]]
    assert bench.numbers(X, startingTimestamp=str(ms[2] + 1)) == []


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"topic": X, "startingOffsets": '{"log": 3}'}, "gives no position of persistent"),
        (
            {"topic": X, "startingOffsets": json.dumps({X: "1:0", Y: "1:0"})},
            "persistent://public/default/y, but the topic is not read",
        ),
        ({"topics": f"t,{X}", "startingOffsets": json.dumps({X: "1:0"})}, "topic:// topics are read, too"),
        ({"topic": X, "startingOffsets": json.dumps({X: "1"})}, "is not ledger:entry"),
        ({"topic": X, "startingOffsets": json.dumps({X: 1})}, "is not ledger:entry"),
        ({"topic": X, "startingOffsets": json.dumps({"persistent://x": "1:0"})}, "not the name of a persistent topic"),
        ({"topic": "persistent://x"}, "not the name of a persistent topic"),
        ({"topicsPattern": ".*", "startingOffsets": json.dumps({X: "1:0"})}, "topic:// topics are read, too"),
    ],
)
def test_an_offset_that_does_not_fit_the_topics_is_refused(options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        ReadOptions.parse({"serviceUrl": "memory://t", **options}, streaming=False)


def test_an_end_before_the_start(bench: SparkBench) -> None:
    bench.plain(X, [1])
    with pytest.raises(OffsetOutOfRange, match="after endingOffsets"):
        bench.batch(X, startingOffsets=json.dumps({X: "1:0"}), endingOffsets=json.dumps({X: "0:0"}))


# --- subscriptions --------------------------------------------------------------------------------------------------


def test_a_batch_reads_the_unacknowledged_rows_of_a_subscription(bench: SparkBench) -> None:
    bench.plain(X, range(4), entry_rows=2)
    bench.commit(X, [4, 5])
    ongoing = bench.begin(X)
    bench.append(ongoing, X, [6])
    with connect(bench.url) as cluster, cluster.consumer(X, "s", start="earliest") as consumer:
        found = list(consumer.messages(timeout=0.0))
        consumer.ack(found[0], found[3])
        assert bench.numbers(X, subscription="s") == [1, 2, 4, 5]
        assert bench.numbers(X, subscription="s", endingOffsets=json.dumps({X: "1:1"})) == [1, 2]
        given = ReadOptions.parse(bench.options(X, subscription="s"), streaming=False)
        left = unread(bench.client, given)
        with cluster.begin() as txn:
            txn.acknowledge(left.acks)
            txn.commit()
        bench.end(ongoing)
        assert bench.numbers(X, **left.options()) == [1, 2, 4, 5], "the plan keeps its rows after the cursor has moved"
        assert bench.numbers(X, subscription="s") == [6]
        consumer.rewind()
        assert [m.value["n"] for m in consumer.messages(timeout=0.0)] == [6]
    with pytest.raises(SubscriptionNotFound):
        bench.batch(X, subscription="none")
    with pytest.raises(SubscriptionNotFound):
        bench.stream(X, subscription="none")


def test_a_stream_begins_at_a_cursor_and_moves_it(bench: SparkBench) -> None:
    bench.plain(X, range(4), entry_rows=2)
    bench.commit(X, [4, 5])
    scalable(bench, 50)
    with connect(bench.url) as cluster, cluster.consumer([X, "t"], "s", start="earliest") as consumer:
        found = {m.value["n"]: m for m in consumer.messages(timeout=0.0)}
        consumer.ack(found[0], found[3], found[5])
        query = bench.stream([X, "t"], subscription="s")
        assert json.dumps(query.at["acked"][X])
        assert sorted(query.next()) == [1, 2, 4, 50]
        latest = query.reader.reportLatestOffset()
        assert latest is not None
        assert "lag" not in latest
        bench.commit(X, [6])
        latest = query.reader.reportLatestOffset()
        assert latest is not None
        assert latest["lag"]["rows"] == 1
        query.reader.commit(query.at)
        assert [(s.topic, s.lag.rows) for s in cluster.subscriptions.list()] == [("topic://public/default/t", 0), (X, 1)]
        assert query.next() == [6]
        query.reader.commit(query.at)
        query.reader.commit(query.at)
        assert cluster.subscriptions.describe(X, "s").cursors[0].acked == ()
        again = bench.stream([X, "t"], subscription="s")
        assert again.next() == []
        made = bench.stream([], topicsPattern=".*/x", subscription="new")
        assert sorted(made.next()) == [0, 1, 2, 3, 4, 5, 6]


def test_a_transaction_that_would_acknowledge_rows_of_both_models_is_refused(bench: SparkBench) -> None:
    bench.plain(X, [1])
    scalable(bench, 2)
    with connect(bench.url) as cluster:
        for name in (X, "t"):
            cluster.subscriptions.create(name, "s")
        assert bench.numbers(["t", X], subscription="s") == [1, 2]
        left = unread(bench.client, ReadOptions.parse(bench.options(["t", X], subscription="s"), streaming=False))
        with cluster.begin() as txn, pytest.raises(OptionError, match="never spans both"):
            txn.acknowledge(left.acks)


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_of_one_topic(bench: SparkBench) -> None:
    first = bench.plain(X, [1, 2], entry_rows=1)
    query = bench.stream(X)
    assert query.at == {"log": 0, "read": [X], X: f"{first}:1", "initial": True, "cluster": bench.client.cluster.id}, (
        "a new query starts at the latest offset"
    )
    assert list(query.rest()) == []
    txn = bench.begin(X)
    second = bench.append(txn, X, [3])
    assert query.next() == []
    bench.plain(X, [4])
    assert query.next() == [], "rows above an open transaction wait"
    bench.end(txn, commit=False)
    assert query.next() == [4]
    assert query.at[X] > f"{second}:0"
    assert query.reader.reportLatestOffset() == query.at
    query.reader.stop()


def test_the_offset_of_segmented_topics_keeps_its_form(bench: SparkBench) -> None:
    number = scalable(bench, 1)
    bench.plain(X, [2])
    query = bench.stream("t", startingOffsets="earliest")
    began, of = '"log": 0, "read": ["topic://public/default/t"]', f'"cluster": "{bench.client.cluster.id}"'
    assert json.dumps(query.at) == f'{{{began}, "initial": true, {of}}}'
    assert query.next() == [1]
    first = f'"log": {number}, "read": ["topic://public/default/t"]'
    assert json.dumps(query.at) == f'{{{first}, "began": {{{began}, {of}}}, {of}}}'
    number = scalable(bench, 3)
    assert query.next() == [3]
    assert json.dumps(query.at) == f'{{"log": {number}, "read": ["topic://public/default/t"], {of}}}'


def test_a_stream_reads_both_models(bench: SparkBench) -> None:
    one = scalable(bench, 1)
    two, three = bench.plain(X, [2]), bench.commit(Y, pa.table({"n": pa.array([3], pa.int64()), "more": ["a"]}))
    query = bench.stream(["t", X, Y], startingOffsets="earliest")
    assert position_of(query.at) == {"log": 0, "read": sorted(["topic://public/default/t", X, Y]), X: "0:0", Y: "0:0"}
    assert sorted(query.next()) == [1, 2, 3]
    assert position_of(query.at) == {"log": one, "read": query.at["read"], X: f"{two}:0", Y: f"{three}:0"}
    two = bench.plain(X, [4])
    again = Query(query.reader, dict(query.at))
    assert query.next() == [4]
    assert position_of(query.at) == {**position_of(again.at), X: f"{two}:0"}, "the positions of the other logs do not change"
    assert again.next() == [4], "a restart from the checkpoint reads the same row"


@pytest.mark.parametrize(("limit", "batches"), [("1", 6), ("3", 3), ("100", 1)])
def test_limits_take_the_oldest_first(bench: SparkBench, limit: str, batches: int) -> None:
    """A limit takes the oldest rows of all logs first, in whole appends. Rows of one log do not wait for rows of another log."""
    for n in range(2):
        scalable(bench, 10 * n)
        bench.plain(X, [10 * n + 1])
        bench.commit(Y, [10 * n + 2])
    query = bench.stream(["t", X, Y], startingOffsets="earliest", maxRowsPerTrigger=limit)
    found = list(query.rest())
    assert sorted(n for some in found for n in some) == [0, 1, 2, 10, 11, 12]
    assert len(found) <= batches
    assert all(len(some) <= int(limit) for some in found)
    assert sorted(found[0]) == [0, 1, 2, 10, 11, 12][: int(limit)]


def test_available_now_reads_the_rows_present_at_its_start(bench: SparkBench) -> None:
    scalable(bench, 1)
    bench.plain(X, [2])
    query = bench.stream(["t", X], startingOffsets="earliest", maxRowsPerTrigger="1")
    query.reader.prepareForTriggerAvailableNow()
    bench.plain(X, [3])
    scalable(bench, 4)
    assert sorted(n for some in query.rest() for n in some) == [1, 2]
    assert query.next(ReadAllAvailable()) == []


def test_a_pattern_finds_new_topics(bench: SparkBench) -> None:
    bench.plain(X, [1])
    query = bench.stream([], topicsPattern="persistent://.*")
    assert query.next() == []
    number = bench.plain(Y, [2])
    scalable(bench, 3)
    assert query.next() == [2], "a topic that is created later is read from its beginning"
    assert query.at[Y] == f"{number}:0"
    assert query.at["read"] == {"pattern": "persistent://.*"}


def test_topics_that_are_added_begin_at_their_first_row(bench: SparkBench) -> None:
    bench.plain(X, [1])
    bench.plain(Y, [2])
    query = bench.stream(X, startingOffsets="earliest")
    assert query.next() == [1]
    changed = Query(bench.stream([X, Y], topicsChanged="continue").reader, query.at)
    assert changed.next() == [2]
    with pytest.raises(OptionError, match="The checkpoint reads"):
        Query(bench.stream([X, Y]).reader, query.at).next()


def test_a_stream_stops_before_a_new_column_is_dropped(bench: SparkBench) -> None:
    bench.plain(X, [1])
    query = bench.stream(X, startingOffsets="earliest")
    assert query.next() == [1]
    bench.plain(X, pa.table({"n": pa.array([2], pa.int64()), "more": ["a"]}))
    with pytest.raises(SchemaChanged, match="new column more"):
        query.next()
    left_out = Query(bench.stream(X, schemaChange="ignoreNewColumns").reader, query.at)
    assert left_out.next() == [2]


def test_a_micro_batch_ends_at_the_seal(bench: SparkBench) -> None:
    """An entry above the seal is void. The micro-batch ends at the seal."""
    bench.plain(X, [1])
    instream = bench.client.instream
    instream.topics.change(persistent_name(X), lambda layout: layout.model_copy(update={"sealing": True}))
    log = instream.buffer.log(persistent_name(X))
    seal = log.append(LogEntry(kind=EntryKind.SEAL, id="seal", publish_ms=0, why="terminate"))
    log.append(LogEntry(kind=EntryKind.COMMIT, id="late", publish_ms=0, txn="1000000_1"))
    query = bench.stream(X, startingOffsets="earliest")
    assert query.next() == [1]
    assert query.at[X] == f"{seal}:0"


def test_a_start_among_trimmed_rows_is_an_error(bench: SparkBench) -> None:
    bench.plain(X, [1])
    earliest, latest = (bench.stream(X, startingOffsets=start) for start in ("earliest", "latest"))
    for n in (2, 3):
        last = bench.plain(X, [n])
    trim(bench, last - 1)
    for query in (earliest, latest):
        with pytest.raises(DataLoss, match="was trimmed by retention up to"):
            query.next()
    assert Query(bench.stream(X, failOnDataLoss="false").reader, latest.at).next() == [3]
    assert bench.numbers(X) == [3], "earliest is the first row that is kept"
    with pytest.raises(DataLoss):
        bench.batch(X, startingOffsets=json.dumps({X: "0:0"}))
    new = bench.stream(X, startingOffsets="earliest")
    assert new.next() == [3], "rows that were gone before the query began are no loss"
    bench.plain(X, [4])
    assert new.next() == [4]
    assert "from" not in new.at


def test_a_range_of_timestamps_among_trimmed_rows_is_an_error(bench: SparkBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of the range, and all later rows, are trimmed. Both timestamps then resolve to the same number, but the range is not
    empty. So the batch raises an error.
    """
    clock = bench.client.cluster.clock
    began, last = clock.now_ms(), 0
    for n in range(3):
        monkeypatch.setattr(clock, "now_ms", lambda n=n: began + 1_000 * n)
        last = bench.plain(X, [n])
    monkeypatch.setattr(clock, "now_ms", lambda: began + 60_000)
    between = {"startingTimestamp": str(began + 500), "endingTimestamp": str(began + 1_500)}
    assert bench.numbers(X, **between) == [1]
    trim(bench, last)
    with pytest.raises(DataLoss, match="was trimmed by retention up to"):
        bench.numbers(X, **between)
    assert bench.numbers(X, failOnDataLoss="false", **between) == []
    later = {"startingTimestamp": str(began + 2_500), "endingTimestamp": str(began + 3_500)}
    assert bench.numbers(X, **later) == [], "the topic never had rows of that time"


def trim(bench: SparkBench, to: int) -> None:
    """Trim the topic as retention does."""
    instream = bench.client.instream
    assert instream.sweeper.trimmer.trim_to(instream.buffer.read(persistent_name(X)), to) == to


def test_a_deleted_topic_of_a_pattern(bench: SparkBench) -> None:
    """A topic of a pattern is deleted. A stream gets DataLoss if it has not read all rows of the topic, and continues otherwise."""
    bench.plain(X, [1])
    bench.plain(Y, [2])
    read, unread = (bench.stream([], topicsPattern="persistent://.*", startingOffsets="earliest") for _ in range(2))
    assert sorted(read.next()) == [1, 2]
    before, end = unread.at, read.at
    bench.client.instream.sealing.delete(persistent_name(Y))
    assert read.next() == []
    assert Y not in read.at
    bench.plain(X, [3])
    assert read.next() == [3]
    with pytest.raises(DataLoss, match="persistent://public/default/y was deleted: rows of it after 0"):
        unread.next()
    with pytest.raises(DataLoss, match="was deleted"):
        unread.read(before, end)
    careless = Query(bench.stream([], topicsPattern="persistent://.*", failOnDataLoss="false").reader, before)
    assert careless.read(before, end) == [1]
    assert careless.next() == [1, 3]
    with pytest.raises(TopicNotFound):
        bench.batch(Y)


def test_a_checkpoint_of_another_cluster(bench: SparkBench) -> None:
    bench.plain(X, [1])
    query = bench.stream(X)
    query.at = {**query.at, X: "4711:0"}
    with pytest.raises(OffsetOutOfRange, match="lies beyond the log of persistent"):
        query.next()
    query.at = {**query.at, X: "first"}
    with pytest.raises(OffsetOutOfRange, match="is not an offset of txnsegment"):
        query.next()


def test_a_name_mapped_by_its_namespace_reads_the_segmented_topic(bench: SparkBench) -> None:
    """Streams and batches read a `topic://` topic by its persistent name. A topic given by both names is read once."""
    named = "persistent://public/new/t"
    with connect(bench.url) as cluster:
        cluster.topics.set_model("namespace://public/new", "metadata")
        cluster.topics.create(named, schema="n bigint")
        done = cluster.producer(named).write(pa.table({"n": pa.array([1], pa.int64())}))
    assert done is not None
    bench.plain(X, [2])
    assert bench.numbers([named, X, "topic://public/new/t"]) == [1, 2]
    query = bench.stream(named, startingOffsets="earliest")
    assert position_of(query.at) == {"log": 0, "read": ["topic://public/new/t"]}
    assert query.next() == [1]
    assert query.at["log"] == done.number
    with pytest.raises(OptionError, match=r'which its namespace has made topic://public/new/t\. Read .*"log": N'):
        bench.batch(named, startingOffsets=json.dumps({named: "1:0"}))


def test_an_invalid_position_is_refused(bench: SparkBench) -> None:
    """A position beyond the last entry of its append is invalid."""
    first = bench.plain(X, [1, 2, 3], entry_rows=2)
    bench.plain(X, [4])
    assert bench.numbers(X, startingOffsets=json.dumps({X: f"{first}:1"})) == [4]
    for place in (f"{first}:2", f"{first + 1}:7", "0:5"):
        with pytest.raises(OffsetOutOfRange, match="the last entry up to there is"):
            bench.batch(X, startingOffsets=json.dumps({X: place}))
