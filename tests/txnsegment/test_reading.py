"""Tests of `cluster.topics.read` and `.follow`: the same rows as a batch and a stream of Spark, as Arrow, without Spark."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from metadata.common.errors import CorruptPart, DataLoss, OffsetOutOfRange, OptionError, SchemaChanged, SchemaError, TopicNotFound
from txnsegment import Cluster, connect, reading

LEGACY = "persistent://public/default/legacy"


def write(cluster: Cluster, topic: str, *numbers: int, **more: Any) -> None:
    with cluster.begin() as txn:
        txn.append(
            topic, [{"k": f"k{n % 5}", "n": n} | more for n in numbers], key=None if topic == LEGACY else "k", merge_schema=True
        )
        txn.commit()


def numbers(reader: Any) -> list[int]:
    return pa.table(reader).column("n").to_pylist()


@pytest.fixture
def orders(cluster: Cluster) -> Cluster:
    """A cluster whose topic `t` of four segments has the rows 0 to 29, of three transactions."""
    cluster.topics.create("t", segments=4, key="k", schema="k string, n bigint")
    for start in (0, 10, 20):
        write(cluster, "t", *range(start, start + 10))
    return cluster


def test_pandas_polars_and_duckdb_take_a_topic_in_one_line(orders: Cluster) -> None:
    read = orders.topics.read
    assert sorted(read("t").read_pandas()["n"]) == list(range(30))
    assert sorted(pl.DataFrame(read("t"))["n"]) == list(range(30))
    assert duckdb.from_arrow(read("t", columns=["n"])).aggregate("count(*), sum(n)").fetchall() == [(30, 435)]
    assert read("t", columns=["n", "k"]).schema.names == ["n", "k"]


def test_a_read_has_the_rows_of_a_batch_of_spark(orders: Cluster, url: str) -> None:
    from pyspark_txnsegment import DefaultSource

    options = {"serviceUrl": url, "topic": "t", "includeMetadata": "true"}
    source = DefaultSource(options)
    reader = source.reader(source.schema())
    of_spark = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    ours = orders.topics.read("t", metadata=True).read_all().to_pylist()
    assert sorted(ours, key=lambda row: row["n"]) == sorted(of_spark, key=lambda row: row["n"])


def test_rows_come_in_the_order_of_the_log(orders: Cluster) -> None:
    found = numbers(orders.topics.read("t"))
    assert [sorted(found[i : i + 10]) for i in (0, 10, 20)] == [list(range(i, i + 10)) for i in (0, 10, 20)]
    orders.topics.split("t", 0)
    orders.topics.merge("t", 2, 3)
    write(orders, "t", 30, 31)
    orders.sweep()
    assert set(numbers(orders.topics.read("t"))[-2:]) == {30, 31}


def test_a_read_goes_from_its_start_to_its_end(orders: Cluster) -> None:
    read = orders.topics.read
    after = json.loads(orders.snapshot("t"))["log"]
    now = datetime.datetime.now(datetime.UTC)
    write(orders, "t", 30)
    assert numbers(read("t", start=after)) == [30]
    assert len(numbers(read("t", end=after))) == 30
    assert numbers(read("t", start="latest")) == []
    assert numbers(read("t", start=json.dumps({"log": after}))) == [30]
    assert len(numbers(read("t", end=orders.snapshot("t")))) == 31
    assert len(numbers(read("t", start=now - datetime.timedelta(days=1)))) == 31


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"name": "none"}, TopicNotFound, "none"),
        ({"columns": ["x"]}, SchemaError, "There is no column x"),
        ({"columns": "n"}, OptionError, "one text"),
        ({"columns": []}, OptionError, "columns"),
        ({"start": -1}, OptionError, "start=-1 is no place"),
        ({"start": True}, OptionError, "start=True is no place"),
        ({"end": 2.5}, OptionError, "end=2.5 is no place"),
        ({"start": "soon"}, OptionError, "soon"),
        ({"end": datetime.datetime(2026, 1, 1)}, OptionError, "zone"),
        ({"end": 999}, OffsetOutOfRange, "999"),
        ({"start": 3, "end": 1}, OffsetOutOfRange, "after"),
    ],
)
def test_a_read_that_cannot_be_planned_is_refused_at_once(
    orders: Cluster, arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        orders.topics.read(**{"name": "t", **arguments})


def test_a_topic_without_a_schema_cannot_be_read(cluster: Cluster) -> None:
    cluster.topics.create("t")
    with pytest.raises(SchemaError, match="no schema yet"):
        cluster.topics.read("t")


def test_a_column_that_comes_while_the_read_is_planned_is_read(orders: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows with the new column are committed right before the logs are read."""
    planned = reading.read_batch

    def late(*arguments: Any) -> Any:
        write(orders, "t", 30, more="x")
        return planned(*arguments)

    monkeypatch.setattr(reading, "read_batch", late)
    assert orders.topics.read("t").read_all().to_pylist()[-1] == {"k": "k0", "n": 30, "more": "x"}


def test_an_empty_topic_has_columns_and_no_row(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="a string, b decimal(10,2), c timestamp")
    found = cluster.topics.read("t").read_all()
    assert (found.column_names, found.num_rows) == (["a", "b", "c"], 0)


def test_undecided_and_aborted_rows_are_not_read(orders: Cluster) -> None:
    open_one = orders.begin()
    open_one.append("t", [{"k": "x", "n": 99}])
    assert len(numbers(orders.topics.read("t"))) == 30
    open_one.abort()
    assert len(numbers(orders.topics.read("t"))) == 30


def test_a_reader_keeps_its_rows_whatever_happens_after_it_was_made(orders: Cluster) -> None:
    reader = orders.topics.read("t")
    first = reader.read_next_batch()
    write(orders, "t", *range(30, 40))
    orders.compact("t")
    orders.topics.delete("t")
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 30


def test_a_reader_that_is_half_used_can_be_dropped(orders: Cluster) -> None:
    reader = orders.topics.read("t")
    reader.read_next_batch()
    reader.close()
    del reader
    assert len(numbers(orders.topics.read("t"))) == 30


def test_a_reader_goes_on_after_its_cluster_was_closed(orders: Cluster, url: str) -> None:
    with connect(url) as own:
        reader = own.topics.read("t")
    assert len(numbers(reader)) == 30


def test_compacted_rows_are_read_as_before(orders: Cluster) -> None:
    before = orders.topics.read("t", metadata=True).read_all()
    orders.sweep()
    assert orders.compact("t").files_before > 0
    assert orders.topics.read("t", metadata=True).read_all().to_pylist() == before.to_pylist()


def test_trimmed_rows_are_data_loss_if_the_start_asks_for_them(orders: Cluster) -> None:
    inner = orders.client.cluster
    inner.settings = inner.settings.model_copy(update={"fold_after_registrations": 1})
    orders.retention.set("t", keep_bytes=1)
    orders.sweep()
    assert orders.retention.trim("t").rows + 30 >= 30
    write(orders, "t", 30)
    assert numbers(orders.topics.read("t")) == [30]
    with pytest.raises(DataLoss, match="trimmed by retention"):
        orders.topics.read("t", start=0)


def test_a_damaged_part_is_an_error_that_names_it(orders: Cluster, tmp_path: Path) -> None:
    part = sorted(tmp_path.rglob("*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(CorruptPart, match=part.name):
        orders.topics.read("t").read_all()
    with pytest.raises(pl.exceptions.PolarsError, match=part.name):
        pl.DataFrame(orders.topics.read("t"))


def test_several_topics_are_read_as_a_union(orders: Cluster) -> None:
    write(orders, "u", 30, more="x")
    found = orders.topics.read(["t", "u"]).read_all()
    assert (found.column_names, found.num_rows) == (["k", "n", "more"], 31)
    segment = orders.topics.describe("t").segments[0].name
    assert 0 < len(numbers(orders.topics.read(segment))) < 30


def test_marker_based_and_migrated_topics_are_read(cluster: Cluster) -> None:
    write(cluster, LEGACY, 1, 2)
    assert numbers(cluster.topics.read(LEGACY)) == [1, 2]
    cluster.topics.migrate(LEGACY, "topic://public/default/new")
    write(cluster, "new", 3)
    assert numbers(cluster.topics.read(LEGACY)) == [1, 2, 3]
    assert numbers(cluster.topics.read("new")) == [1, 2, 3]


def test_a_topic_with_an_avro_schema_is_read_as_columns(cluster: Cluster) -> None:
    cluster.topics.create("t")
    fields = [{"name": "k", "type": "string"}, {"name": "n", "type": "long"}]
    cluster.topics.set_schema("t", {"type": "record", "name": "r", "fields": fields})
    write(cluster, "t", 1, 2)
    assert cluster.topics.read("t").read_all().to_pylist() == [{"k": "k1", "n": 1}, {"k": "k2", "n": 2}]


# --- following ------------------------------------------------------------------------------------------------------


def some(rows: Iterator[pa.RecordBatch], count: int) -> list[int]:
    """Return the next `count` numbers. They must end with a batch."""
    found: list[int] = []
    while len(found) < count:
        found += next(rows).column("n").to_pylist()
    assert len(found) == count
    return found


def test_following_gives_new_rows_as_they_are_committed(orders: Cluster, url: str) -> None:
    rows = orders.topics.follow("t")

    def program() -> None:
        with connect(url) as other:
            for number in range(30, 40):
                write(other, "t", number)
            other.begin().append("t", [{"k": "x", "n": 99}])

    writer = threading.Thread(target=program)
    writer.start()
    assert sorted(some(rows, 10)) == list(range(30, 40))
    writer.join()
    assert orders.subscriptions.list() == []


def test_following_begins_where_it_is_told(orders: Cluster) -> None:
    assert sorted(some(orders.topics.follow("t", start="earliest"), 30)) == list(range(30))
    after = json.loads(orders.snapshot("t"))["log"]
    late = orders.topics.follow("t")
    write(orders, "t", 30)
    assert some(late, 1) == [30]
    assert some(orders.topics.follow("t", start=after, columns=["n"]), 1) == [30]
    with pytest.raises(TopicNotFound):
        orders.topics.follow("none")
    with pytest.raises(OptionError, match="start=-1"):
        orders.topics.follow("t", start=-1)


def test_following_goes_on_over_splits_and_with_new_columns(orders: Cluster) -> None:
    rows = orders.topics.follow("t")
    chosen = orders.topics.follow("t", columns=["k", "n"])
    write(orders, "t", 30)
    orders.topics.split("t", 0)
    write(orders, "t", 31)
    assert some(rows, 2) == [30, 31]
    write(orders, "t", 32, more="x")
    assert next(rows).to_pylist() == [{"k": "k2", "n": 32, "more": "x"}]
    assert some(chosen, 3) == [30, 31, 32]


def test_following_chosen_columns_ends_if_they_change(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n int")
    rows = cluster.topics.follow("t", columns=["n"])
    with cluster.begin() as txn:
        txn.append("t", [{"n": 2**40}], merge_schema=True)
        txn.commit()
    with pytest.raises(SchemaChanged, match="n is bigint, was int"):
        next(rows)


def test_following_a_topic_that_is_deleted_is_data_loss(orders: Cluster) -> None:
    rows = orders.topics.follow("t")
    write(orders, "t", 30)
    assert some(rows, 1) == [30]
    write(orders, "t", 31)
    orders.topics.delete("t")
    with pytest.raises((DataLoss, TopicNotFound)):
        next(rows)


def test_following_goes_on_over_a_migration(cluster: Cluster) -> None:
    write(cluster, LEGACY, 1)
    rows = cluster.topics.follow(LEGACY, start="earliest")
    assert some(rows, 1) == [1]
    write(cluster, LEGACY, 2)
    cluster.topics.migrate(LEGACY, "topic://public/default/new")
    write(cluster, "new", 3)
    assert some(rows, 2) == [2, 3]


def test_following_ends_with_its_iterator(orders: Cluster) -> None:
    before = set(threading.enumerate())
    rows = orders.topics.follow("t", start="earliest")
    list(islice(rows, 1))
    rows.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before | set(threading.enumerate())
