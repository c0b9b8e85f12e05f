"""`cluster.transaction()` on a real broker: several Spark writes to several topics are committed together or not at all."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from conformance.harness.spark_start import spark_environment
from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import OptionError, OutcomeUnknown, TxnConflict, VersionConflict
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import ConnectionLost, TransactionEnded
from pulsar_protocol.layout import Position
from pulsar_protocol.sent_log import Sent, decode, log_name
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.control_topic import ControlTopic
from spark_txn_sink.pulsar.journal import Note, Unfinished, finished, opened_of, token
from spark_txn_sink.pulsar.options import PulsarWriteOptions
from spark_txn_sink.pulsar.writer import BatchWriter
from tests.support.pulsar_reads import messages_of, visible
from txnsegment.pulsar import ending
from txnsegment.pulsar.cluster import PulsarCluster
from txnsegment.pulsar.spark_transaction import PulsarSparkTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pulsar_only = pytest.mark.pulsar
COLUMNS = T.StructType([T.StructField("id", T.LongType())])


@pytest.fixture
def names() -> tuple[str, str]:
    unique = uuid.uuid4().hex[:8]
    return f"topic://public/default/one-{unique}", f"topic://public/default/two-{unique}"


def write(txn: PulsarSparkTransaction, rows: DataFrame, topic: str, **options: object) -> None:
    rows.write.format("txnsegment").mode("append").options(**txn.options).options(**options).save(topic)


def ids(spark: SparkSession, cluster: PulsarCluster, topic: str) -> list[int]:
    found = spark.read.format("txnsegment").option("serviceUrl", cluster.url).load(topic).collect()
    return sorted(row["id"] for row in found)


def planned(txn: PulsarSparkTransaction, topic: str) -> BatchWriter:
    """Return the writer of a write without Spark, as Spark's tasks and its committing process get it."""
    writer = BatchWriter({**txn.options, "topic": topic, "segments": "2"}, COLUMNS, overwrite=False)
    found: BatchWriter = pickle.loads(pickle.dumps(writer))
    return found


def sent(writer: BatchWriter, *numbers: int) -> Any:
    return writer.write(iter([pa.RecordBatch.from_pylist([{"id": one} for one in numbers])]))


def quick_write(txn: PulsarSparkTransaction, topic: str, *numbers: int) -> None:
    """Write rows as Spark does, without Spark."""
    writer = planned(txn, topic)
    writer.commit([sent(writer, *numbers)])


def committed(txn: PulsarSparkTransaction) -> bool:
    """Ask the coordinator whether a transaction is committed. An open one is aborted."""
    assert txn._id is not None
    try:
        txn._client.end(txn._id, commit=False)
    except TransactionEnded:
        return True
    return False


def records(cluster: PulsarCluster, topic: str) -> list[Sent]:
    """Return the records of where the rows of transactions are, in the log of a topic."""
    (log,) = cluster.client.layout(log_name(topic)).active
    found = [decode(message.value or b"") for message in messages_of(cluster.client, log.name)]
    return [one for one in found if isinstance(one, Sent)]


# --- with Spark -------------------------------------------------------------------------------------------------------------


@pulsar_only
def test_two_topics_are_committed_together(spark: SparkSession, cluster: PulsarCluster, names: tuple[str, str]) -> None:
    one, two = names
    with cluster.transaction(app=f"etl-{one}", version=1) as txn:
        write(txn, spark.range(0, 50), one, segments=4, keyColumn="id")
        write(txn, spark.range(50, 60), two)
        write(txn, spark.range(60, 70), two)
        txn.append(two, pa.table({"id": [70]}))
        assert ids(spark, cluster, one) == ids(spark, cluster, two) == []
    assert (ids(spark, cluster, one), ids(spark, cluster, two)) == ([*range(50)], [*range(50, 71)])
    done = txn.commit()
    assert (done.txn_id, done.rows, done.skipped) == (txn.id, 71, False)
    for topic in names:  # before the commit each topic's log got one record of all rows of the topic
        (record,) = records(cluster, topic)
        assert record.txn.text == txn.id
        for segment, (first, last) in record.segments.items():
            places = [place for place, _ in visible(cluster.client, segment)]
            assert (places[0], places[-1]) == (first, last)


@pulsar_only
def test_a_version_that_is_committed_is_skipped_and_a_lower_one_refused(
    spark: SparkSession, cluster: PulsarCluster, names: tuple[str, str]
) -> None:
    app = f"etl-{names[0]}"
    for version, skipped in ((3, False), (3, True), (4, False)):
        with cluster.transaction(app=app, version=version) as txn:
            for topic in names:
                write(txn, spark.range(version, version + 1), topic)
        assert txn.commit().skipped is skipped
    with (
        pytest.raises(VersionConflict, match="is below the committed version 4"),
        cluster.transaction(app=app, version=3) as txn,
    ):
        write(txn, spark.range(100), names[0])
    assert [ids(spark, cluster, topic) for topic in names] == [[3, 4], [3, 4]]


@pulsar_only
def test_an_exception_in_the_block_leaves_nothing_visible(
    spark: SparkSession, cluster: PulsarCluster, names: tuple[str, str]
) -> None:
    txn = cluster.transaction()

    def block() -> None:
        with txn:
            for topic in names:
                write(txn, spark.range(10), topic)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    for use in (lambda: txn.options, txn.commit, txn.__enter__):
        with pytest.raises(OptionError, match="has ended"):
            use()
    with cluster.transaction() as after:
        for topic in names:
            write(after, spark.range(1), topic)
    assert [ids(spark, cluster, topic) for topic in names] == [[0], [0]]


@pulsar_only
def test_a_write_that_failed_ends_the_transaction(spark: SparkSession, cluster: PulsarCluster, names: tuple[str, str]) -> None:
    """Pulsar cannot take back the rows that its tasks have sent, also if the program catches the error and goes on."""
    broken = spark.range(0, 100, 1, 2).selectExpr("if(id = 99, raise_error('broken'), id) AS id")

    def block() -> None:
        with cluster.transaction() as txn:
            write(txn, spark.range(10), names[0])
            with pytest.raises((Py4JJavaError, PySparkException), match="broken"):
                write(txn, broken, names[1], entryRows=10)

    with pytest.raises((TxnConflict, TransactionEnded)):
        block()
    assert ids(spark, cluster, names[0]) == []


@pulsar_only
def test_a_write_that_is_refused_before_it_begins_can_be_repeated(
    spark: SparkSession, cluster: PulsarCluster, names: tuple[str, str]
) -> None:
    with cluster.transaction() as txn:
        write(txn, spark.range(3), names[0])
        with pytest.raises((Py4JJavaError, PySparkException), match="The rows have the columns other"):
            write(txn, spark.range(3).withColumnRenamed("id", "other"), names[0])
        write(txn, spark.range(3, 6), names[0])
    assert ids(spark, cluster, names[0]) == [*range(6)]


@pulsar_only
@pytest.mark.parametrize("place", ["writes", "end", "ended"])
def test_a_driver_that_is_killed_leaves_all_or_nothing_and_runs_again(
    spark: SparkSession, cluster: PulsarCluster, names: tuple[str, str], pulsar_broker: PulsarBroker, place: str
) -> None:
    version = {"writes": 1, "end": 2, "ended": 3}[place]

    def run(at: str) -> subprocess.CompletedProcess[str]:
        words = [pulsar_broker.url, pulsar_broker.admin_url, str(version), at, *names]
        environment = {**os.environ, **spark_environment(), "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-m", "tests.support.pulsar_transaction", *words]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=300, check=False)

    assert run(place).returncode == -signal.SIGKILL
    before = [[*range(10)], [*range(10, 20)]] if place == "ended" else [[], []]
    if place == "ended":
        assert [ids(spark, cluster, topic) for topic in names] == before
    again = run("never")
    assert (again.returncode, again.stdout) == (0, "skipped\n" if place == "ended" else "committed\n")
    assert [ids(spark, cluster, topic) for topic in names] == [[*range(10)], [*range(10, 20)]]


@pulsar_only
def test_a_reader_beside_sees_all_or_nothing_of_each_topic(
    spark: SparkSession, cluster: PulsarCluster, names: tuple[str, str], pulsar_broker: PulsarBroker
) -> None:
    """A reader reads both topics over and over, while transactions write four segments of each with Spark and without."""
    for topic in names:
        pulsar_broker.create(topic, 4)
    with cluster.transaction() as txn:
        for topic in names:
            write(txn, spark.range(0, 40, 1, 2), topic)
    over, seen, failures = threading.Event(), set[int](), list[BaseException]()

    def read() -> None:
        from spark_txn_source.pulsar.batch import BatchReader

        try:
            while not over.is_set():
                for topic in names:
                    reader = BatchReader({"serviceUrl": cluster.url, "topic": topic}, COLUMNS)
                    seen.add(sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) % 40)
        except BaseException as error:
            failures.append(error)

    beside = threading.Thread(target=read)
    beside.start()
    try:
        for _ in range(3):
            with cluster.transaction() as txn:
                for topic in names:
                    write(txn, spark.range(0, 40, 1, 2), topic)
            with cluster.transaction() as txn:
                for topic in names:
                    quick_write(txn, topic, *range(20))
                    quick_write(txn, topic, *range(20))
    finally:
        over.set()
        beside.join()
    assert not failures
    assert seen == {0}
    assert [len(ids(spark, cluster, topic)) for topic in names] == [280, 280]


# --- without Spark ----------------------------------------------------------------------------------------------------------


@pulsar_only
def test_a_block_that_ends_before_its_writes_commits_nothing(cluster: PulsarCluster, names: tuple[str, str]) -> None:
    txn = cluster.transaction()
    running: list[BatchWriter] = []

    def block() -> None:
        with txn:
            quick_write(txn, names[1], 1)
            running.append(planned(txn, names[0]))
            sent(running[0], 1, 2)

    with pytest.raises(TxnConflict, match=f"a write to {names[0]} failed, or still runs"):
        block()
    assert not committed(txn)


@pulsar_only
def test_a_write_that_begins_after_the_end_of_the_block_is_refused(cluster: PulsarCluster, names: tuple[str, str]) -> None:
    with cluster.transaction() as txn:
        quick_write(txn, names[0], 1)
        options = txn.options
    late = BatchWriter({**options, "topic": names[0]}, COLUMNS, overwrite=False)
    with pytest.raises(pickle.PickleError, match="takes no write to"):
        pickle.dumps(late)


@pulsar_only
def test_two_writes_to_one_topic_at_the_same_time_are_two_writes(cluster: PulsarCluster, names: tuple[str, str]) -> None:
    """Both have a task of partition 0, and each has one first attempt."""
    with cluster.transaction() as txn:
        first, second = planned(txn, names[0]), planned(txn, names[0])
        reports = [sent(second, 1), sent(first, 2)]
        first.commit([reports[1]])
        second.commit([reports[0]])
    assert txn.commit().rows == 2


@pulsar_only
def test_the_next_run_of_an_application_aborts_what_a_dead_driver_has_left(cluster: PulsarCluster, names: tuple[str, str]) -> None:
    """The left transaction would hide the rows of the next one until its timeout."""
    app = f"etl-{names[0]}"
    dead = cluster.transaction(app=app, version=1)
    quick_write(dead, names[0], 1)
    with cluster.transaction(app=app, version=1) as txn:
        quick_write(txn, names[0], 2)
    with pytest.raises(TransactionEnded):
        quick_write(dead, names[0], 3)
    with pytest.raises((TxnConflict, TransactionEnded)):
        dead.commit()
    assert not txn.commit().skipped


@pulsar_only
def test_a_transaction_without_rows_commits_its_version(cluster: PulsarCluster, names: tuple[str, str]) -> None:
    app = f"etl-{names[0]}"
    for skipped in (False, True):
        with cluster.transaction(app=app, version=1) as txn:
            pass
        assert txn.commit().skipped is skipped
    with cluster.transaction() as nothing:
        pass
    assert (nothing.id, nothing.commit().rows) == (None, 0)


@pulsar_only
def test_a_transaction_of_a_plain_program_has_versions_too(cluster: PulsarCluster, names: tuple[str, str]) -> None:
    with cluster.transaction() as txn:
        for topic in names:
            quick_write(txn, topic, 1)
    rows = pa.table({"id": [2, 3]})
    for version, skipped in ((1, False), (1, True), (2, False)):
        with cluster.begin(app=f"till-{names[0]}", version=version) as plain:
            for topic in names:
                plain.append(topic, rows)
            assert plain.commit().skipped is skipped
    with cluster.begin(app=f"till-{names[0]}", version=1) as old, pytest.raises(VersionConflict):
        old.commit()
    for topic in names:
        assert [sum(row["id"] in (2, 3) for row in cluster.rows(topic, 100).rows)] == [4]


@pulsar_only
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_commit_of_a_version_whose_reply_is_lost_can_be_asked_for_again(
    cluster: PulsarCluster, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    class Losing(ControlTopic):
        def end(self, txn: TxnId, *, commit: bool) -> None:
            if lost == "reply" or not commit:
                super().end(txn, commit=commit)
            if commit:
                raise ConnectionLost(f"The {lost} was lost.")

    app = f"etl-{names[0]}"
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(ending, "ControlTopic", Losing)
    txn = cluster.transaction(app=app, version=1)
    quick_write(txn, names[0], 1)
    with pytest.raises(OutcomeUnknown, match="gave no answer to the commit") as raised:
        txn.commit()
    assert "the same app and version" in raised.value.advice
    monkeypatch.undo()
    assert (txn.commit().rows, txn.commit().txn_id) == (1, txn.id)
    assert [row["id"] for row in cluster.rows(names[0]).rows] == [1]


@pulsar_only
def test_blocks_and_options_that_do_not_fit_are_refused(cluster: PulsarCluster) -> None:
    with cluster.transaction(), pytest.raises(TxnConflict, match="do not nest"), cluster.transaction():
        pass
    with pytest.raises(OptionError, match="version is given without app"):
        cluster.transaction(version=1)
    with pytest.raises(OptionError, match="no namespace"):
        cluster.transaction(namespace="public")
    with pytest.raises(OptionError, match="is not between"):
        cluster.transaction(timeout=100_000)


# --- the journal ------------------------------------------------------------------------------------------------------------

OPENED = Opened(TxnId(1, 9), "segment://public/default/__txnsegment_attempts_x/0000-ffff-0", Position(3, 4))


def test_a_token_names_the_transaction_and_its_journal() -> None:
    assert opened_of(token(OPENED)) == OPENED
    given = {"serviceUrl": "pulsar://h:6650", "topic": "t", "txnStaging": token(OPENED)}
    assert PulsarWriteOptions.parse(given, streaming=False, environment={}).part_of == OPENED
    with pytest.raises(OptionError, match="no transaction of a Pulsar cluster"):
        PulsarWriteOptions.parse({**given, "txnStaging": "x"}, streaming=False, environment={})
    with pytest.raises(OptionError, match="txnTimeoutMs are both given"):
        PulsarWriteOptions.parse({**given, "txnTimeoutMs": "5000"}, streaming=False, environment={})
    with pytest.raises(OptionError, match="foreachBatch"):
        PulsarWriteOptions.parse(given, streaming=True, environment={})


def test_a_record_of_the_journal_is_the_same_after_json() -> None:
    places = {"segment://public/default/t/0000-ffff-0": (Position(1, 2), Position(1, 5))}
    for note in (
        Note("begun", "1_9", "w", "topic://public/default/t"),
        Note("ended", "1_9", "w", "topic://public/default/t", places, 7, 3, Position(2, 1)),
        Note("closing", "1_9"),
    ):
        assert Note.decoded(note.encoded()) == note


def begun(write: str) -> Note:
    return Note("begun", "1_9", write, f"t-{write}")


def ended(write: str) -> Note:
    return Note("ended", "1_9", write, f"t-{write}", rows=1)


def test_a_transaction_is_finished_if_each_write_before_the_closing_has_ended() -> None:
    closing = Note("closing", "1_9")
    assert finished([begun("a"), begun("b"), ended("b"), ended("a"), closing], OPENED.txn) == [ended("a"), ended("b")]
    assert finished([begun("a"), begun("a"), ended("a"), ended("a"), closing], OPENED.txn) == [ended("a")], "repeated records"
    assert finished([begun("a"), ended("a"), closing, begun("b")], OPENED.txn) == [ended("a")], "b is refused"
    assert finished([closing], OPENED.txn) == []
    for notes in ([begun("a"), closing], [begun("a"), closing, ended("a")], [begun("a"), begun("b"), ended("a"), closing]):
        with pytest.raises(Unfinished, match="failed, or still runs"):
            finished(notes, OPENED.txn)
