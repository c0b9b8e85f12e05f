"""Tests that programs create the topics that they write to, by the same rule as Spark's writes."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from metadata.common.errors import OptionError, SchemaError, TopicExists, TopicNotFound
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from tests.support.rows import rows, rows_by_segment
from txnsegment import Cluster, SegmentsIgnored, connect

LEGACY = "persistent://public/default/legacy"


def table(*keys: str | None) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string()), "n": pa.array(range(len(keys)), pa.int64())})


def columns(cluster: Cluster, topic: str) -> str:
    schema = cluster.topics.describe(topic).schema
    assert schema is not None
    return schema.simpleString()


def topics(cluster: Cluster) -> list[str]:
    return [topic.name for topic in cluster.topics.list()]


def test_the_first_rows_create_the_topic_with_their_columns(cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("new", table("a", "b"))
        txn.append("new", pa.table({"n": [7], "more": [True]}), merge_schema=True)
        txn.commit()
    assert columns(cluster, "new") == "struct<k:string,n:bigint,more:boolean>"
    assert len(cluster.topics.describe("new").segments) == 1
    assert [row["n"] for row in rows(cluster, "new")] == [0, 1, 7]


def test_a_created_topic_has_the_given_segments_and_key(cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("new", table("a", "b", "c", "d"), key="k", segments=4)
        txn.commit()
    topic = cluster.topics.describe("new")
    assert (topic.key, len(topic.segments)) == ("k", 4)
    assert sum(bool(found) for found in rows_by_segment(cluster, "new").values()) > 1


def test_a_transaction_that_aborts_leaves_an_empty_topic(cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("new", table("a"))
        txn.abort()
    assert columns(cluster, "new") == "struct<k:string,n:bigint>"
    assert rows(cluster, "new") == []


def test_no_topic_is_created_on_request(cluster: Cluster) -> None:
    with pytest.raises(TopicNotFound), cluster.begin() as txn:
        txn.append("new", table("a"), auto_create=False)
    with pytest.raises(TopicNotFound):
        cluster.producer("new", auto_create=False)
    assert topics(cluster) == []


@pytest.mark.parametrize("given", [table(), table().to_batches(), iter([table()])], ids=["table", "batches", "iterable"])
def test_rows_that_are_empty_create_the_topic_if_they_show_its_columns(cluster: Cluster, given: Any) -> None:
    with cluster.begin() as txn:
        if isinstance(given, list) and not given:
            with pytest.raises(TopicNotFound):
                txn.append("new", given)
            return
        txn.append("new", given)
        txn.commit()
    assert columns(cluster, "new") == "struct<k:string,n:bigint>"


@pytest.mark.parametrize(
    ("given", "options", "error", "says"),
    [
        (pa.table({"void": pa.nulls(1)}), {}, SchemaError, "The column void"),
        (pa.table({"t": pa.array([1], pa.time64("us"))}), {}, SchemaError, "The column t"),
        (pa.table({"u": pa.array([1], pa.uint64())}), {}, SchemaError, "The column u"),
        (table("a"), {"key": "x"}, OptionError, "'x' is not a column"),
        (pa.table({"f": [1.5]}), {"key": "f"}, OptionError, "cannot be a key"),
        (table("a"), {"segments": 0}, OptionError, "segment"),
    ],
    ids=["void", "time", "unsigned", "missing key", "float key", "no segments"],
)
def test_rows_that_no_topic_takes_create_none(
    cluster: Cluster, given: pa.Table, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says), cluster.begin() as txn:
        txn.append("new", given, **options)
    assert topics(cluster) == []


def test_a_topic_without_a_key_gets_the_key_of_the_first_commit(cluster: Cluster) -> None:
    cluster.topics.create("t", segments=2, schema="k string, n bigint")
    with cluster.begin() as txn:
        txn.append("t", table("a"), key="k")
        assert cluster.topics.describe("t").key is None
        txn.commit()
    assert cluster.topics.describe("t").key == "k"
    with cluster.begin() as txn:
        with pytest.raises(OptionError, match=r"key column of the write is 'n', but the topic .* routes by 'k'"):
            txn.append("t", table("a"), key="n")
        txn.append("t", table("b"), key="k")
        txn.append("t", table("c"))
        txn.commit()
    assert len(rows(cluster, "t")) == 3


def spark_write(cluster: Cluster, **options: str) -> None:
    given = {"serviceUrl": cluster.url, "path": "t", **options}
    plan_write(cluster.client, WriteOptions.parse(given, streaming=False), StructType().add("k", "string"))


def test_another_number_of_segments_than_the_topic_has_is_a_warning(cluster: Cluster) -> None:
    cluster.topics.create("t", segments=4, schema="k string, n bigint")
    with cluster.begin() as txn:
        with pytest.warns(SegmentsIgnored, match=r"gives segments=8, but topic://public/default/t exists with 4"):
            txn.append("t", table("a"), segments=8)
        txn.commit()
    with pytest.warns(SegmentsIgnored), cluster.producer("t", segments=1) as producer:
        producer.send({"n": 1})
    with pytest.warns(SegmentsIgnored):
        spark_write(cluster, segments="8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"segments": "4"}):
            spark_write(cluster, **options)
        with cluster.begin() as txn:
            txn.append("t", table("a"))
            txn.append("t", table("a"), segments=4)
            cluster.topics.split("t", 0)
            txn.append("t", table("a"), segments=4)
            txn.abort()


def test_programs_that_create_one_topic_at_the_same_time_share_it(cluster: Cluster, url: str) -> None:
    ready, failed = threading.Barrier(4), list[BaseException]()

    def program(number: int) -> None:
        try:
            with connect(url) as own, own.begin(app=f"a{number}", version=0) as txn:
                ready.wait()
                txn.append("new", table(f"k{number}"), key="k", segments=3)
                txn.commit()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=program, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(row["k"] for row in rows(cluster, "new")) == ["k0", "k1", "k2", "k3"]
    assert len(cluster.topics.describe("new").segments) == 3


def test_a_deleted_topic_is_created_anew_by_a_transaction(cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("t", table("a"))
        txn.commit()
    cluster.topics.delete("t")
    with cluster.begin() as txn:
        txn.append("t", pa.table({"other": [1.5]}))
        txn.commit()
    assert rows(cluster, "t") == [{"other": 1.5}]


def test_a_producer_creates_its_topic_with_the_first_flush(cluster: Cluster) -> None:
    with cluster.producer("new", key="k", segments=2) as producer:
        assert topics(cluster) == []
        producer.send({"k": "a", "n": 1})
        producer.send({"k": "b", "x": 2.5})
    topic = cluster.topics.describe("new")
    assert (topic.key, len(topic.segments)) == ("k", 2)
    assert columns(cluster, "new") == "struct<k:string,n:bigint,x:double>"


def test_a_producer_does_not_bring_back_a_topic_that_was_deleted(cluster: Cluster) -> None:
    producer = cluster.producer("new")
    producer.write(table("a"))
    cluster.topics.delete("new")
    with pytest.raises(TopicNotFound):
        producer.write(table("b"))
    assert topics(cluster) == []


def test_a_producer_of_avro_values_needs_a_topic(cluster: Cluster) -> None:
    with pytest.raises(TopicNotFound):
        cluster.producer("new", value_format="avro")


def test_a_block_of_spark_writes_creates_topics_for_its_appends(cluster: Cluster) -> None:
    with cluster.transaction() as txn:
        txn.append("new", table("a"), key="k", segments=2)
    assert len(cluster.topics.describe("new").segments) == 2
    assert rows(cluster, "new") == [{"k": "a", "n": 0}]


@pytest.mark.parametrize("plain", [False, True])
def test_marker_based_topics_are_created_too(cluster: Cluster, plain: bool) -> None:
    with cluster.producer(LEGACY, plain=plain) as producer:
        producer.send({"n": 1})
    assert topics(cluster) == [LEGACY]
    assert [row["n"] for row in cluster.rows(LEGACY).rows] == [1]


def test_a_marker_based_topic_has_neither_key_nor_segments(cluster: Cluster) -> None:
    for options in ({"key": "k"}, {"segments": 2}):
        with pytest.raises(OptionError, match="has no segments, it is one log"), cluster.begin() as txn:
            txn.append(LEGACY, table("a"), **options)
    assert topics(cluster) == []


def test_the_name_of_a_deleted_marker_based_topic_stays_taken(cluster: Cluster) -> None:
    cluster.topics.create(LEGACY, schema="n bigint")
    cluster.topics.delete(LEGACY)
    with pytest.raises(TopicExists, match="cannot be used again"), cluster.begin() as txn:
        txn.append(LEGACY, pa.table({"n": [1]}))
    with pytest.raises(TopicNotFound):
        cluster.producer(LEGACY)
