"""Tests of `cluster.begin()`: a transaction commits the rows of all topics or none, once for each version. Each refusal has a clear
error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from metadata.common.errors import (
    OptionError,
    OutcomeUnknown,
    PartsGone,
    SchemaError,
    SegmentSealed,
    TopicNotFound,
    TxnConflict,
    Unavailable,
    UnknownOutcome,
    VersionConflict,
)
from metadata.records import paths
from metadata.records.names import key_hash, segment_name
from metadata.records.records import State
from metadata.store.contract import Put, Record, Write
from tests.support.rows import rows, rows_by_segment
from txnsegment import Cluster, UncommittedTransaction, connect


def table(keys: list[str | None], first: int = 0) -> pa.Table:
    return pa.table({"k": keys, "n": pa.array(range(first, first + len(keys)), pa.int64())})


def parts_on_disk(cluster: Cluster) -> int:
    return sum(f.path.endswith(".parquet") for f in cluster.client.cluster.storage.list())


def test_two_topics_become_visible_together(cluster: Cluster) -> None:
    cluster.topics.create("a", segments=2, key="k")
    cluster.topics.create("b")
    with cluster.begin() as txn:
        txn.append("a", table(["x", "y", None, "z"]))
        txn.append("b", table(["x"]).to_batches()[0])
        assert rows_or_none(cluster, "a") == []
        done = txn.commit()
    assert (done.txn_id, done.rows, done.skipped) == (txn.id, 5, False)
    assert sorted(r["n"] for r in rows(cluster, "a")) == [0, 1, 2, 3]
    assert rows(cluster, "b") == [{"k": "x", "n": 0}]


def rows_or_none(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    return [] if cluster.topics.describe(topic).schema is None else rows(cluster, topic)


def test_each_key_is_in_its_segment_and_in_written_order(cluster: Cluster) -> None:
    cluster.topics.create("t", segments=5, key="k")
    keys: list[str | None] = [f"key{i % 17}" for i in range(1000)]
    with cluster.begin() as txn:
        txn.append("t", table(keys[:400]))
        txn.append("t", iter(table(keys[400:], first=400).to_batches(max_chunksize=37)))
        txn.commit()
    found = rows_by_segment(cluster, "t")
    assert sum(map(len, found.values())) == 1000
    for name, got in found.items():
        assert [r["n"] for r in got] == sorted(r["n"] for r in got)
        assert all(key_hash(r["k"].encode()) in segment_name(name).hash_range for r in got)


def test_one_append_leaves_one_part_for_each_segment(cluster: Cluster) -> None:
    cluster.topics.create("t", segments=4)
    with cluster.begin() as txn:
        txn.append("t", iter(table(["x"] * 100).to_batches(max_chunksize=10)))
        txn.commit()
    assert parts_on_disk(cluster) == 1  # rows without a key are distributed by entry, not by batch


def test_small_transactions_without_a_key_spread_over_the_segments(cluster: Cluster) -> None:
    cluster.topics.create("t", segments=3)
    for _ in range(6):
        with cluster.begin() as txn:
            txn.append("t", table(["x"]))
            txn.commit()
    assert [len(found) for found in rows_by_segment(cluster, "t").values()] == [2, 2, 2]


def test_a_block_left_without_a_commit_warns_and_adds_no_row(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="k string, n bigint")
    txn = cluster.begin()
    txn.append("t", table(["x", "y"]))
    txn.append("t", table(["z"]))
    with pytest.warns(UncommittedTransaction) as told, txn:
        pass
    (warning,) = told
    assert warning.filename == __file__
    assert str(warning.message).startswith(
        f"The block of transaction {txn.id} ended without commit(): 3 rows for topic://public/default/t do not count. Call"
    )
    assert rows(cluster, "t") == []
    assert cluster.transactions.list() == []  # no transaction was opened
    with pytest.raises(TxnConflict, match="aborted"):
        txn.commit()


@pytest.mark.filterwarnings("error")
def test_a_block_that_silently_drops_work_warns(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="k string, n bigint")
    with cluster.begin() as empty:
        empty.append("t", [])
    with cluster.begin() as given_up:
        given_up.append("t", table(["x"]))
        given_up.abort()
    failed = cluster.begin()
    failed.append("t", table(["x"]))
    with pytest.raises(ZeroDivisionError), failed:
        raise ZeroDivisionError
    with cluster.begin(app="a", version=1) as committed:
        committed.append("t", table(["x"]))
        committed.commit()
    with cluster.begin(app="a", version=0) as refused:
        refused.append("t", table(["x"]))
        with pytest.raises(VersionConflict):
            refused.commit()
    with cluster.transaction() as together:
        together.append("t", table(["x"]))
    assert len(rows(cluster, "t")) == 2


def test_a_transaction_is_as_old_as_its_first_append(cluster: Cluster) -> None:
    """A commit is refused if the first append of the transaction was staged more than half the orphan age ago, because a sweep may
    have deleted the parts of this append.
    """
    cluster.topics.create("t", schema="k string, n bigint")
    txn = cluster.begin()
    txn.append("t", table(["x"]))
    assert txn._staged_ms is not None
    txn._staged_ms -= cluster.settings.orphan_age_ms // 2 + 1_000  # the first append now seems to be older than half the orphan age
    txn.append("t", table(["y"]))
    with pytest.raises(TxnConflict, match="staged more than half the orphan age ago"):
        txn.commit()
    txn.abort()


def test_deleted_parts_are_refused_before_they_are_rerouted_to_the_children_of_a_split(cluster: Cluster) -> None:
    cluster.topics.create("t", key="k", schema="k string, n bigint")
    with cluster.begin() as txn:
        txn.append("t", table(["x"]))
        for part in Path(cluster.ledgers.removeprefix("file://")).rglob("*.parquet"):
            part.unlink()
        cluster.topics.split("t", 0)
        with pytest.raises(PartsGone, match="staged are missing or incomplete"):
            txn.commit()


def test_a_retried_commit_opens_a_new_transaction(cluster: Cluster) -> None:
    """The first commit failed after its transaction was OPEN. This transaction is ABORTED, and its id is not used again."""
    cluster.topics.create("t", schema="k string, n bigint")
    with cluster.begin() as txn:
        txn.append("t", table(["x"]))
        (file,) = Path(cluster.ledgers.removeprefix("file://")).rglob("*.parquet")
        away = file.rename(file.with_suffix(".away"))
        with pytest.raises(PartsGone):
            txn.commit()
        first = txn.id
        away.rename(file)
        assert txn.commit().txn_id != first
    assert {t.id: t.state for t in cluster.transactions.list()} == {first: "ABORTED", txn.id: "COMMITTED"}
    assert len(rows(cluster, "t")) == 1


def test_an_error_in_the_block_aborts_the_transaction(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="k string, n bigint")

    def failing() -> None:
        with cluster.begin() as txn:
            txn.append("t", table(["x"]))
            raise RuntimeError("the program's own")

    with pytest.raises(RuntimeError):
        failing()
    assert rows(cluster, "t") == []


def test_a_version_commits_once(cluster: Cluster) -> None:
    cluster.topics.create("t")

    def write(version: int) -> bool:
        with cluster.begin(app="etl 1/ä", version=version) as txn:
            txn.append("t", table([f"v{version}"]))
            return txn.commit().skipped

    assert [write(1), write(1), write(2), write(3)] == [False, True, False, False]
    with pytest.raises(VersionConflict):
        write(1)
    assert [r["k"] for r in rows(cluster, "t")] == ["v1", "v2", "v3"]


def test_the_application_survives_reconnecting(url: str) -> None:
    for _ in range(2):
        with connect(url) as cluster:
            if not cluster.topics.list():
                cluster.topics.create("t")
            with cluster.begin(app="a", version=0) as txn:
                txn.append("t", table(["x"]))
                txn.commit()
            assert len(rows(cluster, "t")) == 1


def test_an_empty_version_still_counts(cluster: Cluster) -> None:
    cluster.topics.create("t")
    with cluster.begin(app="a", version=5) as txn:
        assert txn.commit().number is None
    with cluster.begin(app="a", version=4) as txn:
        txn.append("t", table(["x"]))
        with pytest.raises(VersionConflict):
            txn.commit()


def test_an_empty_transaction_without_an_application_leaves_no_record(cluster: Cluster) -> None:
    cluster.topics.create("t")
    with cluster.begin() as txn:
        txn.append("t", table([]))
        done = txn.commit()
        application = txn._application
    assert (done.number, done.rows) == (None, 0)
    assert cluster.client.cluster.store.view().get(paths.application(application, "")) is None


def test_a_second_commit_returns_the_same_result(cluster: Cluster) -> None:
    cluster.topics.create("t")
    with cluster.begin() as txn:
        txn.append("t", table(["x"]))
        assert txn.commit() is txn.commit()
    with pytest.raises(TxnConflict, match="has committed"):
        txn.abort()
    with pytest.raises(TxnConflict, match="committed"):
        txn.append("t", table(["x"]))
    assert len(rows(cluster, "t")) == 1


def test_aborting_is_idempotent_and_final(cluster: Cluster) -> None:
    cluster.topics.create("t")
    txn = cluster.begin()
    txn.abort()
    txn.abort()
    with pytest.raises(TxnConflict):
        txn.append("t", table(["x"]))


def test_ids_are_unique(cluster: Cluster) -> None:
    ids = [cluster.begin().id for _ in range(250)]
    assert len(set(ids)) == 250


def test_a_forked_child_has_ids_and_a_background_of_its_own(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="k string, n bigint")
    txn = cluster.begin()
    txn.append("t", table(["x"]))
    txn.commit()
    cluster.client.finish()
    # During the fork the background thread only waits, so it holds no lock of SQLite. A forked child inherits the locks in their
    # present state.
    waits, over = threading.Event(), threading.Event()
    cluster.client.coordinator.background(lambda: (waits.set(), over.wait()))
    waits.wait()
    child = os.fork()
    over.set()
    if child == 0:
        with contextlib.suppress(BaseException):
            mine = cluster.begin()
            mine.append("t", table([mine.id]))
            mine.commit()
            cluster.close()
            os._exit(0)
        os._exit(1)
    ids = {cluster.begin().id for _ in range(3)}
    assert os.waitpid(child, 0)[1] == 0
    assert len({row["k"] for row in rows(cluster, "t")} - ids) == 2


def test_a_failed_append_leaves_no_row_and_other_appends_commit(cluster: Cluster) -> None:
    cluster.topics.create("t", key="k", segments=2)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from table(["a", "b"]).to_batches()
        raise RuntimeError("the program's own")

    with cluster.begin() as txn:
        txn.append("t", table(["kept"]))
        with pytest.raises(RuntimeError):
            txn.append("t", breaking())
        with pytest.raises(SchemaError, match="n has the type"):
            txn.append("t", [*table(["c"]).to_batches(), pa.record_batch({"k": ["d"], "n": ["text"]})])
        txn.commit()
    assert [r["k"] for r in rows(cluster, "t")] == ["kept"]
    assert parts_on_disk(cluster) == 1


def test_an_append_whose_transaction_ends_meanwhile_is_an_error(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="k string, n bigint")
    txn = cluster.begin()

    def ending() -> Iterator[pa.Table]:
        yield table(["x"])
        txn.commit()

    with pytest.raises(TxnConflict, match="was committed"):
        txn.append("t", ending())
    assert rows(cluster, "t") == []


def test_new_columns_and_wider_types_evolve_the_topic(cluster: Cluster) -> None:
    cluster.topics.create("t")
    with cluster.begin() as txn:
        txn.append("t", pa.table({"a": pa.array([1], pa.int32())}))
        wider = pa.table({"a": pa.array([2], pa.int64()), "b": ["x"]})
        with pytest.raises(SchemaError, match=r"would change topic://public/default/t for good: .*a .*b .*") as refused:
            txn.append("t", wider)
        assert "merge_schema=True" in refused.value.advice
        txn.append("t", wider, merge_schema=True)
        txn.append("t", pa.table({"a": pa.array([3], pa.int16())}))
        txn.commit()
    schema = cluster.topics.describe("t").schema
    assert schema is not None
    assert schema.simpleString() == "struct<a:bigint,b:string>"
    assert rows(cluster, "t") == [{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": 3, "b": None}]


def test_two_appends_that_do_not_fit_each_other_are_refused_at_the_second(cluster: Cluster) -> None:
    cluster.topics.create("t")
    with cluster.begin() as txn:
        txn.append("t", pa.table({"a": [1]}))
        with pytest.raises(SchemaError, match="a is string in this write, but bigint"):
            txn.append("t", pa.table({"a": ["x"]}))
        txn.commit()
    assert rows(cluster, "t") == [{"a": 1}]


def test_a_topic_that_is_deleted_before_the_commit_is_refused(cluster: Cluster) -> None:
    cluster.topics.create("t")
    cluster.topics.create("u")
    with cluster.begin() as txn:
        txn.append("t", table(["x"]))
        txn.append("u", table(["x"]))
        cluster.topics.delete("t")
        with pytest.raises(TopicNotFound):
            txn.commit()
        cluster.topics.create("t", schema="k string, n bigint")
        with pytest.raises(SegmentSealed):
            txn.commit()
    assert rows_or_none(cluster, "u") == []
    assert all(t.state is not State.OPEN for t in cluster.transactions.list())


ARROW = [
    (pa.array(["a", "b", "a"]).dictionary_encode(), "string"),
    (pa.array(["a", "b"], pa.large_string()), "string"),
    (pa.array(["a", "b"], pa.string_view()), "string"),
    (pa.array([b"a", b"b"], pa.large_binary()), "binary"),
    (pa.array([1, 2], pa.timestamp("s")), "timestamp_ntz"),
    (pa.array([1, 2], pa.timestamp("ms", "Europe/Berlin")), "timestamp"),
    (pa.array([[1], None], pa.large_list(pa.int32())), "array<int>"),
    (pa.array([{"x": 1}, None]), "struct<x:bigint>"),
]


@pytest.mark.parametrize(("column", "kind"), ARROW, ids=[str(column.type) for column, _ in ARROW])
def test_arrow_types_of_programs_are_taken(cluster: Cluster, column: pa.Array, kind: str) -> None:
    cluster.topics.create("t")
    with cluster.begin() as txn:
        txn.append("t", pa.table({"c": column}))
        txn.commit()
    schema = cluster.topics.describe("t").schema
    assert isinstance(schema, StructType)
    assert schema["c"].dataType.simpleString() == kind
    assert len(rows(cluster, "t")) == len(column)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (pa.table({"c": pa.array([1], pa.uint8())}), "column c has the Arrow type uint8"),
        (pa.table({"c": pa.array([None], pa.null())}), "column c has the type void"),
        (pa.table({"c": pa.array([1], pa.time64("us"))}), "column c has the type time"),
        (pa.table({"c": pa.array([b"x"], pa.binary(1))}), "should have binary"),
        (pa.table({"c": pa.array([None], pa.decimal256(50, 0))}), "column c has the Arrow type decimal256"),
        (pa.table({"c": pa.array([None], pa.decimal128(3, -3))}), "column c has the Arrow type decimal128"),
        (pa.table({"a": [1], "A": [2]}), "differs only by case"),
        (pa.table({"__topic": [1]}), "metadata column"),
        (iter([{"c": 1}]), "not dict"),
        ("text", "not str"),
        (7, "not int"),
        ({"c": [1]}, "not dict"),
    ],
)
def test_unsupported_columns_are_refused_before_a_row_is_staged(cluster: Cluster, given: Any, says: str) -> None:
    cluster.topics.create("t")
    with pytest.raises(SchemaError, match=says), cluster.begin() as txn:
        txn.append("t", given)
    assert parts_on_disk(cluster) == 0


def test_a_write_without_the_key_column_is_refused(cluster: Cluster) -> None:
    cluster.topics.create("t", key="key", segments=2)
    with cluster.begin() as txn:
        with pytest.raises(OptionError, match="'key' is not a column"):
            txn.append("t", pa.table({"n": [1]}))
        with pytest.raises(OptionError, match="cannot be a key"):
            txn.append("t", pa.table({"key": [1.5]}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"app": "a"}, "without version"),
        ({"version": 1}, "without app"),
        ({"app": " ", "version": 1}, "printable"),
        ({"app": "a\n", "version": 1}, "printable"),
        ({"app": "a", "version": -1}, "whole number"),
        ({"app": "a", "version": True}, "whole number"),
        ({"app": "a", "version": "1"}, "whole number"),
        ({"timeout": 30_000}, "seconds"),
        ({"timeout": 0}, "seconds"),
        ({"timeout": "30s"}, "not a duration"),
        ({"timeout": timedelta(hours=1)}, "3600.0 seconds"),
    ],
)
def test_bad_arguments_of_begin(cluster: Cluster, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        cluster.begin(**arguments)


@pytest.mark.parametrize("timeout", [2, 2.0, timedelta(seconds=2)])
def test_the_timeout_is_in_seconds(cluster: Cluster, timeout: Any) -> None:
    cluster.topics.create("t")
    with cluster.begin(timeout=timeout) as txn:
        txn.append("t", table(["x"]))
        txn.commit()
    (made,) = cluster.transactions.list("committed")
    assert made.deadline_ms - made.created_ms == 2000


class LosesReplies:
    """A cluster's store. It loses the reply to the first write below `prefix`. `happened`: whether this write takes effect."""

    def __init__(self, cluster: Cluster, *, prefix: str, happened: bool) -> None:
        self._store = cluster.client.cluster.store
        self._prefix, self._happened, self.lost = prefix, happened, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, *writes: Write) -> list[Record | None]:
        hit = not self.lost and any(isinstance(w, Put) and w.key.path.startswith(self._prefix) for w in writes)
        if hit:
            self.lost += 1
            if self._happened:
                self._store.write(*writes)
            raise UnknownOutcome("the reply was lost")
        return self._store.write(*writes)

    def put(self, key: Any, value: bytes, **more: Any) -> Record:
        (record,) = self.write(Put(key, value, more.get("expect"), more.get("indexes", ()), more.get("ephemeral", False)))
        assert record is not None
        return record


def commit_through(cluster: Cluster, store: Any) -> None:
    """Let the coordinator use this store. The rest of the client keeps the store that it has."""
    coordinator = cluster.client.coordinator
    coordinator.cluster = coordinator.opener.cluster = dataclasses.replace(cluster.client.cluster, store=store)


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("prefix", ["/txn/id/", "/txn/app/", "/txn/op/"])
def test_a_lost_reply_commits_once(cluster: Cluster, prefix: str, happened: bool) -> None:
    cluster.topics.create("t")
    losing = LosesReplies(cluster, prefix=prefix, happened=happened)
    commit_through(cluster, losing)
    with cluster.begin(app="a", version=1) as txn:
        txn.append("t", table(["x"]))
        done = txn.commit()
    assert losing.lost == 1
    assert done.txn_id == txn.id
    assert [t.id for t in cluster.transactions.list("COMMITTED")] == [txn.id]
    assert len(rows(cluster, "t")) == 1


class GoesAway(LosesReplies):
    """A store that becomes unreachable at the deciding write. `happened`: whether this write takes effect."""

    away = False

    def write(self, *writes: Write) -> list[Record | None]:
        if any(isinstance(w, Put) and w.key.path.startswith("/txn/id/") and isinstance(w.expect, Record) for w in writes):
            if self._happened and not self.away:
                self._store.write(*writes)
            self.away = True
        if self.away:
            raise UnknownOutcome("the reply was lost")
        return self._store.write(*writes)

    def view(self) -> Any:
        if self.away:
            raise Unavailable("the store is away")
        return self._store.view()


def test_giving_up_aborts_a_transaction_left_open_by_a_commit(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="k string, n bigint")
    store = GoesAway(cluster, prefix="", happened=False)
    commit_through(cluster, store)
    txn = cluster.begin()
    txn.append("t", table(["x"]))
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.away = False
    commit_through(cluster, cluster.client.cluster.store)
    assert cluster.transactions.get(txn.id).state == "OPEN"
    txn.abort()
    assert cluster.transactions.get(txn.id).state == "ABORTED"
    assert rows(cluster, "t") == []


def test_a_transaction_with_an_unknown_outcome_takes_no_more_work(cluster: Cluster) -> None:
    """A transaction with an unknown outcome accepts no rows and no acks. A second commit only finds the outcome of the first
    commit, so work added in between would be in neither commit.
    """
    for name in ("t", "given"):
        cluster.topics.create(name, schema="k string, n bigint")
        with cluster.producer(name) as producer:
            producer.send({"k": "x", "n": 0})
    with cluster.begin() as txn, cluster.consumer("given", "s", start="earliest") as consumer:
        txn.append("t", table(["x"], first=1))
        store = GoesAway(cluster, prefix="", happened=False)
        commit_through(cluster, store)
        with pytest.raises(OutcomeUnknown):
            txn.commit()
        commit_through(cluster, cluster.client.cluster.store)
        with pytest.raises(TxnConflict, match=r"cannot append to transaction .*not known whether it succeeded"):
            txn.append("t", table(["x"], first=2))
        with pytest.raises(TxnConflict, match="cannot acknowledge in"):
            consumer.ack(next(consumer.messages(timeout=0)), txn=txn)
        txn.commit()
    assert [row["n"] for row in rows(cluster, "t")] == [0, 1]


def test_a_second_commit_that_finds_the_first_returns_no_row(cluster: Cluster) -> None:
    """The transaction has no application, so a second commit can only find its own first commit. The acks of the first commit
    count, and no row is delivered again.
    """
    cluster.topics.create("t", schema="k string, n bigint")
    with cluster.begin() as txn:
        txn.append("t", table(["x", "y"]))
        txn.commit()
    with cluster.consumer("t", "s", start="earliest") as consumer:
        first, second = consumer.messages(timeout=0)
        txn = cluster.begin()
        consumer.ack_cumulative(first, txn=txn)
        store = GoesAway(cluster, prefix="", happened=True)
        commit_through(cluster, store)
        with pytest.raises(OutcomeUnknown):
            txn.commit()
        commit_through(cluster, cluster.client.cluster.store)
        assert txn.commit().skipped
        consumer.ack_cumulative(second)
        consumer.rewind()
        assert list(consumer.messages(timeout=0)) == []


def test_a_full_sweep_keeps_committed_rows_and_young_files(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topics.create("t", segments=2, key="k")
    for i in range(3):
        with cluster.begin() as txn:
            txn.append("t", table(["a", "b", "c"], first=3 * i))
            txn.commit()
    with cluster.begin() as txn:
        txn.append("t", table(["forgotten"]))
        txn.abort()
    before = parts_on_disk(cluster)
    report = cluster.sweep()
    assert report.orphans_deleted == 0
    assert parts_on_disk(cluster) == before
    assert sorted(r["n"] for r in rows(cluster, "t")) == list(range(9))
