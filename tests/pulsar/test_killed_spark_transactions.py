"""A Spark program that reads, writes and acknowledges in a transaction, and is killed at any step: each row is moved once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from conformance.harness.spark_start import spark_environment
from conformance.pulsar_server import PulsarBroker
from tests.support.pulsar_clusters import topic_with
from tests.support.pulsar_spark_etl import FATES
from txnsegment.pulsar.ack_log import SubscriptionBusy
from txnsegment.pulsar.cluster import PulsarCluster, open_pulsar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

COLUMNS = pa.schema([("id", pa.int64()), ("who", pa.string())])
COUNT = 10
FEW = ("after acks Begin", "after control Begin", "after acks Done", "before end", "after end")
"""The steps that `make pulsar` takes. Each one leaves another state to the next program. `make pulsar-chaos` takes all of them."""
FATES_WITHOUT = ("after written", "after acks Done", "before end", "after end")


def long(name: str, unless: tuple[str, ...] = ()) -> Any:
    """Return a parameter of a test that `make pulsar` leaves out, `unless` its name is one of these."""
    return pytest.param(name, marks=() if name in unless else pytest.mark.chaos)


@pytest.fixture
def topics(cluster: PulsarCluster, pulsar_broker: PulsarBroker) -> tuple[str, str]:
    """A source with rows and the subscription `s`, and a target."""
    source, target = (topic_with(pulsar_broker, cluster, COLUMNS) for _ in range(2))
    cluster.subscriptions.create(source, "s")
    send(cluster, source, 0)
    return source, target


def send(cluster: PulsarCluster, topic: str, start: int) -> None:
    with cluster.begin() as txn:
        ids = range(start, start + COUNT)
        txn.append(topic, pa.table({"id": ids, "who": [f"k{one % 5}" for one in ids]}, COLUMNS), key="who")
        txn.commit()


def killed(broker: PulsarBroker, topics: tuple[str, str], call: str, app: str, fate: str) -> int:
    environment = {**os.environ, **spark_environment(), "PYSPARK_PYTHON": sys.executable, "FATE": fate}
    command = [sys.executable, "-m", "tests.support.pulsar_spark_etl", broker.url, broker.admin_url, *topics, call, app]
    return subprocess.run(command, env=environment, timeout=600, check=False).returncode


def move(spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], **who: Any) -> tuple[bool, int]:
    """Run the transaction of the program. Return whether its version was skipped, and how many rows it read."""
    with cluster.transaction(**who) as txn:
        rows = txn.read(spark, topics[0], subscription="s")
        count = rows.count()
        writer = rows.write.format("txnsegment").mode("append").options(**txn.options)
        writer.option("keyColumn", "who").save(topics[1])
    return txn.commit().skipped, count


def counted(spark: SparkSession, cluster: PulsarCluster, topic: str) -> Counter[int]:
    rows = spark.read.format("txnsegment").option("serviceUrl", cluster.url).load(topic)
    return Counter(row["id"] for row in rows.collect())


@pytest.mark.parametrize("fate", [long(fate, unless=FEW) for fate in FATES])
def test_a_program_that_is_killed_moves_each_row_once(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar_broker: PulsarBroker, fate: str
) -> None:
    app = f"killed-{topics[0]}"
    assert killed(pulsar_broker, topics, "read", app, fate) == -signal.SIGKILL
    done = fate in ("after end", "before cursors")
    assert counted(spark, cluster, topics[1]) == (Counter(range(COUNT)) if done else Counter())
    assert move(spark, cluster, topics, app=app, version=1) == (done, 0 if done else COUNT)
    assert counted(spark, cluster, topics[1]) == Counter(range(COUNT))
    send(cluster, topics[0], COUNT)
    assert move(spark, cluster, topics, app=app, version=2) == (False, COUNT)
    assert counted(spark, cluster, topics[1]) == Counter(range(2 * COUNT))


@pytest.mark.parametrize("fate", [long(fate, unless=("after acks Done", "after end")) for fate in FATES_WITHOUT])
@pytest.mark.parametrize("call", ["rows", long("read")])
def test_a_program_without_an_application_that_is_killed_moves_each_row_once(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar_broker: PulsarBroker, fate: str, call: str
) -> None:
    """The next reader of the subscription aborts what the program has left, and learns what it has committed."""
    assert killed(pulsar_broker, topics, call, "-", fate) == -signal.SIGKILL
    assert move(spark, cluster, topics) == (False, 0 if fate == "after end" else COUNT)
    assert counted(spark, cluster, topics[1]) == Counter(range(COUNT))


def test_two_programs_that_read_one_subscription_move_each_row_once(
    spark: SparkSession, cluster: PulsarCluster, topics: tuple[str, str], pulsar: str
) -> None:
    """Each of them gets the subscription now and then. It is busy at other times."""
    over, moved, failures = threading.Event(), Counter[int](), list[BaseException]()

    def program(number: int) -> None:
        try:
            spark.createDataFrame([(1,)], "a int")  # makes the session active in this thread: a write finds its format by it
            with open_pulsar(pulsar, None) as mine:
                while not over.is_set():
                    try:
                        moved[number] += move(spark, mine, topics)[1]
                    except SubscriptionBusy:
                        moved[-1] += 1
        except BaseException as error:
            failures.append(error)

    programs = [threading.Thread(target=program, args=(number,)) for number in range(2)]
    for one in programs:
        one.start()
    try:
        for number in range(1, 5):
            send(cluster, topics[0], number * COUNT)
    finally:
        over.set()
        for one in programs:
            one.join()
    for one in failures:  # type: ignore[assignment]
        raise one
    move(spark, cluster, topics)
    assert counted(spark, cluster, topics[1]) == Counter(range(5 * COUNT))
