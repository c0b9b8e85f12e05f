"""Tests of the calls of `cluster.topics` and `cluster.transactions`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import txnsegment
from metadata.common.errors import OptionError, SchemaError, TopicExists, TopicNotFound, TransactionNotFound, TxnConflict
from metadata.records.records import SegmentState, State
from txnsegment import Cluster, connect


def test_every_public_name_exists() -> None:
    for name in txnsegment.__all__:
        assert getattr(txnsegment, name).__name__ == name
    assert set(txnsegment.__all__) <= set(dir(txnsegment))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        txnsegment.nothing  # noqa: B018


def test_create_list_describe_delete(cluster: Cluster) -> None:
    made = cluster.topics.create("t", segments=3, key="k", schema="k string, n bigint")
    cluster.topics.create("topic://a/b/c")
    assert made == cluster.topics.describe("topic://public/default/t")
    assert (made.key, made.epoch, [s.start for s in made.segments]) == ("k", 0, [0, 0x5555, 0xAAAA])
    assert all(s.state is SegmentState.ACTIVE and s.sealed_ms is None for s in made.segments)
    assert [t.name for t in cluster.topics.list()] == ["topic://a/b/c", "topic://public/default/t"]
    assert [t.name for t in cluster.topics.list("topic://a/.*")] == ["topic://a/b/c"]
    assert cluster.topics.list("topic://a") == []  # a pattern must match the whole name
    cluster.topics.delete("t")
    with pytest.raises(TopicNotFound):
        cluster.topics.describe("t")
    again = cluster.topics.create("t")
    assert again.epoch > made.epoch
    assert again.segments[0].name.endswith("-3")  # ids are not reused
    assert again.schema is None


@pytest.mark.parametrize(
    "schema",
    ["n bigint", StructType([StructField("n", LongType(), False)]), pa.schema([pa.field("n", pa.int64(), nullable=False)])],
)
def test_a_schema_of_any_kind_is_kept_nullable(cluster: Cluster, schema: Any) -> None:
    assert cluster.topics.create("t", schema=schema).schema == StructType([StructField("n", LongType(), True)])


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"name": "a b"}, OptionError, "not a topic name"),
        ({"name": ""}, OptionError, "not a topic name"),
        ({"name": "segment://public/default/t/0000-ffff-0"}, OptionError, "names a segment"),
        ({"name": "t", "segments": 0}, OptionError, "0 segments"),
        ({"name": "t", "segments": 70_000}, OptionError, "70000 segments"),
        ({"name": "t", "key": " "}, OptionError, "empty"),
        ({"name": "t", "key": "kk", "schema": "k string"}, OptionError, "Did you mean k"),
        ({"name": "t", "key": "k", "schema": "k double"}, OptionError, "cannot be a key"),
        ({"name": "t", "schema": "k void"}, SchemaError, "void"),
        ({"name": "t", "schema": "k strin"}, SchemaError, "did you mean string"),
        ({"name": "there"}, TopicExists, "exists already"),
    ],
)
def test_bad_topics_are_refused(cluster: Cluster, arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    cluster.topics.create("there")
    with pytest.raises(error, match=says):
        cluster.topics.create(**arguments)
    assert [t.name for t in cluster.topics.list()] == ["topic://public/default/there"]


def test_a_bad_pattern_is_refused(cluster: Cluster) -> None:
    with pytest.raises(OptionError, match="regular expression"):
        cluster.topics.list("(")


def commit(cluster: Cluster, **identity: Any) -> str:
    with cluster.begin(**identity) as txn:
        txn.append("t", pa.table({"n": [1]}))
        txn.commit()
    return txn.id


def test_transactions_are_listed_by_state(cluster: Cluster) -> None:
    cluster.topics.create("t")
    first, second = commit(cluster, app="a b", version=7), commit(cluster)
    assert [t.id for t in cluster.transactions.list()] == [first, second]
    assert [t.id for t in cluster.transactions.list("Committed")] == [first, second]
    assert cluster.transactions.list(State.OPEN) == cluster.transactions.list("aborted") == []
    found = cluster.transactions.get(first)
    assert (found.app, found.topic, found.version, found.state, found.commit) == ("a b", "", 7, State.COMMITTED, 1)
    assert found.finalized_ms is not None
    assert found.created_ms <= found.finalized_ms < found.deadline_ms


def test_a_committed_transaction_cannot_be_aborted(cluster: Cluster) -> None:
    cluster.topics.create("t")
    with pytest.raises(TxnConflict):
        cluster.transactions.abort(commit(cluster))


@pytest.mark.parametrize("bad", ["", "0", "0_", "0_1 ", "a_b", "0_1_2", "../0_1"])
def test_an_invalid_transaction_id_is_refused(cluster: Cluster, bad: str) -> None:
    for call in (cluster.transactions.get, cluster.transactions.abort):
        with pytest.raises(OptionError, match="not a transaction id"):
            call(bad)


def test_an_unknown_transaction(cluster: Cluster) -> None:
    for call in (cluster.transactions.get, cluster.transactions.abort):
        with pytest.raises(TransactionNotFound):
            call("0_4711")
    with pytest.raises(OptionError, match="Did you mean OPEN"):
        cluster.transactions.list("opn")


def test_connect_takes_the_url_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXNSEGMENT_SERVICE_URL", url)
    with connect() as cluster:
        assert cluster.url == url
        assert cluster.ledgers == f"{url}/ledgers"
        assert cluster.settings.txn_timeout_ms == 30_000
    monkeypatch.delenv("TXNSEGMENT_SERVICE_URL")
    with pytest.raises(OptionError, match="No service URL"):
        connect()
