"""Marker-based topics in the public API. The calls of plain programs work on persistent:// as on topic://, except the operations
that need segments (docs/in_stream.md).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from metadata.common.errors import (
    AckConflict,
    DataLoss,
    NotAllowed,
    OffsetOutOfRange,
    OptionError,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
    TxnConflict,
    VersionConflict,
)
from metadata.records.names import persistent_name
from metadata.records.paths import EVERYTHING
from metadata.records.persistent_records import CONTAINS_TXN
from txnsegment import Cluster, Consumer
from txnsegment.topics import PersistentDescription
from txnsegment.verify import verify

P, Q, T = "persistent://public/default/p", "persistent://public/default/q", "topic://public/default/t"
NAME = persistent_name(P)
NOW = 0.0
"""A timeout of 0: a read returns the rows that are there and does not wait."""


@pytest.fixture
def topics(cluster: Cluster) -> Cluster:
    for name in (P, Q, T):
        cluster.topics.create(name, schema="k string, n bigint")
    return cluster


@pytest.fixture
def consumer(topics: Cluster) -> Iterator[Consumer]:
    with topics.consumer(P, "s", start="earliest") as made:
        yield made


def rows(first: int, count: int = 4) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": [f"k{n % 4}" for n in numbers], "n": pa.array(numbers, pa.int64())})


def write(cluster: Cluster, topic: str, first: int, count: int = 4) -> None:
    with cluster.begin() as txn:
        txn.append(topic, rows(first, count))
        txn.commit()


def numbers(consumer: Consumer) -> list[int]:
    return [message.value["n"] for message in consumer.messages(timeout=NOW)]


def told(cluster: Cluster, name: str = P) -> PersistentDescription:
    found = cluster.topics.describe(name)
    assert isinstance(found, PersistentDescription)
    return found


def test_topics_are_made_listed_and_deleted(cluster: Cluster) -> None:
    cluster.topics.create(T)
    made = cluster.topics.create(P, schema="k string, n bigint")
    assert (made.name, made.segments, made.key) == (P, (), None)
    assert told(cluster).properties == {CONTAINS_TXN: "false"}
    assert [t.name for t in cluster.topics.list()] == [T, P]
    assert [t.name for t in cluster.topics.list("persistent://.*")] == [P]
    with pytest.raises(TopicExists):
        cluster.topics.create(P)
    write(cluster, P, 0)
    cluster.topics.delete(P)
    assert [t.name for t in cluster.topics.list()] == [T]
    for missing in (cluster.topics.describe, cluster.topics.delete, cluster.producer):
        with pytest.raises(TopicNotFound):
            missing(P)
    with pytest.raises(TopicExists, match="cannot be used again"):
        cluster.topics.create(P)


def test_segment_operations_on_persistent_topics_are_refused_with_advice(topics: Cluster) -> None:
    name = "persistent://public/default/new"
    for refused in (
        lambda: topics.topics.create(name, segments=4),
        lambda: topics.topics.create(name, key="k"),
        lambda: topics.topics.split(P, 0),
        lambda: topics.topics.merge(P, 0, 1),
        lambda: topics.scaling.set(P, rows_per_second=5),
        lambda: topics.compact(P),
    ):
        with pytest.raises(OptionError, match="has no segments, it is one log") as told:
            refused()
        assert "topic://public/default/" in (told.value.advice or "")
    with pytest.raises(TopicNotFound):
        topics.topics.describe(name)
    with pytest.raises(OptionError, match="in transactions alone"):
        topics.producer(T, plain=True)


def test_the_system_property_is_read_but_never_set_or_removed(topics: Cluster) -> None:
    with pytest.raises(NotAllowed):
        topics.topics.set_property(P, CONTAINS_TXN, "true")
    with pytest.raises(NotAllowed):
        topics.topics.remove_property(P, CONTAINS_TXN)
    assert topics.topics.set_property(P, "owner", "me") == {CONTAINS_TXN: "false", "owner": "me"}
    with topics.producer(P, plain=True) as plain:
        plain.send({"n": 1})
    assert topics.topics.properties(P)[CONTAINS_TXN] == "false"
    write(topics, P, 0)
    assert topics.topics.remove_property(P, "owner") == {CONTAINS_TXN: "true"}
    with pytest.raises(OptionError, match="only those have properties"):
        topics.topics.properties(T)


def test_a_schema_grows_with_written_columns(topics: Cluster) -> None:
    with topics.begin() as txn:
        txn.append(P, pa.table({"n": [1], "more": ["x"]}), merge_schema=True)
        txn.commit()
    schema = topics.topics.describe(P).schema
    assert schema is not None
    assert schema.fieldNames() == ["k", "n", "more"]
    assert [v.version for v in topics.topics.schemas(P)] == [0, 1]


# --- writing and reading ------------------------------------------------------------------------------------------------


def test_a_consumer_gets_committed_rows_in_order(topics: Cluster, consumer: Consumer) -> None:
    for first in range(0, 12, 4):
        write(topics, P, first)
    with topics.begin() as given_up:
        given_up.append(P, rows(90))
        given_up.abort()
    found = list(consumer.messages(timeout=NOW))
    assert [m.value["n"] for m in found] == list(range(12))
    assert {(m.topic, m.segment) for m in found} == {(P, P)}
    assert len({m.id for m in found}) == 12
    assert numbers(consumer) == []
    write(topics, P, 12)
    assert numbers(consumer) == [12, 13, 14, 15]


def test_plain_rows_are_seen_at_once_up_to_the_first_ongoing_transaction(topics: Cluster, consumer: Consumer) -> None:
    coordinator = topics.client.instream.coordinator
    with topics.producer(P, plain=True) as producer:
        producer.send({"k": "a", "n": 1})
        sent = producer.flush()
        assert sent is not None
        assert (sent.txn_id, sent.rows) == (None, 1)
        assert numbers(consumer) == [1]
        with topics.begin() as txn:
            txn.append(P, rows(10, 1))
            parts = txn._parts()
            ongoing = coordinator.begin(topics=[NAME])
            coordinator.append(ongoing, {NAME: parts[P]})
            txn.abort()
        producer.send({"k": "b", "n": 2})
        producer.flush()
        assert numbers(consumer) == [], "maxReadPosition is before the first entry of the ongoing transaction"
        with pytest.raises(OptionError, match="cannot write in a transaction"):
            producer.write(rows(0), txn=topics.begin())
    coordinator.end(ongoing, commit=True)
    assert numbers(consumer) == [10, 2]


def test_a_transaction_over_several_topics_with_acks(topics: Cluster, consumer: Consumer) -> None:
    write(topics, P, 0)
    with topics.begin() as txn:
        for message in consumer.messages(timeout=NOW):
            consumer.ack(message, txn=txn)
        with topics.producer(Q) as out:
            out.write(rows(100), txn=txn)
        txn.append(P, rows(4))
        committed = txn.commit()
    assert committed.txn_id == txn.id
    assert txn.id.startswith("1000000_")
    assert numbers(consumer) == [4, 5, 6, 7]
    assert consumer.lag().rows == 4
    with topics.consumer(Q, "s", start="earliest") as other:
        assert numbers(other) == [100, 101, 102, 103]


def test_an_abort_delivers_again(topics: Cluster, consumer: Consumer) -> None:
    write(topics, P, 0)
    with topics.begin() as txn:
        consumer.ack(list(consumer.messages(timeout=NOW)), txn=txn)
        txn.append(Q, rows(0))
        txn.abort()
    assert numbers(consumer) == [0, 1, 2, 3]


def test_acknowledged_rows_do_not_come_again(topics: Cluster, consumer: Consumer) -> None:
    write(topics, P, 0)
    write(topics, P, 4)
    for message in consumer.messages(timeout=NOW):
        if message.value["n"] % 2:
            consumer.ack(message)
    with topics.consumer(P, "s") as other:
        assert numbers(other) == [0, 2, 4, 6]
        assert consumer.lag().rows == 4
        other.rewind()
        found = list(other.messages(timeout=NOW))
        other.ack_cumulative(found[1])
        other.ack_cumulative(found[0])  # this row is acknowledged already
        with pytest.raises(AckConflict):
            other.ack(found[0])
    consumer.rewind()
    assert numbers(consumer) == [4, 6]


def test_a_transactions_version_commits_once(topics: Cluster) -> None:
    for _ in range(2):
        with topics.begin(app="etl", version=1) as txn:
            txn.append(P, rows(0))
            txn.commit()
    assert txn.commit().skipped
    with topics.begin(app="etl", version=0) as old:
        old.append(P, rows(9))
        with pytest.raises(VersionConflict):
            old.commit()
    with topics.consumer(P, "s", start="earliest") as consumer:
        assert numbers(consumer) == [0, 1, 2, 3]


def test_one_transaction_never_spans_both_models(topics: Cluster) -> None:
    def kept() -> int:
        return len(topics.client.cluster.store.view().keys(EVERYTHING))

    write(topics, P, 0)
    write(topics, T, 0)
    topics.client.finish()  # this call waits for the background work of both writes
    before = kept()
    for first, second in ((P, T), (T, P)):
        with topics.begin() as txn:
            txn.append(first, rows(50))
            with pytest.raises(OptionError, match=r"persistent://.*/p keep their .* one transaction never spans both"):
                txn.append(second, rows(60))
            assert len(txn._staged) == 1, "the refused append does not end the transaction"
            txn.abort()
    assert kept() == before
    with topics.consumer([P, T], "s", start="earliest") as consumer, topics.begin() as txn:
        found = list(consumer.messages(timeout=NOW))
        with pytest.raises(OptionError, match="never spans both"):
            consumer.ack(found, txn=txn)
        consumer.ack([m for m in found if m.topic == T], txn=txn)
        with pytest.raises(OptionError, match="migrate") as told:
            txn.append(Q, rows(0))
        assert "segment://public/default/t/0000-ffff-0" in told.value.message
        txn.commit()


def test_a_consumer_reads_both_models_at_once(topics: Cluster) -> None:
    with topics.consumer([P, T, Q], "s", start="earliest") as consumer:
        for first in range(0, 8, 4):
            for offset, name in enumerate((P, Q, T)):
                write(topics, name, 100 * offset + first)
        found = list(consumer.messages(timeout=NOW))
        by_topic = {name: [m.value["n"] for m in found if m.topic == name] for name in (P, Q, T)}
        assert by_topic == {P: [*range(8)], Q: [*range(100, 108)], T: [*range(200, 208)]}
        assert consumer.lag().rows == 24
        consumer.ack([m for m in found if m.value["n"] % 2])  # one call for rows of both models
        consumer.ack_cumulative([m for m in found if m.topic == P][-1])
        consumer.rewind()
        again = sorted(m.value["n"] for m in consumer.messages(timeout=NOW))
        assert again == [100, 102, 104, 106, 200, 202, 204, 206]


def test_a_commit_wakes_an_idle_consumer(topics: Cluster, consumer: Consumer) -> None:
    asleep, found = threading.Event(), []
    plain = consumer._woken.wait

    def waiting(seconds: float | None = None) -> bool:
        asleep.set()
        return plain(30)  # only an event ends this wait

    consumer._woken.wait = waiting  # type: ignore[method-assign, assignment]
    thread = threading.Thread(target=lambda: found.append(next(iter(consumer.messages()))), daemon=True)
    thread.start()
    assert asleep.wait(10)
    write(topics, P, 7, 1)
    thread.join(10)
    assert [m.value["n"] for m in found] == [7]


# --- subscriptions ------------------------------------------------------------------------------------------------------


def test_subscriptions(topics: Cluster) -> None:
    write(topics, P, 0)
    made = topics.subscriptions.create(P, "late", start="latest")
    assert (made.topic, made.lag.rows, [c.segment for c in made.cursors]) == (P, 0, [P])
    assert topics.subscriptions.create(P, "early").lag.rows == 4
    with pytest.raises(SubscriptionExists):
        topics.subscriptions.create(P, "early")
    write(topics, P, 4)
    topics.subscriptions.create(T, "other")
    found = [(s.topic, s.name, s.lag.rows) for s in topics.subscriptions.list()]
    assert found == [(T, "other", 0), (P, "early", 8), (P, "late", 4)]
    assert [s.name for s in topics.subscriptions.list(P)] == ["early", "late"]
    first, second = (ledger.id for ledger in topics.client.instream.buffer.read(NAME).ledgers())
    assert topics.subscriptions.seek(P, "early", first).lag.rows == 4
    assert topics.subscriptions.seek(P, "late", "earliest").lag.rows == 8
    assert topics.subscriptions.seek(P, "late", second).lag.rows == 0
    assert topics.subscriptions.describe(P, "late").cursors[0].mark_delete == str(second)
    with pytest.raises(OffsetOutOfRange):
        topics.subscriptions.seek(P, "late", second + 100)
    topics.subscriptions.delete(P, "late")
    with pytest.raises(SubscriptionNotFound):
        topics.subscriptions.describe(P, "late")
    with pytest.raises(SubscriptionNotFound):
        topics.consumer(P, "late")


def test_values_are_avro(topics: Cluster) -> None:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "n", "type": ["null", "long"], "default": null}]}'
    topics.topics.set_schema(P, schema)
    with topics.producer(P, value_format="avro") as producer:
        producer.send(b"\x02\x0e")
    with topics.consumer(P, "s", start="earliest", value_format="avro") as consumer:
        assert [m.value["value"] for m in consumer.messages(timeout=NOW)] == [b"\x02\x0e"]


def test_verify_reads_every_part(topics: Cluster) -> None:
    write(topics, P, 0)
    write(topics, P, 4)
    found = verify(topics.client, P)
    assert (found.parts, found.rows, found.damaged) == (2, 8, [])
    path = next(part.path for ledger in topics.client.instream.buffer.read(NAME).ledgers() for part in ledger.parts)
    topics.client.cluster.storage.delete(path)
    damaged = verify(topics.client, P).damaged
    assert [(d.segment, d.path, d.rows) for d in damaged] == [(P, path, 4)]


def test_transactions_are_listed_and_aborted(topics: Cluster) -> None:
    write(topics, T, 0)
    with topics.begin(app="etl", version=3) as txn:
        txn.append(P, rows(0))
        txn.append(Q, rows(0))
        txn.commit()
    ongoing = topics.client.instream.coordinator.begin(topics=[NAME])
    assert {t.id for t in topics.transactions.list()} >= {txn.id, ongoing}
    assert [t.id for t in topics.transactions.list("OPEN")] == [ongoing]
    shown = topics.transactions.get(txn.id)
    assert (shown.state, shown.app, shown.version, shown.segments) == ("COMMITTED", "etl", 3, (P, Q))
    topics.transactions.abort(ongoing)
    topics.transactions.abort(ongoing)
    assert topics.transactions.get(ongoing).state == "ABORTED"
    with pytest.raises(TxnConflict):
        topics.transactions.abort(txn.id)


def test_a_namespace_makes_new_persistent_names_topics_of_segments(topics: Cluster) -> None:
    space, new = "namespace://public/default", "persistent://public/default/new"
    assert topics.topics.model(space) == "in-stream"
    assert topics.topics.set_model(space, "metadata") == "metadata"
    assert topics.topics.create(new, segments=2, schema="n bigint").name == "topic://public/default/new"
    with topics.begin() as txn:
        txn.append(new, pa.table({"n": [1, 2]}))
        txn.append(T, rows(0))
        with pytest.raises(OptionError, match="never spans both"):
            txn.append(P, rows(0))  # P exists, so it stays persistent
        txn.commit()
    assert topics.subscriptions.create(new, "s").topic == "topic://public/default/new"
    with topics.consumer(new, "s") as consumer:
        assert sorted(numbers(consumer)) == [1, 2]
    with pytest.raises(OptionError, match="new_persistent"):
        topics.topics.set_model(space, "older")
    with pytest.raises(OptionError, match="is not a namespace"):
        topics.topics.model("public/default")


def test_a_sweep_ends_transactions_past_their_deadline(topics: Cluster, consumer: Consumer) -> None:
    mine = topics.client.instream.coordinator
    ongoing = mine.begin(topics=[NAME], timeout_ms=1)
    topics.sweep()
    with topics.producer(P, plain=True) as producer:
        producer.send({"n": 1})
    assert topics.transactions.get(ongoing).state in (
        "OPEN",
        "ABORTED",
    )  # the deadline may not have passed yet by the store's clock
    assert numbers(consumer) == [1]


def test_retention_takes_old_rows_but_none_that_a_subscription_needs(topics: Cluster, consumer: Consumer) -> None:
    for first in range(0, 12, 4):
        write(topics, P, first)
    consumer.ack_cumulative(list(consumer.messages(timeout=NOW))[7])
    topics.retention.set(P, keep_bytes=1)
    topics.sweep()
    with topics.consumer(P, "new", start="earliest") as other:
        assert numbers(other) == [8, 9, 10, 11]
    consumer.rewind()
    assert numbers(consumer) == [8, 9, 10, 11]
    topics.retention.set(P, despite_subscriptions=True)
    topics.sweep()
    with pytest.raises(DataLoss):
        consumer.rewind()


def test_the_program_in_the_docs(cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "in_stream.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("TXNSEGMENT_SERVICE_URL", url)
    exec(program, {})
    with cluster.consumer("persistent://public/default/orders", "others", start="earliest") as other:
        assert [message.value for message in other.messages(timeout=0)] == [{"id": 1, "price": 9.5}, {"id": 2, "price": 3.0}]
    assert cluster.subscriptions.describe("persistent://public/default/orders", "billing").lag.rows == 0
