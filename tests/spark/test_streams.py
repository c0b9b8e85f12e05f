"""Tests of the streaming source in Spark: starts, limits, restarts, replays, changes of schema and topics."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from metadata.client.logs import Logs
from metadata.common.errors import OffsetOutOfRange, SchemaChanged, TopicNotFound
from metadata.read.reading import Reading
from metadata.records.names import topic_name
from pyspark_txnsegment import DefaultSource
from spark_txn_source.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import Row

    from tests.spark.conftest import Deployment


def numbers(values: Iterable[int], **more: object) -> pa.Table:
    return pa.table({"n": pa.array(list(values), pa.int64()), **more})


def only(batches: list[list[Row]]) -> list[list[int]]:
    return [sorted(row["n"] for row in batch) for batch in batches]


def ten(here: Deployment, topic: str = "t", first: int = 0) -> list[int]:
    """Commit ten transactions of ten rows each to a topic of two segments. Return the numbers of their registrations."""
    if here.cluster.client.topics.find(topic_name(topic)) is None:
        here.cluster.topics.create(topic, segments=2, key="n", schema="n bigint")
    return [here.append(topic, numbers(range(first + i * 10, first + i * 10 + 10))) for i in range(10)]


def reader(here: Deployment, topic: str = "t", **options: str) -> StreamReader:
    """Make the reader of Spark's driver, so that a test can call it directly."""
    given = {"serviceUrl": here.url, **({} if "topicsPattern" in options else {"topic": topic}), **options}
    return StreamReader(given, DefaultSource(given).schema())


# --- starts -------------------------------------------------------------------------------------------------------


def test_each_starting_offset_selects_its_rows(here: Deployment) -> None:
    log = ten(here)
    published = [
        r[0]
        for r in here.read(includeMetadata="true")
        .selectExpr("unix_millis(__publishTime) p", "n")
        .where("n % 10 = 0")
        .orderBy("n")
        .collect()
    ]
    for options, rows in (
        ({"startingOffsets": "earliest"}, 100),
        ({"startingOffsets": "latest"}, 0),
        ({}, 0),
        ({"startingOffsets": json.dumps({"log": log[6]})}, 30),
        ({"startingTimestamp": str(published[0])}, 100),
        ({"startingTimestamp": str(published[-1] + 1)}, 0),
    ):
        here_reader = reader(here, **options)
        start = here_reader.initialOffset()
        end = here_reader.latestOffset(start, ReadAllAvailable())
        assert sum(p.rows for t in here_reader.partitions(start, end) for p in t.pieces) == rows
    with pytest.raises(OffsetOutOfRange, match="lies beyond the log"):
        reader(here, startingOffsets='{"log": 4711}').initialOffset()


def test_the_start_counts_for_a_new_checkpoint_only(here: Deployment) -> None:
    ten(here)
    assert only(here.drain(here.stream())) == []
    here.append("t", numbers([1000]))
    assert only(here.drain(here.stream(startingOffsets="earliest"))) == [[1000]]


def test_a_checkpoint_of_another_cluster_is_refused(here: Deployment) -> None:
    ten(here)
    here.drain(here.stream(startingOffsets="earliest"))
    here.cluster.close()
    here._cluster = None
    here.url += "-anew"
    here.cluster.topics.create("t", schema="n bigint")
    here.append("t", numbers([1]))
    with pytest.raises(PySparkException, match=r"OffsetOutOfRange.*offset is one of the cluster"):
        here.drain(here.stream())


# --- limits -------------------------------------------------------------------------------------------------------


def test_limits_take_whole_transactions_and_always_move(here: Deployment) -> None:
    ten(here)
    for at, (options, sizes) in enumerate(
        [
            ({"maxRowsPerTrigger": "1"}, [10] * 10),
            ({"maxRowsPerTrigger": "35"}, [30, 30, 30, 10]),
            ({"maxBytesPerTrigger": "1b"}, [10] * 10),
            ({"maxBytesPerTrigger": "1g", "maxRowsPerTrigger": "50"}, [50, 50]),
            ({}, [100]),
        ]
    ):
        batches = only(here.drain(here.stream(startingOffsets="earliest", **options), f"checkpoint-{at}"))
        assert [len(b) for b in batches] == sizes
        assert [n for b in batches for n in b] == list(range(100))


def test_available_now_ends_at_its_target(here: Deployment) -> None:
    """Rows that are committed during a run belong to the next run."""
    ten(here)
    seen: list[list[int]] = []

    def keep(rows, batch: int) -> None:  # type: ignore[no-untyped-def]
        seen.append(sorted(r["n"] for r in rows.collect()))
        here.append("t", numbers([1000 + batch]))

    def run() -> None:
        df = here.stream(startingOffsets="earliest", maxRowsPerTrigger="50")
        query = (
            df.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(here.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert seen == [list(range(50)), list(range(50, 100))]
    run()
    assert seen[2:] == [[1000, 1001]]


def test_a_minimum_of_rows_holds_a_micro_batch_back(here: Deployment) -> None:
    """The first micro-batch of a run does not wait. A run of AvailableNow reads what there is."""
    here.cluster.topics.create("t", schema="n bigint")
    here.append("t", numbers(range(10)))
    seen: list[list[int]] = []

    def keep(rows, batch: int) -> None:  # type: ignore[no-untyped-def]
        seen.append(sorted(r["n"] for r in rows.collect()))

    df = here.stream(startingOffsets="earliest", minOffsetsPerTrigger="25", maxTriggerDelay="1h")
    writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(here.folder / "checkpoint"))
    query = writer.start()
    here.queries.append(query)
    query.processAllAvailable()
    assert seen == [list(range(10))]
    here.append("t", numbers(range(10, 20)))
    query.processAllAvailable()
    assert seen[1:] == []
    here.append("t", numbers(range(20, 35)))
    query.processAllAvailable()
    assert seen[1:] == [list(range(10, 35))]
    here.append("t", numbers([35]))
    query.processAllAvailable()
    query.stop()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen[2:] == [[35]]


# --- restarts and replays -----------------------------------------------------------------------------------------


def test_a_restart_resumes_and_a_lost_commit_replays_the_same_rows(here: Deployment) -> None:
    ten(here)
    stream = here.stream(startingOffsets="earliest", maxRowsPerTrigger="50")
    assert only(here.drain(stream)) == [list(range(50)), list(range(50, 100))]
    ten(here, first=100)
    _forget_commit(here.folder / "checkpoint", 1)
    here.cluster.client.sweeper.sweep()  # this sweep folds the log between the runs
    assert only(here.drain(stream)) == [list(range(50, 100)), list(range(100, 150)), list(range(150, 200))]
    assert only(here.drain(stream)) == []


def _forget_commit(checkpoint: Path, batch: int) -> None:
    """Delete Spark's record that this batch is done, so that a restart runs the batch again."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


def test_a_replay_is_the_same_after_folding_and_forgetting(here: Deployment) -> None:
    log = ten(here)
    start, end = ({"log": n, "read": ["topic://public/default/t"]} for n in (log[1], log[7]))
    one = reader(here)

    def planned() -> list[tuple[str, int, str]]:
        return [(p.segment, p.ledger, p.part.path) for t in one.partitions(start, end) for p in t.pieces]

    first = planned()
    assert {ledger for _, ledger, _ in first} == set(log[2:8])
    here.cluster.client.sweeper.sweep()
    assert planned() == first
    ten(here, first=100)
    here.cluster.client.sweeper.sweep()
    assert planned() == first
    assert [(p.segment, p.ledger, p.part.path) for t in reader(here).partitions(start, end) for p in t.pieces] == first
    with pytest.raises(OffsetOutOfRange):
        one.partitions(start, {"log": 10**6, "read": ["topic://public/default/t"]})


def test_foreign_offsets_are_refused(here: Deployment) -> None:
    ten(here)
    one = reader(here)
    for offset in ({}, {"log": -1}, {"log": "3"}, {"log": True}, {"value": 5}):
        with pytest.raises(OffsetOutOfRange, match="not an offset of txnsegment"):
            one.partitions(offset, offset)


def test_a_stream_is_not_woken_by_other_topics(here: Deployment) -> None:
    log = ten(here)
    ten(here, "other")
    one = reader(here, startingOffsets="earliest")
    offset = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    assert offset["log"] == log[-1]
    assert one.reportLatestOffset() == offset
    ten(here, "other", first=100)
    assert one.latestOffset(offset, ReadAllAvailable()) == offset
    assert one.reportLatestOffset() == offset
    here.cluster.client.sweeper.sweep()
    assert one.latestOffset(offset, ReadAllAvailable()) == offset
    assert one.reportLatestOffset() == offset, "what latestOffset has read"
    number = here.append("t", numbers([1000]))
    assert one.reportLatestOffset() == {**offset, "log": number}


def test_a_new_batch_is_planned_from_the_reading_of_its_end(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a micro-batch reads the log once. A replay reads it again."""
    ten(here)
    one = reader(here, startingOffsets="earliest")
    reads, plain = list[int](), Logs.to

    def counted(self: Logs, starts: Mapping[str, int], ends: Mapping[str, int], *, fail: bool) -> tuple[Reading, ...]:
        reads.append(ends["log"])
        return plain(self, starts, ends, fail=fail)

    monkeypatch.setattr(Logs, "to", counted)
    monkeypatch.setattr("spark_txn_source.stream.MOST_SECONDS", 60.0)  # a busy machine may need more than a tenth of a second
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    planned = one.partitions(start, end)
    assert planned
    assert not reads
    assert pickle.dumps(one.partitions(start, end)) == pickle.dumps(planned)
    assert reads == [end["log"]]
    ten(here, first=100)
    later = one.latestOffset(end, ReadAllAvailable())
    monkeypatch.setattr("spark_txn_source.stream.MOST_SECONDS", 0.0)
    assert one.partitions(end, later)
    assert reads == [end["log"], later["log"]], "the plan came too late"


def test_process_all_available_waits_for_earlier_commits(here: Deployment) -> None:
    here.cluster.topics.create("t", schema="n bigint")
    seen: list[int] = []
    query = (
        here.stream(startingOffsets="earliest")
        .writeStream.option("checkpointLocation", str(here.folder / "checkpoint"))
        .foreachBatch(lambda rows, _: seen.extend(r["n"] for r in rows.collect()))
        .start()
    )
    here.queries.append(query)
    for i in range(8):
        here.append("t", numbers([i]))
        query.processAllAvailable()
        assert seen == list(range(i + 1))


# --- topics that change --------------------------------------------------------------------------------------------


def test_topics_that_differ_from_the_checkpoint_are_refused_or_continued(here: Deployment) -> None:
    ten(here, "b", first=1000)
    ten(here, "a")
    assert len(only(here.drain(here.stream("a", startingOffsets="earliest")))) == 1
    both = ["a", "b"]
    with pytest.raises(PySparkException, match=r"OptionError.*topic://public/default/a.*topicsChanged=continue"):
        here.drain(here.stream(both))
    assert only(here.drain(here.stream(both, topicsChanged="continue"))) == []
    here.append("b", numbers([2000]))
    here.append("a", numbers([200]))
    assert only(here.drain(here.stream(both, topicsChanged="continue"))) == [[200, 2000]]
    assert only(here.drain(here.stream(["b", "a"]))) == []


def test_a_replay_reads_the_topics_that_it_was_planned_for(here: Deployment) -> None:
    """A replay reads only the topics of the original plan, and no topic that was added since. Rows of an added topic could be lost
    in a replay, because the sink skips the replay if it has already committed the batch.
    """
    ten(here, "a")
    here.drain(here.stream("a", startingOffsets="earliest"))
    ten(here, "b", first=1000)
    here.append("a", numbers([200]))
    assert only(here.drain(here.stream("a"))) == [[200]]
    checkpoint = here.folder / "checkpoint"
    _forget_commit(checkpoint, max(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit()))
    here.append("b", numbers([2000]))
    assert only(here.drain(here.stream(["a", "b"], topicsChanged="continue"))) == [[200], [2000]]


@pytest.mark.parametrize(("before", "after"), [(["a"], ["a", "b"]), (["a", "b"], ["b"])])
def test_a_replay_of_other_topics_with_other_columns(here: Deployment, before: list[str], after: list[str]) -> None:
    """The replayed batch has the columns of the new read. Columns that its own topics lack are null."""
    here.cluster.topics.create("a", schema="n int, s struct<x:int>, only_a string")
    here.cluster.topics.create("b", schema="n bigint, s struct<x:int,y:int>, only_b string")
    a = pa.table({"n": pa.array([1], pa.int32()), "s": pa.array([{"x": 5}], pa.struct([("x", pa.int32())])), "only_a": ["a"]})
    here.drain(here.stream(before, startingOffsets="earliest"))
    here.append("a", a)
    assert only(here.drain(here.stream(before))) == [[1]]
    checkpoint = here.folder / "checkpoint"
    _forget_commit(checkpoint, max(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit()))
    here.append("b", numbers([2]))
    found = [[r.asDict(recursive=True) for r in rows] for rows in here.drain(here.stream(after, topicsChanged="continue"))]
    shared = {"n": 1, "s": {"x": 5, "y": None}, "only_b": None}
    own = {"only_a": "a"} if "a" in after else {}
    assert found == [[shared | own], [{"n": 2, "s": None, "only_b": None} | dict.fromkeys(own)]]


def test_a_replay_whose_columns_do_not_fit_is_refused(here: Deployment) -> None:
    here.cluster.topics.create("a", schema="n bigint")
    here.cluster.topics.create("b", schema="n int")
    start, end = here.append("a", numbers([1])), here.append("a", numbers([2]))
    one = reader(here, "b", topicsChanged="continue")
    offsets = [{"log": n, "read": ["topic://public/default/a"]} for n in (start, end)]
    with pytest.raises(SchemaChanged, match="n is bigint there, int here"):
        one.partitions(*offsets)


def test_a_new_topic_that_matches_appears(here: Deployment) -> None:
    ten(here, "log-a")
    stream = here.stream(None, topicsPattern="topic://public/default/log-.*", startingOffsets="earliest")
    assert only(here.drain(stream)) == [list(range(100))]
    ten(here, "log-b", first=100)
    ten(here, "elsewhere", first=500)
    assert only(here.drain(stream)) == [list(range(100, 200))]


def test_a_deleted_topic(here: Deployment) -> None:
    ten(here, "log-a")
    ten(here, "log-b", first=100)
    one = reader(here, "log-a", startingOffsets="earliest")
    start = one.initialOffset()
    many = reader(here, topicsPattern="topic://public/default/log-.*", startingOffsets="earliest")
    offset = many.latestOffset(many.initialOffset(), ReadAllAvailable())
    here.cluster.topics.delete("log-a")
    with pytest.raises(TopicNotFound, match="log-a"):
        one.latestOffset(start, ReadAllAvailable())
    here.append("log-b", numbers([1000]))
    end = many.latestOffset(offset, ReadAllAvailable())
    assert sum(p.rows for t in many.partitions(offset, end) for p in t.pieces) == 1


# --- schemas that change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["new column", "wider"])
def test_a_changed_schema_stops_the_stream_before_a_row_is_dropped(here: Deployment, change: str) -> None:
    here.cluster.topics.create("t", schema="n int")
    here.append("t", pa.table({"n": pa.array([1], pa.int32())}))
    seen: list[list[Row]] = []
    query = (
        here.stream(startingOffsets="earliest")
        .writeStream.option("checkpointLocation", str(here.folder / "checkpoint"))
        .foreachBatch(lambda rows, _: seen.append(rows.collect()))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    here.queries.append(query)
    query.processAllAvailable()
    assert [[r["n"] for r in b] for b in seen] == [[1]]
    here.append("t", pa.table({"n": pa.array([2], pa.int32()), "m": ["new"]}) if change == "new column" else numbers([2**40]))
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(60)
    assert "SchemaChanged" in str(caught.value)
    assert ("new column m string" if change == "new column" else "n is bigint, was int") in str(caught.value)
    assert "Restart the query" in str(caught.value)
    found = here.drain(here.stream())
    assert [[tuple(r) for r in b] for b in found] == [[(2, "new")] if change == "new column" else [(2**40,)]]


def test_new_columns_may_be_ignored_but_not_wider_ones(here: Deployment) -> None:
    here.cluster.topics.create("t", schema="n int, s struct<x:int>")
    for times, options in enumerate(({"schemaChange": "ignoreNewColumns"}, {"columns": "n"}), 1):
        plain = reader(here, startingOffsets="earliest", **options)
        start = plain.initialOffset()
        here.append("t", pa.table({"n": pa.array([1], pa.int32()), "m": ["new"], "s": [{"x": 1, "y": "deep"}]}).cast(
            pa.schema([("n", pa.int32()), ("m", pa.string()), ("s", pa.struct([("x", pa.int32()), ("y", pa.string())]))])
        ))  # fmt: skip
        end = plain.latestOffset(start, ReadAllAvailable())
        rows = [b for t in plain.partitions(start, end) for b in plain.read(t)]
        assert [n for batch in rows for n in batch.column(0).to_pylist()] == [1] * times
        if "columns" not in options:
            assert rows[-1].to_pylist()[0] == {"n": 1, "s": {"x": 1}}
        here.cluster.client.sweeper.sweep()
    one = reader(here, startingOffsets="earliest", schemaChange="ignoreNewColumns")
    start = one.initialOffset()
    here.append("t", numbers([2**40]))
    with pytest.raises(SchemaChanged, match="n is bigint, was int"):
        one.latestOffset(start, ReadAllAvailable())


# --- chains of streams --------------------------------------------------------------------------------------------


def test_streams_in_a_chain(here: Deployment) -> None:
    """Streams copy t to u, and u to v. Each row is written once, over restarts and the loss of one of Spark's commit records."""
    ten(here)

    def run(source: str, target: str, **options: str) -> None:
        df = here.stream(source, startingOffsets="earliest", **options)
        query = (
            df.selectExpr("n", f"'{source}' came_from")
            .writeStream.format("txnsegment")
            .option("serviceUrl", here.url)
            .option("segments", 3)
            .option("keyColumn", "n")
            .option("checkpointLocation", str(here.folder / f"checkpoint-{target}"))
            .trigger(availableNow=True)
            .start(target)
        )
        query.awaitTermination()

    for first in (100, 200):
        run("t", "u", maxRowsPerTrigger="60")
        run("u", "v", maxRowsPerTrigger="1")
        commits = here.folder / "checkpoint-v" / "commits"
        _forget_commit(commits.parent, max(int(p.name) for p in commits.iterdir() if p.name.isdigit()))
        ten(here, first=first)
    run("t", "u")
    run("u", "v")
    assert sorted(r["n"] for r in here.read("v").collect()) == list(range(300))
    assert sorted(r["n"] for r in here.scan("v").collect()) == list(range(300))
