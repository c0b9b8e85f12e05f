"""Tests of the calls of `cluster.subscriptions` and the command `txnsegment subscriptions`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from prometheus_client import REGISTRY
from pyspark.sql.types import LongType, StructField, StructType
from typer.testing import CliRunner, Result

from metadata.common.errors import OptionError, SubscriptionExists, SubscriptionNotFound, TopicNotFound
from metadata.records import paths
from metadata.records.records import Header, Nanos, Registration, SegmentWrite, State
from spark_txn_source.stream import StreamReader
from txnsegment import Cluster
from txnsegment.cli.app import build
from txnsegment.sweeping import measure_lags

Run = Callable[..., Result]


@pytest.fixture
def run(url: str) -> Run:
    def call(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(build(), ["--service-url", url, *arguments])
        assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done

    return call


def write(cluster: Cluster, count: int) -> int:
    with cluster.begin() as txn:
        txn.append("t", pa.table({"n": list(range(count))}))
        number = txn.commit().number
    assert number is not None
    return number


def test_starts_and_seeks(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint", segments=3)
    first = write(cluster, 10)
    second = write(cluster, 5)
    here = cluster.subscriptions
    assert here.create("t", "early").lag.rows == 15
    assert here.create("t", "late", start="latest").lag.rows == 0
    assert here.create("t", "mid", start=first).lag.rows == 5
    future = datetime.now(UTC) + timedelta(days=1)
    assert here.seek("t", "mid", future).lag.rows == 0
    assert here.seek("t", "mid", datetime(2020, 1, 1, tzinfo=UTC)).lag.rows == 15
    assert here.seek("t", "mid", second).lag.rows == 0
    assert [(s.name, s.lag.rows) for s in here.list()] == [("early", 15), ("late", 0), ("mid", 0)]
    early = here.describe("t", "early").lag
    assert early.bytes > 0
    assert early.seconds > 0
    with pytest.raises(SubscriptionExists):
        here.create("t", "mid")
    here.delete("t", "mid")
    with pytest.raises(SubscriptionNotFound):
        here.describe("t", "mid")
    with pytest.raises(SubscriptionNotFound):
        here.delete("t", "mid")
    with pytest.raises(SubscriptionNotFound):
        here.seek("t", "mid", "latest")
    with pytest.raises(TopicNotFound):
        here.create("nowhere", "s")


def test_a_subscription_is_not_moved_beyond_the_cut(cluster: Cluster) -> None:
    """A cursor beyond the cut would skip rows of transactions that commit later."""
    cluster.topics.create("t", schema="n bigint")
    write(cluster, 1)
    store, segment = cluster.client.cluster.store, cluster.topics.describe("t").segments[0].name
    now = store.view().now_ms()
    header = Header(state=State.OPEN, timeout=Nanos(60 * 10**9), created_at=Nanos(now * 10**6), owner="somebody:1")
    store.put(paths.header("0_9999"), header.to_bytes(), expect=-1, indexes=header.indexes())
    registration = Registration(txn="0_9999", publish_ms=now, segments={segment: SegmentWrite(rows=1, bytes=1, entries=1)})
    number = store.append(paths.LOG, registration.to_bytes()).number
    with pytest.raises(OptionError, match=f"The log is decided up to {number - 1}, not to {number} yet"):
        cluster.subscriptions.create("t", "s", start=number)
    assert cluster.subscriptions.create("t", "s", start=number - 1).lag.rows == 0


def gauges(name: str) -> tuple[float | None, ...]:
    labels = {"topic": "topic://public/default/t", "subscription": name}
    return tuple(REGISTRY.get_sample_value(f"txnsegment_subscription_lag_{what}", labels) for what in ("rows", "bytes", "seconds"))


def test_the_lag_of_each_subscription_is_a_metric(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint", segments=2)
    cluster.subscriptions.create("t", "m")
    write(cluster, 10)
    known = measure_lags(cluster, set())
    assert known == {("topic://public/default/t", "m")}
    rows, size, seconds = gauges("m")
    lag = cluster.subscriptions.describe("t", "m").lag
    assert (rows, size) == (lag.rows, lag.bytes) == (10, lag.bytes)
    assert lag.bytes > 0
    assert seconds is not None
    assert 0 < seconds <= lag.seconds
    with cluster.consumer("t", "m") as consumer:
        consumer.ack(list(consumer.messages(timeout=0))[:4])
        assert consumer.lag().rows == 6
    assert gauges("m")[0] == 6
    cluster.subscriptions.delete("t", "m")
    assert measure_lags(cluster, known) == set()
    assert gauges("m") == (0, 0, 0)


def test_a_stream_reports_its_lag(cluster: Cluster) -> None:
    """The reported lag excludes rows that the stream has read, although the cursor moves only when the next batch is planned."""
    cluster.topics.create("t", schema="n bigint", segments=2)
    cluster.subscriptions.create("t", "q")
    write(cluster, 10)
    kind = StructType([StructField("n", LongType())])
    stream = StreamReader({"serviceUrl": cluster.url, "topics": "t", "subscription": "q"}, kind)
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, stream.getDefaultReadLimit())
    assert stream.reportLatestOffset() == end, "the batch has all rows"
    number = write(cluster, 5)
    reported = stream.reportLatestOffset()
    assert reported is not None
    lag = reported.pop("lag")
    assert reported == {**end, "log": number}
    assert lag["rows"] == 5
    assert lag["bytes"] > 0
    assert lag["seconds"] >= 0
    assert gauges("q")[0] == 5
    stream.commit(end)
    assert cluster.subscriptions.describe("t", "q").lag.rows == 5
    stream.stop()


@pytest.mark.parametrize("bad", ["", "  ", "a\nb", "x" * 257])
def test_bad_subscription_names_are_refused(cluster: Cluster, bad: str) -> None:
    cluster.topics.create("t", schema="n bigint")
    with pytest.raises(OptionError, match="printable"):
        cluster.subscriptions.create("t", bad)


@pytest.mark.parametrize("bad", ["later", -1, True, 1.5, datetime(2025, 1, 1)])
def test_bad_start_positions_are_refused(cluster: Cluster, bad: object) -> None:
    cluster.topics.create("t", schema="n bigint")
    with pytest.raises(OptionError, match="no place in the log"):
        cluster.subscriptions.create("t", "s", start=bad)


def test_subscription_names_take_every_printable_character(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint")
    names = sorted(["a:b", "a b", "a/b", "a%3Ab", "ünï", "~"])
    for name in names:
        cluster.subscriptions.create("t", name)
    assert [s.name for s in cluster.subscriptions.list("t")] == names


def test_the_subscriptions_commands_create_list_seek_and_delete(cluster: Cluster, run: Run) -> None:
    cluster.topics.create("t", schema="n bigint")
    number = write(cluster, 10)
    assert run("subscriptions", "create", "t", "s").stdout.startswith(
        "Created the subscription s of topic://public/default/t; 10 rows ("
    )
    assert "10" in run("subscriptions", "list").stdout
    (found,) = json.loads(run("subscriptions", "list", "t", "--json").stdout)
    assert (found["topic"], found["name"], found["lag"]["rows"]) == ("topic://public/default/t", "s", 10)
    consumer = cluster.consumer("t", "s")
    consumer.ack(list(consumer.messages(timeout=0))[3])
    shown = run("subscriptions", "describe", "t", "s").stdout
    assert f"{number}:0:3" in shown
    assert "9 rows" in shown
    assert run("subscriptions", "seek", "t", "s", "--to", "latest").stdout == (
        "Moved the subscription s of topic://public/default/t to latest; nothing to get.\n"
    )
    assert json.loads(run("subscriptions", "describe", "t", "s", "--json").stdout)["cursors"][0]["markDelete"] == str(number)
    run("subscriptions", "seek", "t", "s", "--to", "2020-01-01T00:00:00Z")
    assert "no place in the log" in run("subscriptions", "seek", "t", "s", "--to", "soon", code=1).stderr
    assert run("subscriptions", "delete", "t", "s").stdout == "Deleted the subscription s of t.\n"
    assert "There are no subscriptions." in run("subscriptions", "list").stdout
    assert "no subscription 's'" in run("subscriptions", "describe", "t", "s", code=1).stderr
