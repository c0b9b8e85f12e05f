"""`txn.read` and `txn.acknowledge_rows` of a Pulsar cluster, on a real broker: rows are read, written and acknowledged together."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import (
    AckConflict,
    OffsetOutOfRange,
    OptionError,
    SchemaError,
    SubscriptionNotFound,
    TxnConflict,
    VersionConflict,
)
from metadata.records.row_ranges import NONE, Rows
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import TransactionEnded
from pulsar_protocol.layout import Position
from pulsar_protocol.owned_names import has_ack_log
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import log_name
from spark_txn_sink.pulsar.control import TakenOver
from tests.support.pulsar_clusters import register, topic_with
from txnsegment.pulsar import ack_log as ack_log_module
from txnsegment.pulsar import transaction_acks
from txnsegment.pulsar.ack_log import Clock, SubscriptionBusy, ack_log
from txnsegment.pulsar.ack_records import WHOLE, beginning
from txnsegment.pulsar.cluster import PulsarCluster, open_pulsar
from txnsegment.pulsar.spark_transaction import PulsarSparkTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("id", pa.int64()), ("who", pa.string())])


@pytest.fixture
def topics(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> tuple[str, str]:
    """A source of two segments with a subscription `s`, and a target."""
    source, target = topic_with(pulsar_broker, cluster, COLUMNS, 2), topic_with(pulsar_broker, cluster, COLUMNS, 1)
    cluster.subscriptions.create(source, "s")
    return source, target


def table(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "who": [f"k{one % 5}" for one in ids]}, COLUMNS)


def send(cluster: PulsarCluster, topic: str, *ids: int, commit: bool = True) -> None:
    with cluster.begin() as txn:
        txn.append(topic, table(*ids), key="who")
        if commit:
            txn.commit()
        else:
            txn.abort()


def write(txn: PulsarSparkTransaction, rows: DataFrame, topic: str) -> None:
    rows.select("id", "who").write.format("txnsegment").mode("append").options(**txn.options).option("keyColumn", "who").save(topic)


def ids(rows: DataFrame) -> list[int]:
    return sorted(row["id"] for row in rows.collect())


def read(spark: SparkSession, cluster: PulsarCluster, topic: str, **options: str) -> DataFrame:
    return spark.read.format("txnsegment").options(serviceUrl=cluster.url, **options).load(topic)


def rows_with(spark: SparkSession, cluster: PulsarCluster, topic: str, *expected: int) -> DataFrame:
    """Return a read of a topic that has these rows. The broker shows the rows of a commit a moment later."""
    deadline = time.monotonic() + 60
    while not set(expected) <= set(ids(found := read(spark, cluster, topic, includeMetadata="true"))):
        assert time.monotonic() < deadline
    return found


def left(cluster: PulsarCluster, topic: str, subscription: str = "s") -> list[int]:
    """Return the rows that a consumer gets."""
    with cluster.consumer(topic, subscription) as consumer:
        return sorted(one.value["id"] for one in consumer.messages(timeout=0))


def acked(cluster: PulsarCluster, topic: str, subscription: str = "s") -> dict[str, Rows]:
    """Return what is acknowledged, by segment."""
    log = ack_log(cluster.url, topic, subscription, Clock())
    try:
        return dict(log.state().rows)
    finally:
        log.close()


# --- read -------------------------------------------------------------------------------------------------------------------


def test_consume_transform_produce(spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str]) -> None:
    """The read leaves out acknowledged rows, those of an aborted transaction, and those that come after it."""
    source, target = topics
    send(cluster, source, *range(8))
    with cluster.consumer(source, "s") as consumer:
        consumer.ack([one for one in consumer.messages(timeout=0) if one.value["id"] in (2, 3)])
    send(cluster, source, 90, 91, commit=False)
    send(cluster, source, 8, 9)
    with cluster.transaction(app=f"etl-{source}", version=1) as txn:
        given = txn.read(spark, source, subscription="s", minPartitions=4)
        send(cluster, source, 10, 11)
        assert ids(given) == [0, 1, 4, 5, 6, 7, 8, 9]
        write(txn, given.where("id >= 5"), target)
        write(txn, given.where("id < 5"), target)
        assert ids(given) == [0, 1, 4, 5, 6, 7, 8, 9]
        assert ids(read(spark, cluster, target)) == []
    assert ids(read(spark, cluster, target)) == [0, 1, 4, 5, 6, 7, 8, 9]
    assert (txn.commit().rows, txn.commit().skipped) == (8, False)
    assert ids(given) == [0, 1, 4, 5, 6, 7, 8, 9]
    assert [len(found) for found in acked(cluster, source).values()] == [1, 1]
    assert left(cluster, source) == [10, 11]


def test_a_transaction_without_a_commit_acknowledges_nothing(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    send(cluster, source, 1, 2)

    def block() -> None:
        with cluster.transaction() as txn:
            write(txn, txn.read(spark, source, subscription="s"), target)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    with cluster.transaction() as txn:
        given = txn.read(spark, source, subscription="s")
        assert ids(given) == [1, 2]
        write(txn, given, target)
    assert (ids(read(spark, cluster, target)), left(cluster, source)) == ([1, 2], [])


def test_a_version_that_is_committed_reads_and_writes_nothing_again(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    send(cluster, source, 1, 2)
    found = []
    for version in (1, 1, 2):
        with cluster.transaction(app=f"etl-{source}", version=version) as txn:
            given = txn.read(spark, source, subscription="s")
            found.append(ids(given))
            write(txn, given, target)
        found.append(ids(read(spark, cluster, target)))
        if version == 1 and not txn.commit().skipped:
            send(cluster, source, 3)
    assert found == [[1, 2], [1, 2], [3], [1, 2], [3], [1, 2, 3]]
    assert left(cluster, source) == []


def test_the_subscription_belongs_to_one_transaction(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar: str
) -> None:
    source, target = topics
    send(cluster, source, 1)
    with open_pulsar(pulsar, None) as second, cluster.transaction() as txn:
        write(txn, txn.read(spark, source, subscription="s"), target)
        other = second.transaction()
        with pytest.raises(SubscriptionBusy, match=f"'s' of {source}"):
            other.read(spark, source, subscription="s")
        with pytest.raises(SubscriptionBusy):
            cluster.consumer(source, "s")
        with pytest.raises(AckConflict, match="Read a subscription once") as raised:
            txn.read(spark, source, subscription="s")
        assert source.rpartition("/")[2] in raised.value.message
        other.abort()
    assert (ids(read(spark, cluster, target)), left(cluster, source)) == ([1], [])


def test_a_transaction_that_lost_the_subscription_commits_nothing(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar: str
) -> None:
    """Its connection is lost, as if its machine was suspended. The second program aborts it, and gets its rows."""
    source, target = topics
    send(cluster, source, 1, 2)
    zombie = cluster.transaction(app=f"etl-{source}", version=1)
    write(zombie, zombie.read(spark, source, subscription="s"), target)
    zombie._owned[0]._acks._log.drop()
    with open_pulsar(pulsar, None) as second, second.transaction() as txn:
        write(txn, txn.read(spark, source, subscription="s"), target)
        with pytest.raises((TakenOver, SubscriptionBusy, TxnConflict, TransactionEnded)):
            zombie.commit()
    assert (ids(read(spark, cluster, target)), left(cluster, source)) == ([1, 2], [])


def test_a_read_of_two_topics_is_one_transaction(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar_broker: PulsarBroker
) -> None:
    source, target = topics
    more = topic_with(pulsar_broker, cluster, COLUMNS, 1)
    cluster.subscriptions.create(more, "s")
    send(cluster, source, 1, 2)
    with cluster.consumer(source, "s") as consumer:
        consumer.ack(next(one for one in consumer.messages(timeout=0) if one.value["id"] == 1))
    send(cluster, more, 3)
    with cluster.transaction() as txn:
        given = txn.read(spark, [source, more], subscription="s", columns="id", includeMetadata="true")
        assert sorted((row["id"], row["__topic"]) for row in given.collect()) == [(2, source), (3, more)]
        write(txn, given.selectExpr("id", "'k' AS who"), target)
    assert (left(cluster, source), left(cluster, more)) == ([], [])


def test_a_read_has_a_transaction_as_a_whole_or_not_at_all(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar: str
) -> None:
    """A writer commits transactions of ten rows in both segments, while reads of the subscription follow one another."""
    source, _ = topics
    with cluster.transaction() as first:  # makes the log that tells where the rows of transactions are
        write(first, spark.createDataFrame([(one, f"k{one}") for one in range(10)], "id bigint, who string"), source)
    over, sizes = threading.Event(), list[int]()

    def program() -> None:
        with open_pulsar(pulsar, None) as writer:
            for number in range(1, 12):
                send(writer, source, *range(10 * number, 10 * number + 10))
        over.set()

    beside = threading.Thread(target=program)
    beside.start()
    last = False
    while not last:
        last = over.is_set()
        with cluster.transaction() as txn:
            sizes.append(txn.read(spark, source, subscription="s").count())
    beside.join()
    assert sum(sizes) == 120
    assert {size % 10 for size in sizes} == {0}


def test_an_end_bounds_what_is_read_and_acknowledged(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar_broker: PulsarBroker
) -> None:
    source = topic_with(pulsar_broker, cluster, COLUMNS, 1)
    cluster.subscriptions.create(source, "s")
    send(cluster, source, 1)
    send(cluster, source, 2)
    last = max(row["__publishTime"] for row in read(spark, cluster, source, includeMetadata="true").collect())
    first = next(row for row in read(spark, cluster, source, includeMetadata="true").collect() if row["id"] == 1)
    place = first["__messageId"].rpartition(":")[0]
    for end, expected in (
        ({"endingOffsets": {"segments": {first["__segment"]: place}}}, [1]),
        ({"endingTimestamp": int(last.timestamp() * 1000)}, [2]),
    ):
        with cluster.transaction() as txn:
            assert ids(txn.read(spark, source, subscription="s", **end)) == expected
    assert left(cluster, source) == []
    send(cluster, source, 3)
    with cluster.transaction() as txn, pytest.raises(OffsetOutOfRange, match="is not decided"):
        txn.read(spark, source, subscription="s", endingOffsets={"segments": {first["__segment"]: "999999:0"}})


@pytest.mark.parametrize("logged", [False, True], ids=["without a writers' log", "with a writers' log"])
def test_a_split_and_a_merge_between_the_read_and_the_commit(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar_broker: PulsarBroker, logged: bool
) -> None:
    """The rows of the children come with the next read, and all rows come once. The log names transactions with rows in a segment
    that is read to its end and in one that is not.
    """
    source, target = topics
    if logged:
        pulsar_broker.create(log_name(source), 1)
    names = iter(range(0, 1000, 10))
    seen: list[int] = []
    for change in (lambda: pulsar_broker.split(source, 0), lambda: pulsar_broker.merge(source, 2, 3), lambda: None):
        start = next(names)
        send(cluster, source, *range(start, start + 5))
        with cluster.transaction() as txn:
            given = txn.read(spark, source, subscription="s")
            change()
            send(cluster, source, *range(start + 5, start + 10))
            seen += ids(given)
            write(txn, given, target)
    with cluster.transaction() as txn:
        given = txn.read(spark, source, subscription="s")
        seen += ids(given)
        write(txn, given, target)
    assert sorted(seen) == ids(read(spark, cluster, target)) == [*range(30)]
    assert left(cluster, source) == []
    sealed = [one.name for one in cluster.client.layout(source).segments.values() if not one.active]
    state = acked(cluster, source)
    assert [beginning(state.get(name, NONE)) for name in sealed] == [WHOLE] * 3


def test_the_cursors_of_the_broker_follow_and_checkpoints_shorten_the_log(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor stays one entry before the last one that was read. The second entry of each segment is of the second transaction."""
    monkeypatch.setattr(ack_log_module, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(transaction_acks, "CHECKPOINT_EVERY", 5)
    source, _ = topics
    records = []
    for number in range(6):
        send(cluster, source, *range(10 * number, 10 * number + 10))
        with cluster.transaction() as txn:
            assert ids(txn.read(spark, source, subscription="s")) == [*range(10 * number, 10 * number + 10)]
        log = ack_log(cluster.url, source, "s", Clock())
        records.append(log.state().records)
        log.close()
        told = cluster.subscriptions.positions(source, "s") or {}
        places = {one["__segment"]: one["__messageId"] for one in read(spark, cluster, source, includeMetadata="true").collect()}
        last = {name: Position.parse(place.rpartition(":")[0]) for name, place in places.items()}
        if number:
            assert told == {name: Position(place.ledger, place.entry - 1) for name, place in last.items()}
    assert max(records) < 10
    assert left(cluster, source) == []


@pytest.mark.slow
def test_a_sealed_segment_that_was_read_is_deleted_by_the_broker(
    spark: SparkSession, cluster: PulsarCluster, pulsar_broker: PulsarBroker
) -> None:
    """The first commit acknowledges the rows of the parent. The next one, with the first rows of its children, lets it go."""
    namespace = f"public/short-{uuid.uuid4().hex[:8]}"
    pulsar_broker.rest("PUT", f"namespaces/{namespace}", {})
    pulsar_broker.rest("POST", f"namespaces/{namespace}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    source = topic_with(pulsar_broker, cluster, COLUMNS, 1, namespace)
    cluster.subscriptions.create(source, "s")
    send(cluster, source, *range(5))
    seen = []
    for number in range(3):
        with cluster.transaction() as txn:
            seen += ids(txn.read(spark, source, subscription="s"))
        if number == 0:
            pulsar_broker.split(source, 0)
            send(cluster, source, *range(5, 10))
    deadline = time.monotonic() + 150
    while 0 in cluster.client.layout(source).segments:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    register(cluster, source, COLUMNS)  # it went with it
    send(cluster, source, 10)
    with cluster.transaction() as txn:
        seen += ids(txn.read(spark, source, subscription="s"))
    assert sorted(seen) == [*range(11)]


def test_a_read_without_rows_is_empty(spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str]) -> None:
    source, target = topics
    for _ in range(2):
        with cluster.transaction() as txn:
            given = txn.read(spark, source, subscription="s")
            assert (ids(given), given.columns) == ([], ["id", "who"])
            write(txn, given, target)
    send(cluster, source, 1)
    assert left(cluster, source) == [1]


def test_a_broker_that_is_killed_between_the_read_and_the_commit_loses_nothing(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar_broker: PulsarBroker
) -> None:
    source, target = topics
    send(cluster, source, *range(5))
    with cluster.transaction() as txn:
        given = txn.read(spark, source, subscription="s")
        pulsar_broker.kill()
        pulsar_broker.start()
        write(txn, given, target)
    assert ids(read(spark, cluster, target)) == [*range(5)]
    assert left(cluster, source) == []


def test_what_a_read_cannot_do_is_refused(spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str]) -> None:
    source, target = topics
    send(cluster, source, 1)
    with cluster.transaction() as txn:
        with pytest.raises(SubscriptionNotFound, match=r"cluster\.subscriptions\.create"):
            txn.read(spark, source, subscription="none")
        for name, value in (("startingOffsets", "earliest"), ("Acknowledged", "{}")):
            with pytest.raises(OptionError, match=r"txn\.read does not take the option"):
                txn.read(spark, source, subscription="s", **{name: value})
        with pytest.raises(OptionError, match="cannot have the name"):
            txn.read(spark, source, subscription="auto")
        with pytest.raises(PySparkException, match="no_such_column"):
            txn.read(spark, source, subscription="s", columns="no_such_column")
        with pytest.raises(SubscriptionNotFound):
            txn.read(spark, [source, target], subscription="s")
    with pytest.raises(OptionError, match="has ended"):
        txn.read(spark, source, subscription="s")
    assert left(cluster, source) == [1], "a read that raised acknowledges nothing"
    with pytest.raises(PySparkException, match=r"Only txn\.read sets it"):
        read(spark, cluster, source, acknowledged="{}")


def old_topic(cluster: PulsarCluster, broker: PulsarBroker) -> str:
    """Return a `persistent://` topic of two partitions, with the rows `0` and `1` in them."""
    name = f"persistent://public/default/old-{uuid.uuid4().hex[:8]}"
    broker.rest("PUT", f"{name.replace('://', '/')}/partitions", 2)
    for number in range(2):
        with Producer(cluster.client, f"{name}-partition-{number}") as producer:
            producer.send([Message(str(number).encode())])
    return name


def test_a_topic_of_the_older_model_is_read_and_acknowledged(
    spark: SparkSession, cluster: PulsarCluster, pulsar_broker: PulsarBroker
) -> None:
    source = old_topic(cluster, pulsar_broker)
    cluster.subscriptions.create(source, "s")
    cluster.subscriptions.create(source, "t")
    with cluster.transaction() as txn:
        assert sorted(bytes(row["value"]) for row in txn.read(spark, source, subscription="s").collect()) == [b"0", b"1"]
        one = read(spark, cluster, source, includeMetadata="true").where("value = cast('1' AS binary)")
        txn.acknowledge_rows(one, subscription="t")
    for subscription, expected in (("s", []), ("t", [b"0"])):
        with cluster.consumer(source, subscription) as consumer:
            assert [message.value["value"] for message in consumer.messages(timeout=0)] == expected


# --- acknowledge_rows -------------------------------------------------------------------------------------------------------


def test_a_micro_batch_is_acknowledged_with_its_output(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Each version is run twice, as after a crash before Spark's record of the batch. The second run commits nothing."""
    source, target = topics
    runs: list[tuple[int, bool]] = []

    def moved(batch: DataFrame, version: int) -> None:
        for _ in range(2):
            with cluster.transaction(app=f"moved-{source}", version=version) as txn:
                txn.acknowledge_rows(batch, subscription="s")
                write(txn, batch, target)
            runs.append((version, txn.commit().skipped))

    for number in range(2):
        send(cluster, source, *range(10 * number, 10 * number + 10))
        send(cluster, source, 90, commit=False)
        rows = spark.readStream.format("txnsegment").options(serviceUrl=cluster.url, includeMetadata="true")
        stream = rows.option("startingOffsets", "earliest").load(source).writeStream.foreachBatch(moved)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
    assert runs == [(version, again) for version in range(2) for again in (False, True)]
    assert ids(read(spark, cluster, target)) == [*range(20)]
    assert [len(found) for found in acked(cluster, source).values()] == [1, 1], "the acknowledgements join over aborted rows"
    assert left(cluster, source) == []


def test_some_rows_are_acknowledged_in_any_order(spark: SparkSession, cluster: PulsarCluster, pulsar_broker: PulsarBroker) -> None:
    source = topic_with(pulsar_broker, cluster, COLUMNS, 1)
    cluster.subscriptions.create(source, "s")
    for start in range(0, 12, 4):
        send(cluster, source, *range(start, start + 4))
        send(cluster, source, 99, commit=False)
    all_rows = read(spark, cluster, source, includeMetadata="true")
    places = {row["id"]: tuple(map(int, row["__messageId"].split(":"))) for row in all_rows.collect()}
    expected = set(range(12))
    for part in ("id IN (5, 6, 8)", "id % 2 = 1 AND id NOT IN (5)", "id IN (0, 2, 4)", "id = 10"):
        with cluster.transaction() as txn:
            txn.acknowledge_rows(all_rows.where(part), subscription="s")
        expected -= set(ids(all_rows.where(part)))
        (found,) = acked(cluster, source).values()
        kept = [False, *(one in expected for one in sorted(places, key=places.__getitem__))]  # before the first row is a range, too
        runs = sum(not here and (number == 0 or kept[number - 1]) for number, here in enumerate(kept))
        assert (left(cluster, source), len(found)) == (sorted(expected), runs), part


def test_rows_that_are_acknowledged_already_are_a_conflict_at_the_commit(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    send(cluster, source, 1, 2, 3)
    rows = read(spark, cluster, source, includeMetadata="true").persist()
    with cluster.transaction() as txn:
        txn.acknowledge_rows(rows.where("id = 1"), subscription="s")
        txn.acknowledge_rows(rows.where("id = 2"), subscription="s")
        with pytest.raises(AckConflict, match="already"):
            txn.acknowledge_rows(rows.where("id = 2"), subscription="s")
    for app in (None, f"etl-{source}"):
        txn = cluster.transaction(app=app, version=app and 1)
        write(txn, rows, target)
        txn.acknowledge_rows(rows, subscription="s")
        with pytest.raises(AckConflict, match="are acknowledged already"):
            txn.commit()
    assert (ids(read(spark, cluster, target)), left(cluster, source)) == ([], [3])
    with cluster.transaction() as txn:
        with pytest.raises(SchemaError, match="includeMetadata=true"):
            txn.acknowledge_rows(read(spark, cluster, source), subscription="s")
        txn.acknowledge_rows(rows.where("id = 7"), subscription="s")
        assert ids(txn.read(spark, source, subscription="s")) == [3]
    assert left(cluster, source) == []


def test_other_rows_under_a_committed_version_are_a_conflict(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str]
) -> None:
    """A micro-batch of a checkpoint that is an old copy has the version of a committed one, and rows that came since."""
    source, target = topics

    def run(given: str) -> PulsarSparkTransaction:
        txn = cluster.transaction(app=f"etl-{source}", version=1)
        rows = read(spark, cluster, source, includeMetadata="true").where(given)
        txn.acknowledge_rows(rows, subscription="s")
        write(txn, rows, target)
        return txn

    send(cluster, source, 1, 2)
    rows_with(spark, cluster, source, 1, 2)
    assert [run("id < 3").commit().skipped for _ in range(2)] == [False, True]
    send(cluster, source, 3, 4)
    rows_with(spark, cluster, source, 1, 2, 3, 4)
    for given in ("id < 5", "id > 2"):
        with pytest.raises(VersionConflict, match="and 2 rows that this transaction acknowledges were not acknowledged"):
            run(given).commit()
    assert (ids(read(spark, cluster, target)), left(cluster, source)) == ([1, 2], [3, 4])


def test_two_acknowledgements_of_one_transaction_leave_no_gap_between_them(
    spark: SparkSession, cluster: PulsarCluster, pulsar_broker: PulsarBroker
) -> None:
    """An entry of an aborted transaction is between their rows."""
    source = topic_with(pulsar_broker, cluster, COLUMNS, 1)
    cluster.subscriptions.create(source, "s")
    send(cluster, source, 1, 2)
    send(cluster, source, 90, commit=False)
    send(cluster, source, 3, 4)
    rows = rows_with(spark, cluster, source, 1, 2, 3, 4).persist()
    with cluster.transaction() as txn:
        txn.acknowledge_rows(rows.where("id IN (3, 4)"), subscription="s")
        txn.acknowledge_rows(rows.where("id = 1"), subscription="s")
        txn.acknowledge_rows(rows.where("id = 2"), subscription="s")
        for given in ("id = 2", "id IN (2, 3)"):
            with pytest.raises(AckConflict, match="The transaction acknowledges rows of segment"):
                txn.acknowledge_rows(rows.where(given), subscription="s")
    (found,) = acked(cluster, source).values()
    assert (len(found), left(cluster, source)) == (1, [])


def test_a_sealed_segment_whose_rows_are_acknowledged_is_let_go_with_a_row_of_its_children(
    spark: SparkSession, cluster: PulsarCluster, pulsar_broker: PulsarBroker
) -> None:
    """By acknowledge_rows alone. The cursor then passes the last entry, which is of an aborted transaction, so that the broker may
    delete the segment. Before, a stream may read its last micro-batch again.
    """
    source = topic_with(pulsar_broker, cluster, COLUMNS, 1)
    cluster.subscriptions.create(source, "s")
    send(cluster, source, 1, 2)
    send(cluster, source, 90, commit=False)
    (parent,) = (one.name for one in cluster.client.layout(source).active)

    def acknowledge(*given: int) -> tuple[bool, bool]:
        rows = rows_with(spark, cluster, source, *given)
        with cluster.transaction() as txn:
            txn.acknowledge_rows(rows.where(rows["id"].isin(*given)), subscription="s")
        place = (cluster.subscriptions.positions(source, "s") or {})[parent]
        return beginning(acked(cluster, source)[parent]) == WHOLE, place == Segment(cluster.client, parent).last()

    assert acknowledge(1) == (False, False)
    pulsar_broker.split(source, 0)
    send(cluster, source, *range(10, 20))
    assert acknowledge(11) == (False, False)
    assert acknowledge(2, 12) == (False, False)
    assert acknowledge(13) == (True, True)
    assert left(cluster, source) == [10, *range(14, 20)]


def test_all_ancestors_whose_rows_are_acknowledged_are_let_go_with_a_row_of_their_descendants(
    spark: SparkSession, cluster: PulsarCluster, pulsar_broker: PulsarBroker
) -> None:
    """One of the ancestors has no entry."""
    source = topic_with(pulsar_broker, cluster, COLUMNS, 2)
    cluster.subscriptions.create(source, "s")

    def acknowledge(*given: int) -> None:
        rows = rows_with(spark, cluster, source, *given)
        with cluster.transaction() as txn:
            txn.acknowledge_rows(rows.where(rows["id"].isin(*given)), subscription="s")

    send(cluster, source, *range(10))
    acknowledge(*range(10))
    assert all(beginning(found) < WHOLE for found in acked(cluster, source).values())
    pulsar_broker.merge(source, 0, 1)
    pulsar_broker.split(source, 2)
    send(cluster, source, 10, 11)
    acknowledge(10)
    sealed = [one.name for one in cluster.client.layout(source).segments.values() if not one.active]
    assert [beginning(acked(cluster, source).get(one, NONE)) for one in sealed] == [WHOLE] * 3
    assert left(cluster, source) == [11]


@pytest.mark.slow
def test_a_stream_can_repeat_its_last_batch_after_the_broker_has_deleted_a_segment_that_was_acknowledged(
    spark: SparkSession, cluster: PulsarCluster, pulsar_broker: PulsarBroker, tmp_path: Path
) -> None:
    """The second batch has the first rows of the children. It is repeated, as after a crash before Spark's record of the batch."""
    namespace = f"public/short-{uuid.uuid4().hex[:8]}"
    pulsar_broker.rest("PUT", f"namespaces/{namespace}", {})
    pulsar_broker.rest("POST", f"namespaces/{namespace}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    source = topic_with(pulsar_broker, cluster, COLUMNS, 1, namespace)
    cluster.subscriptions.create(source, "s")
    runs: list[tuple[int, list[int], bool]] = []

    def moved(batch: DataFrame, version: int) -> None:
        with cluster.transaction(app=f"moved-{source}", version=version, namespace=namespace) as txn:
            txn.acknowledge_rows(batch, subscription="s")
        runs.append((version, ids(batch), txn.commit().skipped))

    def run(*expected: int) -> None:
        rows_with(spark, cluster, source, *expected)
        rows = spark.readStream.format("txnsegment").options(serviceUrl=cluster.url, includeMetadata="true")
        stream = rows.option("startingOffsets", "earliest").load(source).writeStream.foreachBatch(moved)
        query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    send(cluster, source, *range(5))
    run(*range(5))
    pulsar_broker.split(source, 0)
    send(cluster, source, *range(5, 10))
    run(*range(5, 10))
    deadline = time.monotonic() + 200
    while 0 in cluster.client.layout(source).segments:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    for name in ("1", ".1.crc"):
        (tmp_path / "commits" / name).unlink()
    register(cluster, source, COLUMNS)  # it went with the segment
    run()
    send(cluster, source, 10)
    run(10)
    assert runs == [(0, [*range(5)], False), (1, [*range(5, 10)], False), (1, [*range(5, 10)], True), (2, [10], False)]
    assert left(cluster, source) == []


# --- the option subscription of a stream ------------------------------------------------------------------------------------


def test_a_stream_cannot_move_the_cursors_of_a_subscription_that_is_acknowledged(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, _ = topics
    send(cluster, source, 1, 2)
    with cluster.transaction() as txn:
        txn.read(spark, source, subscription="s")
    send(cluster, source, 3)

    def run(subscription: str) -> list[int]:
        found: list[int] = []
        rows: Any = spark.readStream.format("txnsegment").options(serviceUrl=cluster.url, subscription=subscription)
        stream = rows.option("startingOffsets", "earliest").load(source).writeStream
        query = stream.foreachBatch(lambda batch, _: found.extend(ids(batch))).option(
            "checkpointLocation", str(tmp_path / subscription)
        )
        assert query.trigger(availableNow=True).start().awaitTermination(300)
        return found

    with pytest.raises(StreamingQueryException, match="cannot be 's' for"):
        run("s")
    assert run("another") == [1, 2, 3]
    assert left(cluster, source) == [3]


@pytest.mark.parametrize("kind", ["topic", "persistent"])
def test_a_subscription_that_a_stream_uses_is_refused_to_consumers_and_transactions(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], tmp_path: Path, pulsar_broker: PulsarBroker, kind: str
) -> None:
    source = topics[0] if kind == "topic" else old_topic(cluster, pulsar_broker)
    if kind == "topic":
        send(cluster, source, 1)
    rows: Any = spark.readStream.format("txnsegment").options(serviceUrl=cluster.url, subscription="of-a-stream")
    stream = rows.option("startingOffsets", "earliest").load(source).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        with cluster.transaction() as txn, pytest.raises(SubscriptionBusy, match="as the broker counts them"):
            txn.read(spark, source, subscription="of-a-stream")
        with pytest.raises(SubscriptionBusy, match="as the broker counts them"):
            cluster.consumer(source, "of-a-stream")
    finally:
        query.stop()
    assert not has_ack_log(cluster.client, source, "of-a-stream"), "the log would stop the stream at its next start"
    again = stream.start()
    try:
        again.processAllAvailable()
    finally:
        again.stop()


def suppressed(txn: PulsarSparkTransaction, topic: str) -> None:
    with contextlib.suppress(SchemaError):
        txn.append(topic, pa.table({"unknown": [1]}))


def test_a_block_whose_transaction_was_aborted_by_a_failed_call_raises(cluster: PulsarCluster, topics: tuple[str, str]) -> None:
    with pytest.raises(TxnConflict, match="aborted within its block"), cluster.transaction() as txn:  # noqa: PT012
        failing = threading.Thread(target=suppressed, args=(txn, topics[1]))
        failing.start()
        failing.join()
