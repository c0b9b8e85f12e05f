"""`cluster.consumer(..)` of a Pulsar cluster, on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import (
    AckConflict,
    NotAllowed,
    NotDelivered,
    OptionError,
    OutcomeUnknown,
    SubscriptionNotFound,
    TxnConflict,
)
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message as Row
from pulsar_protocol.errors import ConnectionLost, TopicMissing
from pulsar_protocol.layout import Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import log_name
from pulsar_protocol.subscription import all_but
from spark_txn_sink.pulsar.control import TakenOver
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from spark_txn_source.pulsar.topics import shared_client
from tests.support.pulsar_clusters import register, topic_with
from txnsegment.messages import Message
from txnsegment.pulsar.ack_log import SubscriptionBusy
from txnsegment.pulsar.ack_records import WHOLE, beginning
from txnsegment.pulsar.cluster import PulsarCluster, open_pulsar
from txnsegment.pulsar.consumer import PulsarConsumer

pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("id", pa.int64()), ("who", pa.string())])


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> str:
    return made(pulsar_broker, cluster, 2)


def made(broker: PulsarBroker, cluster: PulsarCluster, segments: int, namespace: str = "public/default") -> str:
    return topic_with(broker, cluster, COLUMNS, segments, namespace)


def table(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "who": [f"k{one % 5}" for one in ids]}, COLUMNS)


def write(cluster: PulsarCluster, topic: str, *ids: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, table(*ids), key="who")
        txn.commit()


def taken(consumer: PulsarConsumer, count: int | None = None) -> list[Message]:
    """Return the next `count` rows, or fewer if no row comes for ten seconds. None: return the rows that are there now."""
    found: list[Message] = []
    for message in consumer.messages(timeout=0 if count is None else 10):
        found.append(message)
        if len(found) == count:
            break
    return found


def ids(found: list[Message]) -> list[int]:
    return [one.value["id"] for one in found]


def in_order(found: list[Message]) -> bool:
    """Return whether the rows of each key come in the order of their numbers."""
    keys = {one.value["who"] for one in found}
    return all(ids(of := [one for one in found if one.value["who"] == key]) == sorted(ids(of)) for key in keys)


def left(cluster: PulsarCluster, topic: str, subscription: str = "s") -> list[int]:
    """Return the rows that a new consumer gets."""
    with cluster.consumer(topic, subscription) as consumer:
        return sorted(ids(taken(consumer)))


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what a broker does some time later."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


# --- delivering ---


def test_a_row_has_its_place_and_its_transaction(cluster: PulsarCluster, topic: str) -> None:
    with cluster.begin() as txn:
        txn.append(topic, table(7), key="who")
        txn.commit()
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        (message,) = taken(consumer)
    assert (message.topic, message.value, message.txn) == (topic, {"id": 7, "who": "k2"}, txn.id)
    assert message.segment in {one.name for one in cluster.client.layout(topic).active}
    assert message.id.count(":") == 2


def test_a_loop_that_was_left_goes_on_with_the_next_row(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, *range(20))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        first = taken(consumer, 3)
        second = next(consumer.messages(timeout=10))
        batch = next(consumer.batches(timeout=10))
        rest = taken(consumer)
        found = [*first, second, *batch.messages(), *rest]
        assert sorted(ids(found)) == list(range(20))
        assert in_order(found)
        assert taken(consumer) == []


def test_a_consumer_waits_for_rows(cluster: PulsarCluster, topic: str) -> None:
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        assert list(consumer.messages(timeout=0.3)) == []
        write(cluster, topic, 1)
        assert ids(taken(consumer, 1)) == [1]


def test_a_rewind_delivers_the_unacknowledged_rows_in_order(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, *range(10))
    write(cluster, topic, *range(10, 20))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        found = taken(consumer, 15)
        consumer.ack(found[1], found[4], found[9:12])
        acked = {*ids([found[1], found[4], *found[9:12]])}
        consumer.rewind()
        again = taken(consumer)
        assert sorted(ids(again)) == sorted({*range(20)} - acked)
        assert in_order(again)


def test_a_new_subscription_begins_at_its_start(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1, 2)
    with cluster.consumer(topic, "new", start="latest") as consumer:
        assert taken(consumer) == []
        write(cluster, topic, 3)
        assert ids(taken(consumer, 1)) == [3]
    with cluster.consumer(topic, "new", start="earliest") as consumer:
        assert ids(taken(consumer)) == [3], "the subscription exists, so start does not matter"


def test_a_consumer_goes_on_where_the_cursors_of_a_subscription_are(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1, 2)
    cluster.subscriptions.create(topic, "mine", start="latest")
    write(cluster, topic, 3)
    with cluster.consumer(topic, "mine") as consumer:
        assert ids(taken(consumer)) == [3]


def test_the_columns_and_the_bytes_can_be_chosen(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1)
    with cluster.consumer(topic, "s", start="earliest", columns=["who"]) as consumer:
        assert [one.value for one in taken(consumer)] == [{"who": "k1"}]
    with cluster.consumer(topic, "b", start="earliest", value_format="binary") as consumer:
        (message,) = taken(consumer)
        assert isinstance(message.value["value"], bytes)


def test_a_topic_of_the_older_model_is_consumed(cluster: PulsarCluster) -> None:
    name = f"persistent://public/default/old-{uuid.uuid4().hex[:8]}"
    with Producer(cluster.client, name) as producer:
        producer.send([Row(b"a"), Row(b"b")])
        producer.send([Row(b"c")])
    with cluster.consumer(name, "s", start="earliest") as consumer, cluster.begin() as txn:
        found = taken(consumer)
        assert [one.value["value"] for one in found] == [b"a", b"b", b"c"]
        consumer.ack_cumulative(found[1], txn=txn)
        txn.commit()
    with cluster.consumer(name, "s") as consumer:
        assert [one.value["value"] for one in taken(consumer)] == [b"c"]


# --- acknowledging ---


def test_single_acknowledgements_survive_a_new_consumer(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, *range(20))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        acked = [one for one in taken(consumer) if one.value["id"] % 3 == 1]
        consumer.ack(acked)
    assert left(cluster, topic) == [one for one in range(20) if one % 3 != 1]
    with cluster.consumer(topic, "s") as consumer:
        consumer.ack_cumulative(taken(consumer)[-1])
    assert left(cluster, topic) == []


def test_a_cumulative_acknowledgement_has_the_delivered_rows_of_all_segments(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, *range(10))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        found = taken(consumer)
        assert len({one.segment for one in found}) == 2
        consumer.ack_cumulative(found[7])
        consumer.ack_cumulative(found[7])
        consumer.rewind()
        assert ids(taken(consumer)) == ids(found[8:])
        consumer.rewind()
        with pytest.raises(NotDelivered, match="was not delivered"):
            consumer.ack_cumulative(found[9])


def test_a_row_is_acknowledged_once(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, *range(4))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        found = taken(consumer)
        consumer.ack(found[0])
        with pytest.raises(AckConflict, match="is acknowledged already"):
            consumer.ack(found[1], found[0])
        with cluster.begin() as one, cluster.begin() as other:
            consumer.ack(found[2], txn=one)
            for txn in (other, one, None):
                with pytest.raises(AckConflict, match="which is open"):
                    consumer.ack(found[2], txn=txn)
            with pytest.raises(AckConflict, match="which is open"):
                consumer.ack_cumulative(found[3], txn=other)
            one.commit()
    assert left(cluster, topic) == sorted(ids([found[1], found[3]]))


def test_the_cursors_of_the_broker_follow_up_to_the_entry_before_the_last_one(cluster: PulsarCluster, topic: str) -> None:
    """The broker keeps the ledger of the last entry, so that a ledger that was read is told from one that was deleted unread."""
    write(cluster, topic, *range(10))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        found = taken(consumer)
        consumer.ack_cumulative(found[-1])
    told = cluster.subscriptions.positions(topic, "s") or {}
    last = {one.segment: Position.parse(one.id.rpartition(":")[0]) for one in found}
    assert told == {name: all_but(place) for name, place in last.items()}


# --- transactions ---


def test_rows_and_acknowledgements_are_committed_together(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    other = made(pulsar_broker, cluster, 1)
    write(cluster, topic, *range(10))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        for start in range(0, 10, 5):
            with cluster.begin() as txn:
                found = taken(consumer, 5)
                txn.append(other, table(*ids(found)), key="who")
                consumer.ack(found, txn=txn)
                assert start == 5 or left_of(cluster, other) == []
                txn.commit()
    assert left(cluster, topic) == []
    assert left_of(cluster, other) == list(range(10))


def left_of(cluster: PulsarCluster, topic: str) -> list[int]:
    """Return all rows of a topic."""
    with cluster.consumer(topic, f"look-{uuid.uuid4().hex[:6]}", start="earliest") as consumer:
        return sorted(ids(taken(consumer)))


def test_an_aborted_transaction_gives_its_rows_back(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, *range(6))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        found = taken(consumer)
        with cluster.begin() as txn:
            consumer.ack(found[:4], txn=txn)
        with pytest.raises(OptionError, match="has ended"):
            consumer.ack(found[0], txn=txn)
        with pytest.raises(NotDelivered):
            consumer.ack_cumulative(found[5])
        assert ids(taken(consumer)) == ids(found)
    assert left(cluster, topic) == list(range(6))


def test_a_rewind_does_not_deliver_the_rows_of_an_open_transaction(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, *range(6))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        found = taken(consumer)
        with cluster.begin() as txn:
            consumer.ack_cumulative(found[2], txn=txn)
            consumer.rewind()
            assert ids(taken(consumer)) == ids(found[3:])
        assert ids(taken(consumer)) == ids(found)


def test_one_transaction_has_acknowledgements_of_two_topics(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker
) -> None:
    other = made(pulsar_broker, cluster, 1)
    write(cluster, topic, 1, 2)
    write(cluster, other, 3, 4)
    a, b = (cluster.consumer(one, "s", start="earliest") for one in (topic, other))
    with a, b, cluster.begin() as txn:
        a.ack_cumulative(taken(a)[-1], txn=txn)
        b.ack(taken(b)[0], txn=txn)
        txn.commit()
    assert (left(cluster, topic), left(cluster, other)) == ([], [4])


def test_a_transaction_that_the_broker_has_ended_gives_its_rows_back(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1, 2)
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        txn = cluster.begin()
        txn.append(topic, table(3), key="who")
        consumer.ack(taken(consumer), txn=txn)
        assert txn._id is not None
        cluster.client.end(txn._id, commit=False)  # as the broker does after the timeout
        with pytest.raises(TxnConflict, match="was aborted"):
            txn.commit()
        assert sorted(ids(taken(consumer))) == [1, 2]


def test_a_lost_connection_before_the_commit_loses_no_acknowledgement(cluster: PulsarCluster, topic: str) -> None:
    """The acknowledgements are with the client until the commit. Then it connects again."""
    write(cluster, topic, 1, 2)
    with cluster.consumer(topic, "s", start="earliest") as consumer, cluster.begin() as txn:
        consumer.ack(taken(consumer)[0], txn=txn)
        consumer._acks.forget()
        txn.commit()
    assert len(left(cluster, topic)) == 1


def commit_acks(cluster: PulsarCluster, consumer: PulsarConsumer, last: Message) -> None:
    with cluster.begin() as txn:
        consumer.ack_cumulative(last, txn=txn)
        txn.commit()


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_commit_with_an_unknown_outcome_is_resolved(
    cluster: PulsarCluster, topic: str, monkeypatch: pytest.MonkeyPatch, carried_out: bool
) -> None:
    write(cluster, topic, 1, 2)
    real = cluster.client.end

    def lost(txn: object, *, commit: bool) -> None:
        if commit and carried_out:
            real(txn, commit=True)
        if commit:
            raise ConnectionLost("The connection broke.")
        real(txn, commit=False)

    with cluster.consumer(topic, "s", start="earliest") as consumer:
        last = taken(consumer)[-1]
        with monkeypatch.context() as patched:
            patched.setattr(cluster.client, "end", lost)
            with pytest.raises(OutcomeUnknown) as raised:
                commit_acks(cluster, consumer, last)
        assert ("IS committed" if carried_out else "is aborted") in raised.value.__notes__[0]
        assert sorted(ids(taken(consumer))) == ([] if carried_out else [1, 2])


# --- one consumer ---


def test_a_second_consumer_is_refused(cluster: PulsarCluster, topic: str, pulsar: str) -> None:
    with cluster.consumer(topic, "s", start="earliest"), open_pulsar(pulsar, None) as another:
        with pytest.raises(SubscriptionBusy, match=f"Another consumer or transaction has the subscription 's' of {topic}"):
            another.consumer(topic, "s")
        with another.consumer(topic, "t", start="earliest"):
            pass
    with cluster.consumer(topic, "s"):
        pass


def test_a_consumer_that_lost_its_place_can_acknowledge_nothing(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1, 2)
    with cluster.consumer(topic, "s", start="earliest") as first:
        found = taken(first)
        first._acks.forget()  # as if its connection were lost
        with cluster.consumer(topic, "s") as second:
            assert len(taken(second)) == 2
        with pytest.raises(TakenOver, match="has taken over"):
            first.ack(found[0])
        with pytest.raises(TakenOver):
            commit_acks(cluster, first, found[0])
    assert left(cluster, topic) == [1, 2]


# --- layouts ---


def test_a_consumer_that_starts_again_after_a_merge_gets_new_rows(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker
) -> None:
    """The writers' log names transactions with rows in a segment that is acknowledged as a whole, and in one that is not."""
    pulsar_broker.create(log_name(topic), 1)
    for turn, change in enumerate((lambda: None, lambda: pulsar_broker.split(topic, 0), lambda: pulsar_broker.merge(topic, 2, 3))):
        change()
        rows = range(20 * turn, 20 * turn + 20)
        write(cluster, topic, *rows)
        with cluster.consumer(topic, "s", start="earliest") as consumer:
            found = taken(consumer, len(rows))
            assert sorted(ids(found)) == [*rows]
            consumer.ack(found)


def test_a_split_and_a_merge_under_a_running_consumer(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    found: list[Message] = []
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        write(cluster, topic, *range(20))
        found += taken(consumer, 7)
        consumer.ack(found)
        for one in cluster.client.layout(topic).active:
            pulsar_broker.split(topic, one.id)
        write(cluster, topic, *range(20, 40))
        found += (more := taken(consumer, 20))
        with cluster.begin() as txn:
            consumer.ack(more, txn=txn)
            first, second, *_ = cluster.client.layout(topic).active
            pulsar_broker.merge(topic, first.id, second.id)
            txn.commit()
        write(cluster, topic, *range(40, 60))
        found += (more := taken(consumer))
        consumer.ack_cumulative(more[-1])
        assert taken(consumer) == []
        state = consumer._acks.state()
    assert sorted(ids(found)) == list(range(60))
    assert in_order(found)
    assert left(cluster, topic) == []
    sealed = [one.name for one in cluster.client.layout(topic).segments.values() if not one.active]
    assert len(sealed) == 4
    assert all(beginning(state.rows[name]) == WHOLE for name in sealed)


def test_a_segment_that_was_acknowledged_as_a_whole_may_be_deleted(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker
) -> None:
    """No row is written after the split. The record precedes the cursor, so a later consumer knows that no row was lost."""
    write(cluster, topic, *range(5))
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        consumer.ack(taken(consumer))
        (parent, *_) = cluster.client.layout(topic).active
        pulsar_broker.split(topic, parent.id)
        assert taken(consumer) == []
        assert beginning(consumer._acks.state().rows[parent.name]) == WHOLE


# --- what goes wrong ---


def test_what_cannot_be_opened_is_refused(cluster: PulsarCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TopicMissing, match="nothing-here"):
        cluster.consumer("nothing-here", "s", start="earliest")
    with pytest.raises(SubscriptionNotFound, match=r"Give start=|has no subscription absent"):
        cluster.consumer(topic, "absent")
    with pytest.raises(OptionError, match="one topic, not 2"):
        cluster.consumer([topic, topic], "s", start="earliest")
    with pytest.raises(OptionError, match="no log numbers"):
        cluster.consumer(topic, "s", start=7)
    with pytest.raises(OptionError, match="valueFormat"):
        cluster.consumer(topic, "s", start="earliest", value_format="avro")
    with pytest.raises(OptionError, match="'auto'"):
        cluster.consumer(topic, "auto", start="earliest")
    monkeypatch.delenv(ADMIN_VARIABLE)
    with pytest.raises(OptionError, match="needs Pulsar's REST interface"):
        cluster.consumer(topic, "s", start="earliest")


def test_what_a_consumer_cannot_do_is_refused(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    other = made(pulsar_broker, cluster, 1)
    write(cluster, topic, 1)
    with cluster.consumer(topic, "s", start="earliest") as consumer, cluster.consumer(other, "s", start="earliest") as wrong:
        found = taken(consumer)
        with pytest.raises(NotAllowed, match=r"consumer\.lag does not exist"):
            consumer.lag()
        with pytest.raises(OptionError, match="cannot be acknowledged by a consumer of"):
            wrong.ack(found)
    consumer.close()
    with pytest.raises(OptionError, match="is closed"):
        consumer.ack(found)
    with pytest.raises(OptionError, match="is closed"):
        next(consumer.messages(timeout=0))


def deleted(cluster: PulsarCluster, topic: str) -> bool:
    """Delete a subscription; return whether it was possible."""
    try:
        cluster.subscriptions.delete(topic, "s")
    except SubscriptionBusy:
        return False
    return True


def test_a_subscription_is_moved_and_deleted(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1, 2)
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        consumer.ack(taken(consumer))
        with pytest.raises(SubscriptionBusy):
            cluster.subscriptions.seek(topic, "s", "earliest")
    cluster.subscriptions.seek(topic, "s", "earliest")
    assert left(cluster, topic) == [1, 2]
    cluster.subscriptions.seek(topic, "s", "latest")
    assert left(cluster, topic) == []
    with pytest.raises(SubscriptionBusy, match=r"has \d consumers, as the broker counts them"):
        cluster.subscriptions.delete(topic, "s")
    shared_client(cluster.url).close()  # as the end of this process does
    until(lambda: deleted(cluster, topic), 150)
    with pytest.raises(SubscriptionNotFound):
        cluster.consumer(topic, "s")
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        assert sorted(ids(taken(consumer))) == [1, 2]


# --- what the broker deletes ---


@pytest.fixture
def short_lived(pulsar_broker: PulsarBroker) -> str:
    """A namespace without retention: the broker deletes what all subscriptions have passed."""
    name = f"public/short-{uuid.uuid4().hex[:8]}"
    pulsar_broker.rest("PUT", f"namespaces/{name}", {})
    pulsar_broker.rest("POST", f"namespaces/{name}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    return name


@pytest.mark.slow
def test_what_the_broker_deletes_after_its_acknowledgement_is_no_loss(
    cluster: PulsarCluster, pulsar_broker: PulsarBroker, short_lived: str
) -> None:
    """In one topic a ledger is deleted, in the other one the parent of a split. No row comes between the split and this. A consumer
    itself leaves the last entry that it read to the cursor. So in the first topic the cursor is moved to the end by a seek.
    """
    trimmed, split = (made(pulsar_broker, cluster, 1, short_lived) for _ in range(2))
    consumers = [cluster.consumer(one, "s", start="earliest") for one in (trimmed, split)]
    for topic, consumer in zip((trimmed, split), consumers, strict=True):
        write(cluster, topic, *range(5))
        consumer.ack(taken(consumer))
        assert taken(consumer) == []
    consumers[0].close()
    cluster.subscriptions.seek(trimmed, "s", "latest")
    (segment,) = cluster.client.layout(trimmed).active
    ledger = Segment(cluster.client, segment.name).before_first().ledger
    pulsar_broker.rest("PUT", f"namespaces/{short_lived}/unload")
    pulsar_broker.split(split, 0)
    until(lambda: taken(consumers[1]) == [] and 0 not in cluster.client.layout(split).segments, 150)
    until(lambda: Segment(cluster.client, segment.name).before_first().ledger > ledger)
    consumers[0] = cluster.consumer(trimmed, "s")
    for topic, consumer in zip((trimmed, split), consumers, strict=True):
        register(cluster, topic, COLUMNS)  # the broker has deleted the schema with the parent
        write(cluster, topic, 7)
        assert ids(taken(consumer, 1)) == [7]
        consumer.close()
        assert left(cluster, topic) == [7]


# --- versions of an application ---


@pytest.mark.parametrize("how", ["begin", "transaction"])
def test_acknowledgements_of_a_version_count_with_it_and_not_if_it_is_skipped(cluster: PulsarCluster, topic: str, how: str) -> None:
    """The first run of version 1 is committed with its acknowledgement. Its repetition is skipped: its row is not written, and the
    row that it acknowledges comes again.
    """
    app = f"etl-{uuid.uuid4().hex[:8]}"
    write(cluster, topic, 1, 2)
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        for expected in (False, True):
            one = next(consumer.messages(timeout=10))
            with getattr(cluster, how)(app=app, version=1) as txn:
                txn.append(topic, table(10 + one.value["id"]), key="who")
                consumer.ack(one, txn=txn)
                if how == "begin":
                    assert txn.commit().skipped is expected
    assert left(cluster, topic) == [2, 11] or left(cluster, topic) == [1, 12]
