"""After a crash Spark plans the first micro-batch of a query again, and requests the initial offset anew. The tests need
no JVM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from metadata.cluster.cluster import open_cluster
from metadata.common.errors import AckConflict, DataLoss, OffsetOutOfRange
from metadata.records.cluster_records import Settings
from metadata.records.names import persistent_name, topic_name
from pyspark_txnsegment import DefaultSource
from spark_txn_source.stream import StreamReader
from tests.support.spark_bench import Query, SparkBench, X, Y
from txnsegment import Cluster, connect

TO = "topic://public/default/migrated"
PATTERN = {"topicsPattern": ".*default/[xyuvw]"}


class Site:
    """A cluster with the `topic://` topic `u` (rows 1, 2) and the `persistent://` topic `x` (rows 11, 12)."""

    def __init__(self, bench: SparkBench, cluster: Cluster) -> None:
        self.bench, self.cluster = bench, cluster
        self.write("u", 1)
        self.published = self.now()
        self.write("u", 2)
        bench.plain(X, [11])
        bench.plain(X, [12])

    def now(self) -> int:
        """Return a time that is after the publish time of the last row, and before that of the next row."""
        clock = self.cluster.client.cluster.clock
        clock.sleep(0.002)
        found = clock.now_ms()
        clock.sleep(0.002)
        return found

    def write(self, topic: str, *values: int) -> int:
        if self.cluster.client.topics.find(topic_name(topic)) is None:
            self.cluster.topics.create(topic, schema="n bigint", segments=2)
        with self.cluster.begin() as txn:
            txn.append(topic, pa.table({"n": pa.array(values, pa.int64())}))
            number = txn.commit().number
        assert number is not None
        return number

    def reader(self, **options: str) -> StreamReader:
        """Make a reader, as each new process of Spark does."""
        given = self.bench.options([], **options)
        return StreamReader(given, DefaultSource(given).schema())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    url = f"file://{tmp_path}/cluster"
    open_cluster(url, settings=Settings(deadline_allowance_ms=50)).close()  # a stream from a timestamp waits for this allowance
    bench = SparkBench(url)
    with connect(bench.url) as cluster:
        yield Site(bench, cluster)
    bench.client.close()


def logged(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offset as Spark reads it from the checkpoint."""
    return json.loads(json.dumps(offset))


def starts(site: Site) -> dict[str, dict[str, str]]:
    return {
        "latest": {"topics": f"u,{X}"},
        "earliest": {"topics": f"u,{X}", "startingOffsets": "earliest"},
        "number": {"topics": f"u,{X}", "startingOffsets": json.dumps({"log": 0, X: "1:0"})},
        "timestamp": {"topics": f"u,{X}", "startingTimestamp": str(site.published)},
        "future timestamp": {"topics": "u", "startingTimestamp": str(site.now())},
        "pattern": PATTERN,
        "pattern from earliest": {**PATTERN, "startingOffsets": "earliest"},
    }


STARTS = ("latest", "earliest", "number", "timestamp", "future timestamp", "pattern", "pattern from earliest")


def changes(site: Site) -> None:
    """Change the cluster between the plan of a batch and its replay: write to old and new topics, and sweep."""
    site.write("u", 4)
    site.bench.commit(X, [14])
    site.write("v", 5)
    site.bench.plain(Y, [15])
    site.cluster.sweep()


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("limited", [False, True])
def test_replay_of_the_first_batch_reads_the_same_rows(site: Site, start: str, limited: bool) -> None:
    options = starts(site)[start] | ({"maxRowsPerTrigger": "2"} if limited else {})
    first = site.reader(**options)
    begin = first.initialOffset()
    site.write("u", 3)
    site.bench.plain(X, [13])
    end = logged(first.latestOffset(begin, first.getDefaultReadLimit()))
    planned = Query(first, begin).read(begin, end)
    if not limited:
        assert 3 in planned
    changes(site)

    again = site.reader(**options)
    replayed = Query(again, logged(again.initialOffset()))
    assert replayed.read(replayed.at, end) == planned
    again.prepareForTriggerAvailableNow()
    assert replayed.read(again.initialOffset(), end) == planned

    # The rows after the first batch come once. No later offset has the record of the first batch's start.
    replayed.at = end
    rest = list(replayed.rest())
    assert "began" not in replayed.at
    assert "initial" not in replayed.at
    found = [*planned, *(n for batch in rest for n in batch)]
    assert sorted(found) == sorted({*found}), "a row came twice"
    whole = Query(site.reader(**options), begin)
    assert sorted(n for batch in whole.rest() for n in batch) == sorted(found), "the rows differ from those without a crash"


@pytest.mark.parametrize("start", STARTS)
def test_the_first_plan_of_a_batch_asks_for_the_initial_offset_twice(site: Site, start: str) -> None:
    """Even without a crash Spark asks for the initial offset twice: before the end is determined, and before the batch is planned.
    Both answers give the same rows.
    """
    options = starts(site)[start]
    reader = site.reader(**options)
    begin = reader.initialOffset()
    site.write("u", 3)
    end = reader.latestOffset(begin, ReadAllAvailable())
    planned = Query(reader, begin).read(begin, end)
    assert 3 in planned
    assert Query(reader, begin).read(reader.initialOffset(), end) == planned


def test_an_idle_stream_returns_its_start(site: Site) -> None:
    """An idle stream returns its start as its end, with the same JSON text. If the text differed, Spark would run a micro-batch."""
    for start, options in starts(site).items():
        reader = site.reader(**options)
        empty = logged(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
        for each in (reader, site.reader(**options)):
            assert json.dumps(each.latestOffset(empty, ReadAllAvailable())) == json.dumps(empty), start
            assert json.dumps(each.reportLatestOffset()) == json.dumps(empty), start


def by_a_cursor(site: Site, **more: str) -> tuple[dict[str, str], StreamReader, dict[str, Any], dict[str, Any], list[int]]:
    """Plan a first batch from a subscription that has acknowledged only row 2 of `u`. Return the options, the reader, the start and
    end offset of the batch, and its rows.
    """
    for topic in ("u", X):
        site.cluster.subscriptions.create(topic, "s")
    with site.cluster.consumer("u", "s") as consumer:
        consumer.ack([m for m in consumer.messages(timeout=0) if m.value["n"] == 2])
    options = {"topics": f"u,{X}", "subscription": "s", **more}
    reader = site.reader(**options)
    begin = reader.initialOffset()
    site.write("u", 3)
    end = logged(reader.latestOffset(begin, reader.getDefaultReadLimit()))
    return options, reader, begin, end, Query(reader, begin).read(begin, end)


def moved_by_another(site: Site, end: dict[str, Any]) -> None:
    for topic in ("u", X):
        site.cluster.subscriptions.seek(topic, "s", "latest")


def moved_back(site: Site, end: dict[str, Any]) -> None:
    site.write("u", 4)
    for topic in ("u", X):
        site.cluster.subscriptions.seek(topic, "s", "earliest")


def moved_by_itself(site: Site, end: dict[str, Any]) -> None:
    site.reader(topics=f"u,{X}", subscription="s").commit(end)


@pytest.mark.parametrize("moved", [moved_by_another, moved_back, moved_by_itself])
def test_replay_of_the_first_batch_of_a_subscription_whose_cursor_has_moved(
    site: Site, moved: Callable[[Site, dict[str, Any]], None]
) -> None:
    options, _, _, end, planned = by_a_cursor(site)
    assert sorted(planned) == [1, 3, 11, 12]
    moved(site, end)
    again = site.reader(**options)
    replayed = Query(again)
    assert replayed.read(replayed.at, end) == planned
    replayed.at = end
    site.write("u", 5)
    assert 5 in [n for batch in replayed.rest() for n in batch]

    # Spark commits the first batch after it has planned the second one. The commit moves the cursor.
    if moved is moved_back:
        with pytest.raises(AckConflict, match="moved back"):  # the seek has undone the acknowledgement of row 2
            again.commit(end)
        assert {row["n"] for row in site.bench.batch(["u", X], subscription="s")} == {1, 2, 3, 4, 5, 11, 12}
        return
    again.commit(end)
    again.commit(end)
    left = {row["n"] for row in site.bench.batch(["u", X], subscription="s")}
    assert not left & {1, 3, 11, 12}
    assert 5 in left or moved is moved_by_another


def test_replay_of_a_limited_first_batch_of_a_subscription(site: Site) -> None:
    options, _, _, end, planned = by_a_cursor(site, maxRowsPerTrigger="2")
    moved_by_another(site, end)
    replayed = Query(site.reader(**options))
    assert replayed.read(replayed.at, end) == planned
    replayed.at = end
    assert sorted([*planned, *(n for batch in replayed.rest() for n in batch)]) == [1, 3, 11, 12]


def test_replay_of_the_first_batch_of_a_pattern_that_joins_a_topic_meanwhile(site: Site) -> None:
    options = {**PATTERN, "subscription": "s"}
    first = site.reader(**options)
    begin = first.initialOffset()
    end = logged(first.latestOffset(begin, ReadAllAvailable()))
    planned = Query(first, begin).read(begin, end)
    assert sorted(planned) == [1, 2, 11, 12]
    changes(site)
    replayed = Query(site.reader(**options))
    assert replayed.read(replayed.at, end) == planned
    replayed.at = end
    assert sorted(n for batch in replayed.rest() for n in batch) == [4, 5, 14, 15]


@pytest.mark.parametrize("start", [{"startingOffsets": "earliest"}, {}])
def test_replay_of_the_first_batch_of_a_topic_that_was_migrated_meanwhile(site: Site, start: dict[str, str]) -> None:
    options = {"topics": X, **start}
    first = site.reader(**options)
    begin = first.initialOffset()
    site.bench.plain(X, [13])
    end = logged(first.latestOffset(begin, ReadAllAvailable()))
    planned = Query(first, begin).read(begin, end)
    assert sorted(planned) == ([11, 12, 13] if start else [13])
    site.bench.client.instream.migrator.migrate(persistent_name(X), topic_name(TO), segments=2)
    site.write("migrated", 21)
    replayed = Query(site.reader(**options))
    assert replayed.read(replayed.at, end) == planned
    replayed.at = end
    assert [n for batch in replayed.rest() for n in batch] == [21]


def test_replay_of_the_first_batch_after_retention_took_rows_is_data_loss(site: Site) -> None:
    """Retention trims rows of the first batch. A replay of the batch raises DataLoss. This holds also for an end offset that an
    older version of the product wrote, which does not record the start of the batch.
    """
    options = {"topics": "u", "startingOffsets": "earliest"}
    first = site.reader(**options)
    begin = first.initialOffset()
    end = logged(first.latestOffset(begin, ReadAllAvailable()))
    site.write("u", 3)
    site.cluster.sweep()
    site.cluster.retention.set("u", keep=timedelta(milliseconds=1))
    site.now()
    assert site.cluster.retention.trim("u").rows
    again = site.reader(**options)
    initial = again.initialOffset()
    assert initial["from"]
    older = {name: value for name, value in end.items() if name != "began"}
    for planned in (end, older):
        with pytest.raises(DataLoss, match="trimmed by retention"):
            again.partitions(initial, planned)
        assert Query(site.reader(failOnDataLoss="false", **options), initial).read(initial, planned) == []


def test_a_stream_from_earliest_after_a_trim_replays_its_first_batch(site: Site) -> None:
    site.write("u", 3)
    site.cluster.sweep()
    site.cluster.retention.set("u", keep=timedelta(milliseconds=1))
    site.now()
    site.cluster.retention.trim("u")
    site.write("u", 4)
    options = {"topics": "u", "startingOffsets": "earliest"}
    first = Query(site.reader(**options))
    end = logged(first.reader.latestOffset(first.at, ReadAllAvailable()))
    planned = first.read(first.at, end)
    assert 4 in planned
    site.write("u", 5)
    again = Query(site.reader(**options))
    assert again.read(again.at, end) == planned


def test_a_first_batch_planned_by_an_older_version_continues(site: Site) -> None:
    """The offsets of an older version of the product do not record the start. A replay from a log number, or from earliest, does
    not need this record.
    """
    for options in ({"topics": "u", "startingOffsets": "earliest"}, {"topics": "u", "startingOffsets": '{"log": 0}'}):
        first = site.reader(**options)
        begin = first.initialOffset()
        end = first.latestOffset(begin, ReadAllAvailable())
        older_begin, older_end = ({n: v for n, v in o.items() if n not in ("initial", "began")} for o in (begin, end))
        planned = Query(first, begin).read(begin, end)
        assert Query(first, begin).read(older_begin, older_end) == planned
        assert Query(first, begin).read(site.reader(**options).initialOffset(), older_end) == planned
        assert first.latestOffset(older_end, ReadAllAvailable()) == older_end


@pytest.mark.parametrize(
    "damage", [{"initial": "yes"}, {"initial": 1}, {"began": 7}, {"began": []}, {"began": {"log": -1}}, {"began": {}}]
)
def test_a_damaged_record_of_the_start_is_an_error(site: Site, damage: dict[str, Any]) -> None:
    reader = site.reader(topics="u")
    begin = reader.initialOffset()
    with pytest.raises(OffsetOutOfRange, match="not an offset of txnsegment"):
        reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()) | damage)
