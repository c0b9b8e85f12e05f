"""`cluster.transaction()`: the writes of a Spark program are staged, and committed as a whole (protocol.md sections 2, 5, 7).

The sink runs as Spark runs it (`conformance.harness.spark_driver`); tests/spark/test_transactions.py does the same under Spark
itself. Many errors are raised at the end of the block, so `pytest.raises` surrounds it.
"""
# ruff: noqa: PT012

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from conformance.harness.spark_driver import SparkWrite, spark_write
from metadata.common.errors import (
    AckConflict,
    CorruptRecord,
    OptionError,
    SchemaError,
    SegmentSealed,
    TopicNotFound,
    TxnConflict,
    Unavailable,
    VersionConflict,
)
from metadata.records.names import key_hash, segment_name, topic_name
from metadata.write.staging_manifests import StagingArea
from tests.support.rows import rows, rows_by_segment
from txnsegment import Cluster, SparkTransaction, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BIG, SMALL = "topic://acme/sales/big", "topic://acme/audit/small"


def table(*numbers: int) -> pa.Table:
    return pa.table({"k": [f"k{n % 5}" for n in numbers], "n": pa.array(numbers, pa.int64())})


def numbers(cluster: Cluster, topic: str) -> list[int]:
    if topic not in {found.name for found in cluster.topics.list()} or cluster.topics.describe(topic).schema is None:
        return []
    return sorted(row["n"] for row in rows(cluster, topic))


def files(cluster: Cluster) -> list[str]:
    return [file.path for file in cluster.client.cluster.storage.list()]


def staged(cluster: Cluster) -> list[str]:
    return [path for path in files(cluster) if path.startswith("staging/")]


def settled(cluster: Cluster) -> None:
    """Wait for the background work of commits."""
    cluster.client.finish()


@pytest.fixture
def consumed(cluster: Cluster) -> Cluster:
    cluster.topics.create("in", schema="k string, n bigint")
    cluster.subscriptions.create("in", "s")
    with cluster.begin() as txn:
        txn.append("in", table(*range(6)))
        txn.commit()
    return cluster


def test_a_spark_transaction_opens_at_its_end_and_commits_all_writes(consumed: Cluster) -> None:
    before = consumed.transactions.list()
    with consumed.consumer("in", "s") as consumer, consumed.transaction(app="etl", version=3) as txn:
        consumer.ack(list(consumer.messages(timeout=0)), txn=txn)
        spark_write(txn.options, BIG, table(1, 2, 3))
        spark_write({**txn.options, "segments": "3", "keyColumn": "k"}, SMALL, table(4, 5))
        assert consumed.transactions.list() == before
        assert numbers(consumed, BIG) == numbers(consumed, SMALL) == []
        assert consumed.subscriptions.describe("in", "s").lag.rows == 6
    assert (numbers(consumed, BIG), numbers(consumed, SMALL)) == ([1, 2, 3], [4, 5])
    assert consumed.subscriptions.describe("in", "s").lag.rows == 0
    found = consumed.transactions.get(txn.commit().txn_id or "")
    assert (found.state, found.app, found.version, found.topic, txn.commit().rows) == ("COMMITTED", "etl", 3, "", 5)


class BrokenSession:
    """A stand-in for a Spark session whose reads fail."""

    @property
    def read(self) -> BrokenSession:
        return self

    def format(self, name: str) -> BrokenSession:
        return self

    def options(self, **options: str) -> BrokenSession:
        return self

    def load(self) -> DataFrame:
        raise ZeroDivisionError


def test_a_read_that_fails_in_spark_acknowledges_nothing(consumed: Cluster) -> None:
    """The block goes on after the error, and commits."""
    with consumed.transaction() as txn:
        with pytest.raises(ZeroDivisionError):
            txn.read(cast("SparkSession", BrokenSession()), "in", subscription="s")
        spark_write(txn.options, BIG, table(1))
    assert numbers(consumed, BIG) == [1]
    assert consumed.subscriptions.describe("in", "s").lag.rows == 6


def test_an_exception_in_the_block_leaves_nothing_and_the_sweep_takes_the_manifests(consumed: Cluster) -> None:
    with pytest.raises(ZeroDivisionError), consumed.consumer("in", "s") as consumer, consumed.transaction() as txn:
        consumer.ack(list(consumer.messages(timeout=0)), txn=txn)
        spark_write(options := txn.options, BIG, table(1, 2, 3))
        raise ZeroDivisionError
    settled(consumed)
    assert numbers(consumed, BIG) == []
    assert consumed.subscriptions.describe("in", "s").lag.rows == 6
    assert {t.state for t in consumed.transactions.list()} == {"COMMITTED"}  # the only transaction is that of the fixture
    assert staged(consumed) == []
    for use in (lambda: txn.options, txn.commit, lambda: txn.append("in", table(7)), txn.__enter__):
        with pytest.raises(TxnConflict, match="it was aborted"):
            use()
    assert consumed.sweep().orphans_deleted == 0
    assert sum(path.endswith(".parquet") for path in files(consumed)) == 3  # these files stay for the orphan age
    with pytest.raises(TxnConflict, match="There is no transaction"):
        spark_write(options, BIG, table(4))


def test_a_transaction_does_not_begin_inside_another(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(TxnConflict, match="inside the block"), cluster.transaction() as outer:
        spark_write(outer.options, BIG, table(1))
        with cluster.transaction() as inner:
            spark_write(inner.options, BIG, table(2))
    with pytest.raises(TxnConflict, match="inside the block"), cluster.transaction() as outer, outer:
        pytest.fail("it was entered twice")
    assert numbers(cluster, BIG) == []
    with connect(f"file://{tmp_path}/other") as other, cluster.transaction() as ours, other.transaction() as theirs:
        spark_write(ours.options, BIG, table(3))
        spark_write(theirs.options, BIG, table(4))
        assert ours.options["txnStaging"] != theirs.options["txnStaging"]
    with connect(f"file://{tmp_path}/other") as other:
        assert (numbers(cluster, BIG), numbers(other, BIG)) == ([3], [4])
    with cluster.transaction() as after:
        spark_write(after.options, BIG, table(5))
    assert numbers(cluster, BIG) == [3, 5]


def test_writes_of_several_threads_are_one_transaction(cluster: Cluster) -> None:
    """The transaction's `options` are made when they are first requested. Several threads request the options at once, and write in
    one transaction.
    """
    topics = [f"t{number}" for number in range(4)]
    together = threading.Barrier(len(topics))

    def write(number: int) -> None:
        together.wait()
        for again in range(2):
            spark_write(txn.options, topics[number], table(10 * number + again))

    with cluster.transaction() as txn, ThreadPoolExecutor(len(topics)) as pool:
        assert list(pool.map(write, range(len(topics)))) == [None] * len(topics)
    assert [numbers(cluster, f"topic://public/default/{topic}") for topic in topics] == [[0, 1], [10, 11], [20, 21], [30, 31]]
    assert txn.commit().rows == 8


def test_an_unfinished_write_keeps_the_transaction_from_committing(cluster: Cluster) -> None:
    txn = cluster.transaction()
    spark_write(txn.options, BIG, table(1))
    late = SparkWrite({**txn.options, "path": SMALL}, table(2))
    messages = late.run()
    with pytest.raises(TxnConflict, match="1 of this transaction's 2 writes"):
        txn.commit()
    assert numbers(cluster, BIG) == []
    late.commit(messages)
    assert txn.commit().rows == 2
    assert (numbers(cluster, BIG), numbers(cluster, SMALL)) == ([1], [2])


def test_a_write_counts_once_however_often_spark_runs_it(cluster: Cluster) -> None:
    with cluster.transaction() as txn:
        twice = SparkWrite({**txn.options, "path": BIG}, table(1, 2))
        twice.commit(twice.run())
        twice.commit(twice.run())  # the second run wrote the same rows into new files
        given_up = SparkWrite({**txn.options, "path": BIG}, table(3))
        given_up.commit(messages := given_up.run())
        given_up.abort(messages)  # Spark aborts like this after a lost reply to its commit
        failed = SparkWrite({**txn.options, "path": BIG}, table(4))
        failed.abort([])
        spark_write(txn.options, BIG, table(4))  # the program repeats the write
    assert numbers(cluster, BIG) == [1, 2, 4]
    assert txn.commit().rows == 3


def test_a_transaction_is_as_old_as_its_first_write(cluster: Cluster) -> None:
    """A commit is refused if any of the transaction's writes was staged more than half the orphan age ago, because a sweep may have
    deleted the parts of this write.
    """
    txn = cluster.transaction()
    spark_write(txn.options, BIG, table(1))
    area = StagingArea(cluster.client.cluster.storage, txn.options["txnStaging"])
    (found,) = area.collect()
    long_ago = found.staged_ms - cluster.settings.orphan_age_ms // 2 - 1_000
    area.leave(replace(found, write="old", order=area.begin("old", BIG), staged_ms=long_ago, parts=()))
    with pytest.raises(TxnConflict, match="staged more than half the orphan age ago"):
        txn.commit()
    assert numbers(cluster, BIG) == []


def test_writes_after_a_failed_commit_are_added_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.topics.create(BIG)

    def away(work: object) -> None:
        raise Unavailable("The store is away.", advice="Try again.")

    with cluster.transaction() as txn:
        spark_write(txn.options, BIG, table(0))
        txn.append(BIG, table(1, 2))
        with monkeypatch.context() as patch, pytest.raises(Unavailable):
            patch.setattr(cluster.client.coordinator, "commit", away)
            txn.commit()
        txn.append(BIG, table(3))
    assert numbers(cluster, BIG) == [0, 1, 2, 3]


def test_an_earlier_attempt_of_the_same_version_does_not_count(cluster: Cluster) -> None:
    stale = cluster.transaction(app="q", version=7)
    spark_write(stale.options, BIG, table(1, 2))  # the driver of this attempt seems to be killed
    with cluster.transaction(app="q", version=7) as txn:
        spark_write(txn.options, BIG, table(1, 2))
    assert numbers(cluster, BIG) == [1, 2]
    spark_write(stale.options, BIG, table(3))  # the driver was only suspended
    assert stale.commit().skipped
    with pytest.raises(VersionConflict), cluster.transaction(app="q", version=6) as older:
        spark_write(older.options, BIG, table(4))
    assert numbers(cluster, BIG) == [1, 2]


def test_one_of_two_transactions_that_read_the_same_rows_commits(consumed: Cluster) -> None:
    with (
        pytest.raises(AckConflict),
        consumed.consumer("in", "s") as mine,
        consumed.consumer("in", "s") as yours,
        consumed.transaction(app="slow", version=1) as slow,
    ):
        mine.ack(list(mine.messages(timeout=0)), txn=slow)
        spark_write(slow.options, BIG, table(1))

        def faster() -> None:
            fast = consumed.transaction()
            yours.ack(list(yours.messages(timeout=0)), txn=fast)
            spark_write(fast.options, SMALL, table(2))
            fast.commit()

        faster()
    assert (numbers(consumed, BIG), numbers(consumed, SMALL)) == ([], [2])
    assert {t.app: t.state for t in consumed.transactions.list()}["slow"] == "ABORTED"
    assert consumed.subscriptions.describe("in", "s").lag.rows == 0


def test_rows_of_a_segment_that_was_split_since_go_to_its_children(cluster: Cluster) -> None:
    cluster.topics.create(BIG, segments=2, key="k", schema="k string, n bigint")

    def split() -> None:
        for segment in list(cluster.client.topics.get(topic_name(BIG)).active()):
            cluster.client.topics.split(topic_name(BIG), segment.segment_id)

    with cluster.transaction() as txn:
        spark_write(txn.options, BIG, table(*range(50)))
        spark_write(txn.options, BIG, table(*range(50, 100)), between=split)
        spark_write(txn.options, BIG, table(*range(100, 150)))
    found = rows_by_segment(cluster, BIG)
    assert numbers(cluster, BIG) == list(range(150))
    assert len([name for name, got in found.items() if got]) > 2
    for name, got in found.items():
        assert all(key_hash(row["k"].encode()) in segment_name(name).hash_range for row in got)
        for key in {row["k"] for row in got}:
            assert (order := [row["n"] for row in got if row["k"] == key]) == sorted(order)


def test_writes_to_one_topic_keep_their_order(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="k string, n bigint")
    with cluster.transaction() as txn:
        txn.append("t", table(0))
        spark_write(txn.options, "t", table(1, 2))
        txn.append("t", table(3))
        spark_write(txn.options, "t", table(4, 5))
        spark_write(txn.options, "t", table(6))
        txn.append("t", table(7))
    assert [row["n"] for row in rows(cluster, "t")] == list(range(8))


def test_schemas_grow_with_the_commit_and_not_for_rows_that_do_not_fit_each_other(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint")
    with pytest.raises(SchemaError, match="more"), cluster.transaction() as txn:
        spark_write({**txn.options, "mergeSchema": "true"}, "t", pa.table({"n": [1], "more": ["text"]}))
        spark_write({**txn.options, "mergeSchema": "true"}, "t", pa.table({"n": [2], "more": [2.5]}))
    assert numbers(cluster, "t") == []
    assert cluster.topics.describe("t").schema is not None
    assert cluster.topics.describe("t").schema.fieldNames() == ["n"]
    with cluster.transaction() as txn:
        spark_write({**txn.options, "mergeSchema": "true"}, "t", pa.table({"n": [1], "more": ["text"]}))
        spark_write(txn.options, "t", pa.table({"n": [2]}))
    assert [row["more"] for row in rows(cluster, "t")] == ["text", None]


def test_a_transaction_into_a_deleted_or_recreated_topic_is_refused_as_a_whole(cluster: Cluster) -> None:
    for again, error in ((False, TopicNotFound), (True, SegmentSealed)):
        with pytest.raises(error), cluster.transaction() as txn:
            spark_write(txn.options, BIG, table(1))
            spark_write(txn.options, SMALL, table(2))
            cluster.topics.delete(BIG)
            if again:
                cluster.topics.create(BIG)
        assert numbers(cluster, SMALL) == []


def test_impossible_options_in_a_transaction_are_refused_at_once(cluster: Cluster, tmp_path: Path) -> None:
    txn = cluster.transaction()
    options = {**txn.options, "path": BIG}
    for more in ({"txnAppId": "a", "txnVersion": "1"}, {"txnVersion": "1"}, {"txnTimeoutMs": "1000"}):
        with pytest.raises(OptionError, match=f"txnStaging and {next(iter(more))}"):
            SparkWrite({**options, **more}, table(1))
    with connect(f"file://{tmp_path}/other") as other, pytest.raises(TxnConflict, match="There is no transaction"):
        SparkWrite({**options, "serviceUrl": other.url}, table(1))
    with pytest.raises(OptionError, match="names no transaction"):
        SparkWrite({**options, "txnStaging": "../../x"}, table(1))
    with pytest.raises(OptionError, match="app is given without version"):
        cluster.transaction(app="a")
    with pytest.raises(OptionError, match="seconds"):
        cluster.transaction(timeout=30_000)
    assert [path for path in files(cluster) if path.endswith(".parquet")] == []


def _damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("change", [lambda data: data[:-9], lambda data: data.replace(b'"rows": 1', b'"rows": 2')])
def test_a_damaged_manifest_commits_nothing(cluster: Cluster, change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    with pytest.raises(CorruptRecord, match="staging manifest"), cluster.transaction() as txn:
        spark_write(txn.options, BIG, table(1))
        (manifest,) = tmp_path.rglob("*.manifest")
        _damage(manifest, change)
        spark_write(txn.options, SMALL, table(2))
    assert numbers(cluster, SMALL) == []


def test_a_write_begun_after_the_close_is_refused(cluster: Cluster) -> None:
    txn = cluster.transaction()
    slow = SparkWrite({**txn.options, "path": SMALL}, table(1))
    area = StagingArea(cluster.client.cluster.storage, txn.options["txnStaging"])
    area.close()
    with pytest.raises(TxnConflict, match="takes no write"):
        SparkWrite({**txn.options, "path": BIG}, table(2))
    slow.commit(slow.run())  # this write began before the transaction was closed
    assert txn.commit().rows == 1
    assert (numbers(cluster, BIG), numbers(cluster, SMALL)) == ([], [1])


def test_an_expired_transaction_is_not_found(cluster: Cluster) -> None:
    forgotten: SparkTransaction | None = cluster.transaction(app="f", version=1)
    spark_write(forgotten.options, BIG, table(1))
    forgotten = None
    assert cluster.transactions.list() == []
    assert cluster.sweep().orphans_deleted == 0  # the manifest of the forgotten transaction is kept
    assert len(staged(cluster)) == 3
    with cluster.transaction(app="f", version=1) as txn:
        spark_write(txn.options, BIG, table(1))
    assert numbers(cluster, BIG) == [1]
