"""Tests of `connect("pulsar://..")` and the command line, on a real broker."""

from __future__ import annotations

import json
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import NotAllowed, OptionError, SchemaError, TopicSealed, TxnConflict
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import ConnectionLost, LogDamaged, TopicMissing
from pulsar_protocol.key_values import KeyValues
from pulsar_protocol.layout import Position
from pulsar_protocol.messages import Schema
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import Sent, Settled, decode, log_name
from pulsar_protocol.values import codec
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from tests.support.pulsar_clusters import topic_with
from tests.support.pulsar_reads import messages_of, visible
from tests.support.pulsar_topics import Topic
from txnsegment import UncommittedTransaction, connect
from txnsegment.cli.app import build
from txnsegment.pulsar.cluster import PulsarCluster, open_pulsar

pytestmark = pytest.mark.pulsar

ROWS = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "who": ["ann", "bob", "cid", "ann"]})


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> str:
    """A topic with two segments, and with the schema of ROWS."""
    return topic_with(pulsar_broker, cluster, ROWS.schema)


def rows(cluster: PulsarCluster, topic: str) -> list[dict[str, object]]:
    """Return all visible rows, by segment."""
    values = codec(cluster.client.schema(topic), topic)
    found: list[dict[str, object]] = []
    for _, one in sorted(cluster.client.layout(topic).segments.items()):
        for _, entry in visible(cluster.client, one.name):
            found += values.decode([message.value for message in entry.messages()]).to_pylist()
    return found


def by_id(found: list[dict[str, object]]) -> list[str]:
    return sorted(str(one["id"]) for one in found)


def test_a_transaction_shows_its_rows_at_the_commit(cluster: PulsarCluster, topic: str) -> None:
    with cluster.begin() as txn:
        txn.append(topic, ROWS, key="who")
        assert rows(cluster, topic) == []
        done = txn.commit()
        assert txn.commit() == done
    assert (done.txn_id, done.rows) == (txn.id, 4)
    found = rows(cluster, topic)
    assert by_id(found) == ["1", "2", "3", "4"]
    assert [one["id"] for one in found if one["who"] == "ann"] == [1, 4], "rows of a key keep their order"


def test_a_transaction_that_is_not_committed_shows_nothing(cluster: PulsarCluster, topic: str) -> None:
    with pytest.warns(UncommittedTransaction), cluster.begin() as txn:
        txn.append(topic, ROWS)
    with pytest.raises(OptionError, match="has ended"):
        txn.append(topic, ROWS)
    failing = iter([ROWS, "no table"])
    with cluster.begin() as second, pytest.raises(SchemaError):
        second.append(topic, failing)
    with cluster.begin() as third:
        third.append(topic, ROWS.slice(0, 1))
        third.commit()
    assert by_id(rows(cluster, topic)) == ["1"]


def test_one_transaction_has_rows_of_two_topics(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    other = f"{topic}-other"
    pulsar_broker.create(other, 1)
    with cluster.begin() as txn:
        txn.append(topic, ROWS)
        txn.append(other, pa.table({"value": pa.array([b"x"])}))
        txn.commit()
    assert len(rows(cluster, topic)) == 4
    assert rows(cluster, other) == [{"value": b"x"}]


def test_columns_that_do_not_fit_abort_the_transaction(cluster: PulsarCluster, topic: str) -> None:
    txn = cluster.begin()
    txn.append(topic, ROWS)
    with pytest.raises(SchemaError):
        txn.append(topic, pa.table({"id": ["no number"]}))
    with pytest.raises(OptionError, match="has ended"):
        txn.commit()
    with cluster.begin() as keyed, pytest.raises(SchemaError, match="no column 'nobody'"):
        keyed.append(topic, ROWS, key="nobody")
    assert rows(cluster, topic) == []


def test_a_transaction_that_timed_out_is_a_conflict(cluster: PulsarCluster, topic: str) -> None:
    txn = cluster.begin(timeout=1)
    txn.append(topic, ROWS)
    assert txn._id is not None
    cluster.client.end(txn._id, commit=False)  # as the broker does after the timeout
    txn._since -= 1
    with pytest.raises(TxnConflict, match="by its timeout of 1000 ms"):
        txn.commit()
    assert rows(cluster, topic) == []


def test_a_split_between_two_appends(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    """The second append writes to the new segments. One commit makes the rows of both appends visible. The rows of a key are read
    in the order of the appends.
    """
    with cluster.begin() as txn:
        txn.append(topic, ROWS, key="who")
        for segment in cluster.client.layout(topic).active:
            pulsar_broker.split(topic, segment.id)
        later = pa.table({"id": pa.array([5, 6], pa.int64()), "who": ["ann", "bob"]})
        txn.append(topic, later, key="who")
        txn.commit()
    found = rows(cluster, topic)
    assert by_id(found) == ["1", "2", "3", "4", "5", "6"]
    assert [one["id"] for one in found if one["who"] == "ann"] == [1, 4, 5]


def test_a_split_within_an_append_sends_the_remaining_rows_to_the_new_segments(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker
) -> None:
    """The caller's batches come one by one. All segments are split between two of them, and merged again between two later ones."""
    seen: list[int] = []

    def numbered(first: int) -> pa.Table:
        seen.append(cluster.client.layout(topic).epoch)
        people = ["ann", "bob", "cid", "dan", "eve", "fay"]
        return pa.table({"id": pa.array(range(first, first + 3000), pa.int64()), "who": [people[n % 6] for n in range(3000)]})

    def batches() -> Iterator[pa.Table]:
        yield numbered(0)
        for segment in cluster.client.layout(topic).active:
            pulsar_broker.split(topic, segment.id)
        yield numbered(3000)
        one, two, *_ = cluster.client.layout(topic).active
        pulsar_broker.merge(topic, one.id, two.id)
        yield numbered(6000)

    with cluster.begin() as txn:
        txn.append(topic, batches(), key="who")
        assert rows(cluster, topic) == []
        assert txn.commit().rows == 9000
    assert len(set(seen)) == 3, "the layout changed between the batches"
    found = rows(cluster, topic)
    assert sorted(int(str(one["id"])) for one in found) == [*range(9000)]
    for who in {one["who"] for one in found}:
        mine = [one["id"] for one in found if one["who"] == who]
        assert mine == sorted(mine, key=lambda one: int(str(one))), "rows of a key keep their order, parents first"


def test_a_split_that_leaves_the_last_entry_unknown_ends_the_transaction(
    cluster: PulsarCluster, topic: str, monkeypatch: pytest.MonkeyPatch, pulsar_broker: PulsarBroker
) -> None:
    """The broker closes a producer while its entry is in flight, and other rows follow in the segment. The rows are sent to two
    segments at the same time, each by a thread.
    """
    one_at_a_time = threading.Lock()

    def lost(self: object, *_: object) -> Position:
        with one_at_a_time:
            pulsar_broker.split(topic, cluster.client.layout(topic).active[0].id)
        raise ConnectionLost("The segment was split, and the broker did not say whether it has the entry.")

    monkeypatch.setattr(Producer, "send", lost)
    txn = cluster.begin()
    with pytest.raises(TopicSealed, match="split or merged while rows were sent") as raised:
        txn.append(topic, ROWS, key="who")
    assert "Run it again" in raised.value.advice
    monkeypatch.undo()
    assert rows(cluster, topic) == []


def test_a_producer_commits_at_each_flush(cluster: PulsarCluster, topic: str) -> None:
    with cluster.producer(topic, key="who") as producer:
        producer.send({"id": 7, "who": "dan"})
        producer.send({"id": 8, "who": None})
        assert producer.flush() is not None
        producer.send({"id": 9, "who": "eve"})
    assert by_id(rows(cluster, topic)) == ["7", "8", "9"]


@pytest.fixture
def bare(pulsar_broker: PulsarBroker) -> str:
    """A topic without a schema."""
    return pulsar_broker.create(f"topic://public/default/bare-{uuid.uuid4().hex[:8]}", 2)


NARROW = pa.schema([("airport", pa.string()), ("minutes", pa.int32()), ("score", pa.float32())])


def test_rows_without_a_column_of_the_topic_are_refused(cluster: PulsarCluster, topic: str) -> None:
    with cluster.begin() as txn, pytest.raises(SchemaError, match=r"have the columns id, and .* id, who") as raised:
        txn.append(topic, ROWS.select(["id"]))
    assert "Add the missing columns (null where there is no value): who." in raised.value.advice
    with cluster.begin() as second, pytest.raises(SchemaError) as more:
        second.append(topic, ROWS.append_column("age", pa.array([1, 2, 3, 4])))
    assert "Leave out: age." in more.value.advice
    with cluster.producer(topic) as producer:
        producer.send({"id": 1})
        with pytest.raises(SchemaError, match="keeps the 1 rows") as kept:
            producer.flush()
        assert "who" in kept.value.advice
        producer.discard()
    assert rows(cluster, topic) == []


def test_rows_of_python_values_take_the_types_of_the_topic(cluster: PulsarCluster, pulsar_broker: PulsarBroker) -> None:
    topic = topic_with(pulsar_broker, cluster, NARROW)
    with cluster.producer(topic, key="airport") as producer:
        producer.send({"airport": "JFK", "minutes": 3, "score": 1})
        producer.send({"airport": "LGA", "minutes": None, "score": 0.1})
    with cluster.begin() as txn:
        txn.append(topic, pa.Table.from_pylist([{"minutes": 4, "airport": "EWR", "score": None}]), key="airport")
        txn.commit()
    found = {one["airport"]: (one["minutes"], one["score"]) for one in rows(cluster, topic)}
    assert found == {"JFK": (3, 1.0), "LGA": (None, pytest.approx(0.1)), "EWR": (4, None)}


def test_a_value_that_the_type_of_the_topic_does_not_hold_is_refused(cluster: PulsarCluster, pulsar_broker: PulsarBroker) -> None:
    topic = topic_with(pulsar_broker, cluster, NARROW)
    row = {"airport": "JFK", "minutes": 2**40, "score": None}
    with cluster.begin() as txn, pytest.raises(SchemaError, match="minutes has a value that int32 cannot hold") as raised:
        txn.append(topic, pa.Table.from_pylist([row]))
    assert "The type of the column is int." in raised.value.advice
    with cluster.producer(topic) as producer:
        producer.send(row)
        with pytest.raises(SchemaError, match="cannot hold"):
            producer.flush()
        producer.discard()
    with cluster.begin() as rounded, pytest.raises(SchemaError, match="score has the type double") as cast:
        rounded.append(topic, pa.Table.from_pylist([{**row, "minutes": 1, "score": 0.5}]))
    assert cast.value.advice == "Cast score to float before the write."
    assert rows(cluster, topic) == []


def test_the_first_rows_register_the_schema_of_a_topic_without_one(cluster: PulsarCluster, bare: str) -> None:
    with cluster.begin() as txn:
        txn.append(bare, [ROWS, ROWS.select(["who", "id"])], key="who")
        txn.commit()
    assert by_id(rows(cluster, bare)) == ["1", "1", "2", "2", "3", "3", "4", "4"]
    described = cluster.topics.describe(bare)
    assert described.schema is not None
    assert described.schema.simpleString() == "struct<id:bigint,who:string>"
    with cluster.begin() as second, pytest.raises(SchemaError):
        second.append(bare, pa.table({"other": ["x"]}))


def test_the_first_row_of_a_producer_registers_a_schema(cluster: PulsarCluster, bare: str) -> None:
    with cluster.producer(bare) as producer:
        producer.send({"value": "text"})
    assert rows(cluster, bare) == [{"value": "text"}]


def test_a_first_row_whose_types_are_not_known_registers_nothing(cluster: PulsarCluster, bare: str) -> None:
    with cluster.begin() as txn, pytest.raises(SchemaError, match="id") as raised:
        txn.append(bare, pa.Table.from_pylist([{"id": None, "who": "ann"}]))
    assert raised.value.advice
    assert cluster.topics.describe(bare).schema is None


def test_a_block_that_ends_without_commit_warns(cluster: PulsarCluster, topic: str) -> None:
    with (
        pytest.warns(UncommittedTransaction, match=r"4 rows for topic://.* do not count. Call txn.commit\(\)"),
        cluster.begin() as txn,
    ):
        txn.append(topic, ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncommittedTransaction)
        with cluster.begin():
            pass
        with cluster.begin() as given_up:
            given_up.append(topic, ROWS)
            given_up.abort()
        with pytest.raises(SchemaError), cluster.begin() as failing:
            failing.append(topic, ROWS.select(["id"]))
    assert rows(cluster, topic) == []


def test_a_block_with_acknowledgements_that_ends_without_commit_warns(
    pulsar_broker: PulsarBroker, cluster: PulsarCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADMIN_VARIABLE, pulsar_broker.admin_url)
    with cluster.begin() as txn:
        txn.append(topic, ROWS)
        txn.commit()
    with cluster.consumer(topic, "sub", start="earliest") as consumer:
        (*_, last) = consumer.messages(timeout=0)
        with pytest.warns(UncommittedTransaction, match="acknowledgements do not count"), cluster.begin() as txn:
            consumer.ack(last, txn=txn)


def test_topics_are_listed_and_described(cluster: PulsarCluster, topic: str, pulsar: str) -> None:
    described = cluster.topics.describe(topic)
    assert [one.name for one in cluster.topics.list(f"{topic}.*")] == [topic]
    assert [(one.start, one.end, str(one.state)) for one in described.segments] == [(0, 32767, "ACTIVE"), (32768, 65535, "ACTIVE")]
    assert described.schema is not None
    assert described.schema.names == ["id", "who"]
    shown = CliRunner().invoke(build(), ["topics", "describe", topic, "--service-url", pulsar, "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["name"] == topic
    with pytest.raises(TopicMissing, match="nothing-here"):
        cluster.topics.describe("nothing-here")


def test_what_pulsar_does_not_have_is_refused(pulsar: str) -> None:
    with connect(pulsar) as cluster:
        with pytest.raises(NotAllowed, match="BookKeeper") as refused:
            cluster.compact("t")
        assert "cluster.compact does not exist for a Pulsar cluster" in str(refused.value)
        with pytest.raises(OptionError, match="app is given without version"):
            cluster.begin(app="loader")
        with pytest.raises(AttributeError):
            cluster.nothing_of_the_kind  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(OptionError, match="no ledger root"):
        connect(pulsar, ledgers="file:///tmp/x")
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1 "):
        connect("pulsar://127.0.0.1:1")


def batch(broker: PulsarBroker, topic: str) -> list[object]:
    """Return the ids that a batch reads now."""
    reader = Topic(broker, PulsarClient(broker.url), topic).reader()
    return sorted(one for task in reader.partitions() for rows in reader.read(task) for one in rows.column("id").to_pylist())


def consumed(cluster: PulsarCluster, topic: str) -> list[object]:
    """Return the ids that a new consumer gets now."""
    with cluster.consumer(topic, "late", start="earliest") as consumer:
        return sorted(one.value["id"] for one in consumer.messages(timeout=0))


def by_transaction(cluster: PulsarCluster, topic: str) -> None:
    with cluster.begin() as txn:
        for start in range(4):  # four entries, in both segments
            txn.append(topic, ROWS.slice(start, 1))
        txn.commit()


def by_producer(cluster: PulsarCluster, topic: str) -> None:
    """A transaction of 2,000 rows with keys has entries in both segments."""
    rows = pa.table({"id": pa.array(range(2_000), pa.int64()), "who": [str(number) for number in range(2_000)]})
    with cluster.producer(topic, key="who") as producer:
        producer.write(rows)


@pytest.mark.parametrize("write", [by_transaction, by_producer])
def test_a_transaction_is_read_whole_in_a_topic_that_spark_has_never_written(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker, write: Callable[[PulsarCluster, str], None]
) -> None:
    """The open transaction holds back the rows of one segment."""
    with cluster.begin() as other:
        other.append(topic, ROWS.slice(0, 1))
        write(cluster, topic)
        assert batch(pulsar_broker, topic) == []
        assert consumed(cluster, topic) == []
        other.abort()
    assert len(batch(pulsar_broker, topic)) in (4, 2_000)


def test_a_transaction_needs_the_rest_interface_to_create_the_log_of_a_topic(
    cluster: PulsarCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADMIN_VARIABLE)
    with cluster.begin() as txn:
        with pytest.raises(TopicMissing, match=log_name(topic)) as caught:
            txn.append(topic, ROWS)
        assert ADMIN_VARIABLE in caught.value.advice
        assert txn.id is None, "nothing was sent"


def test_a_commit_creates_a_deleted_log_again(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    with cluster.begin() as txn:
        txn.append(topic, ROWS)
        cluster.topics.delete(log_name(topic))
        txn.commit()
    assert len(batch(pulsar_broker, topic)) == 4


JUNK = [b"junk", b"[]", b'{"kind":"sent"}', b'{"kind":"what"}', b"null", b"", b"{}"]


@pytest.mark.parametrize("junk", JUNK)
def test_junk_in_a_log_is_an_error_that_names_the_log(junk: bytes) -> None:
    with pytest.raises(LogDamaged, match="topic://t/n/log: ") as caught:
        decode(junk, "topic://t/n/log")
    assert "delete" in caught.value.advice


def test_junk_in_the_log_of_a_topic_is_found_by_reads_and_goes_with_the_log(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker
) -> None:
    with open_pulsar(pulsar_broker.url, None) as writer:  # its producers end with it: M1 deletes no segment that has producers
        by_transaction(writer, topic)
    log = log_name(topic)
    with Producer(cluster.client, cluster.client.layout(log).active[0].name) as producer:
        producer.send([Message(b"junk")])
    try:
        for read in (lambda: batch(pulsar_broker, topic), lambda: consumed(cluster, topic)):
            with pytest.raises(LogDamaged, match=log):
                read()
        with pytest.raises(LogDamaged):
            cluster.transactions.list()
    finally:
        cluster.topics.delete(log)
    by_transaction(cluster, topic)
    assert len(batch(pulsar_broker, topic)) == 8


def test_a_commit_records_where_its_rows_are(cluster: PulsarCluster, topic: str) -> None:
    with cluster.begin() as txn:
        txn.append(topic, ROWS, key="who")
        txn.append(topic, ROWS, key="who")
        txn.commit()
    (log,) = cluster.client.layout(log_name(topic)).active
    record, settled = [decode(message.value or b"") for message in messages_of(cluster.client, log.name)]
    assert isinstance(record, Sent)
    assert isinstance(settled, Settled), "the first write into a ledger says that no earlier record is needed"
    assert record.txn.text == txn.id
    for segment, (first, last) in record.segments.items():
        places = [place for place, _ in visible(cluster.client, segment)]
        assert (places[0], places[-1]) == (first, last)


def test_a_commit_records_its_rows_after_the_log_was_split(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    pulsar_broker.create(log_name(topic), 1)
    pulsar_broker.split(log_name(topic), 0)
    with cluster.begin() as txn:
        txn.append(topic, ROWS, key="who")
        txn.commit()
    found = [
        decode(message.value or b"")
        for one in cluster.client.layout(log_name(topic)).active
        for message in messages_of(cluster.client, one.name)
    ]
    assert [one.txn.text for one in found if isinstance(one, Sent)] == [txn.id]


def test_keys_that_the_schema_has_in_its_rows_are_the_bytes_of_java(cluster: PulsarCluster, pulsar_broker: PulsarBroker) -> None:
    """Integer keys of a KEY_VALUE schema are no text, so they are marked as binary. Rows with a null key are kept, too."""
    topic = f"topic://public/default/pairs-{uuid.uuid4().hex[:8]}"
    pulsar_broker.create(topic, 2)
    values = KeyValues(codec(Schema(name="", type=8)), codec(Schema(name="", type=1)), separated=True)
    layout = cluster.client.layout(topic)
    cluster.client.register(layout.active[0].name, values.schema)
    given = pa.table({"key": pa.array([1, 300, 70_000, None, 300], pa.int32()), "value": ["a", "b", "c", "d", "e"]})
    with cluster.begin() as txn:
        txn.append(topic, given)
        txn.commit()
    found: dict[str, list[Message]] = {one.name: [*messages_of(cluster.client, one.name)] for one in layout.active}
    messages = [one for several in found.values() for one in several]
    pairs = values.decode([one.value for one in messages], [one.key for one in messages]).to_pylist()
    assert sorted(pairs, key=lambda pair: str(pair["value"])) == given.to_pylist()
    assert [one.value for one in messages if one.key == (300).to_bytes(4, "big")] == [b"b", b"e"]
    assert all(one.key_is_binary == (one.key is not None) for one in messages)
    for name, several in found.items():
        assert {layout.segment_of(one.key, "low").name for one in several if one.key is not None} <= {name}
