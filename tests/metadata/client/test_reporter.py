"""Reports of drivers: when one is written, what is in it, when it is removed, and that nothing else notices it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metadata.client.client import client
from metadata.client.passes import sweep_pass
from metadata.client.reporter import Reporter, program
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.cluster.figures import MOST_APPLICATIONS, MOST_NAME, MOST_READS, Figures, interval_s
from metadata.cluster.reports import delete_old, read_reports
from metadata.common.errors import ConfigurationError, Fenced, Unavailable
from metadata.records import paths
from metadata.records.driver_records import DriverReport
from metadata.records.paths import Key
from metadata.rules.reporting import KEPT_MS, added, is_due, is_late, is_silent
from metadata.store import zookeeper_watch
from metadata.store.contract import Record, Write
from metadata.store.read_only import ReadOnlyStore
from metadata.store.zookeeper import ZooKeeperStore
from txnsegment import connect


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def opened(url: str, clock: Hands) -> Iterator[Cluster]:
    cluster = open_cluster(url, clock=clock)
    yield cluster
    cluster.close()


def reports(cluster: Cluster) -> list[DriverReport]:
    return read_reports(cluster.store.view(), 100)[0]


def stored(cluster: Cluster) -> list[Record]:
    return cluster.store.view().scan(paths.DRIVERS)


def test_a_report_is_written_when_figures_have_changed_and_not_otherwise(opened: Cluster, clock: Hands) -> None:
    reporter, figures = Reporter(opened, 15.0), opened.figures
    assert not reporter.tick()
    assert stored(opened) == []
    with figures.committing("etl"):
        figures.committed(7, 700, 0.03, clock.monotonic())
    clock.sleep(15)
    assert reporter.tick()
    assert not reporter.tick(), "nothing has changed since"
    (one,) = reports(opened)
    assert (one.owner, one.commits, one.rows, one.bytes, one.commit_us) == (opened.owner, 1, 7, 700, 30_000)
    assert one.applications == ("etl",)
    assert one.buckets == (0, 0, 1, 0, 0, 0, 0, 0)
    assert (one.at_ms, one.last_commit_ms) == (clock.ms, clock.ms - 15_000)
    assert (one.recent.ms, one.recent.rows) == (15_000, 7)
    first = stored(opened)
    figures.committed(1, 10, 7.0, clock.monotonic())
    clock.sleep(10)
    assert reporter.tick()
    (two,) = reports(opened)
    assert (two.commits, two.recent.commits, two.recent.rows, two.since_ms) == (2, 1, 1, one.since_ms)
    assert two.buckets == (0, 0, 1, 0, 0, 0, 0, 1)
    assert [r.key for r in stored(opened)] == [r.key for r in first], "the next report takes the place of the last one"


def test_a_driver_with_an_open_transaction_reports_although_nothing_changes(opened: Cluster) -> None:
    reporter = Reporter(opened, 15.0)
    with opened.figures.committing():
        assert reporter.tick()
        assert reporter.tick()
        assert reports(opened)[0].open == 1
    assert not reporter.tick()
    assert is_due(3, 3, 1)
    assert not is_due(3, 3, 0)
    assert is_due(4, 3, 0)


def test_failed_commits_are_counted_by_their_error_and_inner_commits_once() -> None:
    figures = Figures()
    with pytest.raises(Fenced), figures.committing(), figures.committing():
        raise Fenced("aborted")

    def retried_in_vain() -> None:
        with figures.committing():
            figures.retried()
            figures.retried()
            raise Unavailable("gone")

    with pytest.raises(Unavailable):
        retried_in_vain()
    assert figures.retries_of_commit == 2
    with figures.committing(), figures.counting() as counts:
        found = counts.copy()
    assert figures.retries_of_commit == 0
    assert (found.conflicts, found.failures, found.retries, found.open) == (1, 1, 2, 1)


def test_a_report_has_a_bounded_size(opened: Cluster) -> None:
    figures = opened.figures
    for number in range(100):
        with figures.committing(f"{number}" + "é" * 1000):
            figures.committed(2**50, 2**50, 1e6, 0.0)
        figures.lagging(f"{number}" + "é" * 1000, "é" * 1000, 2**50, more=True)
    assert Reporter(opened, 15.0).tick()
    (record,), (one,) = stored(opened), reports(opened)
    assert (len(one.applications), len(one.reads)) == (MOST_APPLICATIONS, MOST_READS)
    assert one.reads[-1].what.startswith("99"), "the reads that were measured last are kept"
    assert one.applications[0].startswith("99")
    assert len(record.value) < 1000 + 2 * MOST_NAME * (MOST_APPLICATIONS + 2 * MOST_READS)


def test_old_reports_are_ignored_and_removed(opened: Cluster, clock: Hands) -> None:
    dead, living = Reporter(opened, 15.0), Reporter(opened, 15.0)
    opened.figures.read(5)
    assert dead.tick()
    clock.sleep(KEPT_MS / 1000)
    assert len(reports(opened)) == 1
    clock.sleep(0.001)
    assert reports(opened) == []
    assert len(stored(opened)) == 1
    assert living.tick(), "the first report of any driver removes old ones"
    assert len(stored(opened)) == len(reports(opened)) == 1
    clock.sleep(KEPT_MS / 1000 + 1)
    passing = client(opened, lambda job: None)
    assert sweep_pass(passing, files=False)[1] == {}
    assert stored(opened) == [], "a sweep removes old ones, too"
    opened.figures.read(1)
    assert living.tick(), "a driver that was idle so long reports again"
    assert len(reports(opened)) == 1


def test_a_damaged_report_disturbs_no_look_and_no_sweep(opened: Cluster) -> None:
    opened.store.put(Key("/drivers/x:y", ""), b"{")
    opened.figures.read(5)
    assert Reporter(opened, 15.0).tick()
    assert len(reports(opened)) == 1
    assert delete_old(opened.store) == 0


class Away:
    """Makes the writes of a store fail."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried = 0
        monkeypatch.setattr(cluster.store, "write", self.write)

    def write(self, *writes: Write) -> None:
        self.tried += 1
        raise Unavailable("The server is gone.")


def test_a_store_that_is_away_costs_the_program_nothing(
    opened: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter(opened, 15.0)
    opened.figures.committed(7, 700, 0.03, 0.0)
    with monkeypatch.context() as away, caplog.at_level(logging.INFO, "txnsegment.reports"):
        store = Away(opened, away)
        assert [reporter.tick() for _ in range(3)] == [False] * 3
        assert store.tried == 3
        assert [r.levelname for r in caplog.records] == ["WARNING"], "it is logged once"
    with caplog.at_level(logging.INFO, "txnsegment.reports"):
        assert reporter.tick()
    assert caplog.records[-1].message == "the figures of this process are reported again"
    assert (reports(opened)[0].commits, reports(opened)[0].unsent) == (1, 3)


def test_an_error_of_the_reports_reaches_no_commit() -> None:
    figures = Figures()

    def fails() -> None:
        raise RuntimeError("can't start new thread")

    figures.changed = fails
    figures.committed(1, 1, 0.1, 0.0)
    assert figures.changed is None


def test_a_process_that_may_have_no_more_threads_commits_and_closes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a process is one at the limit of its threads, or at its end (Python from 3.12). `close` waited for a thread that had not
    started, and raised.
    """
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "txnsegment-reports":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    cluster = connect(url)
    with cluster.begin() as txn:
        txn.append("t", [{"n": 1}])
        assert txn.commit().rows == 1
    cluster.close()


def test_a_client_reports_by_itself_and_says_when_it_ends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is shorter than the first report is seen, too."""
    monkeypatch.setenv("TXNSEGMENT_REPORT_SECONDS", "15")
    with connect(url) as cluster:
        cluster.topics.create("t", schema="n bigint")
        with cluster.begin(app="loader", version=1) as txn:
            txn.append("t", [{"n": 1}])
            txn.commit()
        assert [one.name for one in threading.enumerate()].count("txnsegment-reports") == 1
        with cluster.consumer("t", "s", start="earliest") as consumer:
            assert len(list(consumer.messages(timeout=0))) == 1
            consumer.lag()
    assert "txnsegment-reports" not in [one.name for one in threading.enumerate()]
    with connect(url) as cluster:
        (one,) = reports(cluster.client.cluster)
    assert (one.ended, one.open, one.commits, one.rows, one.rows_read) == (True, 0, 1, 1, 1)
    assert (one.applications, one.reads) == (("loader",), ())


def test_a_process_that_only_looks_or_has_nothing_to_say_writes_no_report(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXNSEGMENT_REPORT_SECONDS", "15")
    with connect(url) as cluster:
        cluster.topics.create("t", schema="n bigint")
        assert cluster.topics.list()
    with connect(url) as cluster:
        assert stored(cluster.client.cluster) == []
        cluster.client.cluster.store = ReadOnlyStore(cluster.client.cluster.store)
        looking = client(cluster.client.cluster)
        looking.cluster.figures.read(5)
        assert looking.reports is None
        cluster.client.finish()
        looking.finish()


@pytest.mark.parametrize("seconds", ["0", "0.0"])
def test_reports_are_off_by_the_variable(url: str, monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setenv("TXNSEGMENT_REPORT_SECONDS", seconds)
    with connect(url) as cluster:
        cluster.client.cluster.figures.read(5)
        assert cluster.client.reports is None
        assert cluster.client.cluster.figures.changed is None
    with connect(url) as cluster:
        assert stored(cluster.client.cluster) == []


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "1e9"])
def test_a_wrong_time_between_reports_is_told_when_a_cluster_is_opened(
    url: str, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TXNSEGMENT_REPORT_SECONDS", value)
    with pytest.raises(ConfigurationError, match=f"TXNSEGMENT_REPORT_SECONDS is '{value}', which is not a number of seconds"):
        connect(url)


def test_the_time_between_reports_may_be_given() -> None:
    assert interval_s({}) == 15.0
    assert interval_s({"TXNSEGMENT_REPORT_SECONDS": " 2.5 "}) == 2.5


def test_a_forked_child_reports_for_itself(opened: Cluster) -> None:
    reporter, figures = Reporter(opened, 15.0), opened.figures
    figures.committed(7, 700, 0.03, 0.0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # the counts of the child begin at 0
        try:
            figures.read(1)
            with figures.counting() as counts:
                os.write(write, f"{counts.commits} {counts.rows_read}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        assert answer.read() == "0 1"
    assert reporter.tick()
    assert reports(opened)[0].commits == 1


def report(**given: object) -> DriverReport:
    return DriverReport(**{"owner": "h:1", "program": "p", "since_ms": 10, "at_ms": 100, "every_ms": 15, **given})


def test_the_reports_of_one_owner_are_added_up() -> None:
    old = report(commits=2, rows=5, buckets=(1, 1), open=1, ended=True, applications=("a", "b"), last_commit_ms=90)
    new = report(at_ms=110, since_ms=60, commits=3, rows=7, buckets=(1, 2, 3), open=1, applications=("b",))
    found = added([new, old, report(owner="h:2")])
    assert set(found) == {"h:1", "h:2"}
    one = found["h:1"]
    assert (one.commits, one.rows, one.buckets, one.open, one.ended) == (5, 12, (2, 3, 3), 1, None)
    assert (one.since_ms, one.at_ms, one.last_commit_ms, one.applications) == (10, 110, 90, ("b", "a"))


def test_a_driver_is_silent_only_if_its_transaction_is_old_enough_to_be_reported() -> None:
    assert not is_late(report(), 145)
    assert is_late(report(), 146)
    assert is_silent(report(), 100, 146)
    assert not is_silent(report(), 130, 146), "the transaction was opened a moment ago"
    assert not is_silent(report(), 100, 120), "the driver reports"


def test_programs_have_names() -> None:
    assert program(["/opt/etl/job.py"], {}) == "job.py"
    assert program([""], {}) == program([], {}) == "python"
    assert program(["-m"], {"SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"}) == "spark"


def test_reports_wake_nobody_who_waits_for_the_log(zk_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On ZooKeeper a watch fires for each change of its znode, and is set again. Nobody watches the folder of the reports."""
    sent, send = [], zookeeper_watch._Folder._send

    def noted(self: zookeeper_watch._Folder, connected: object, path: str, fired: Callable[[object], None]) -> None:
        sent.append(path)
        send(self, connected, path, fired)

    monkeypatch.setattr(zookeeper_watch._Folder, "_send", noted)
    cluster = open_cluster(zk_url, ledgers=f"file://{tmp_path}/ledgers")
    assert isinstance(cluster.store, ZooKeeperStore)
    woken, event = [], threading.Event()

    def wake() -> None:
        woken.append(1)
        event.set()

    try:
        segment = paths.segment_events("segment://a/b/c/0000-ffff-0")
        watches = [cluster.store.watch(target, wake) for target in (paths.LOG, segment, paths.CLUSTER)]
        cluster.store.append(paths.LOG, b"{}")  # the watch on the log is set when this wakes it
        assert event.wait(10)
        woken.clear()
        sent.clear()
        reporter = Reporter(cluster, 15.0)
        for _ in range(5):
            cluster.figures.read(1)
            assert reporter.tick()
        assert len(reports(cluster)) == 1
        event.clear()
        cluster.store.append(paths.LOG, b"{}")  # all wake-ups of the reports would have come before that of this append
        assert event.wait(10)
        assert (len(woken), len(sent)) == (1, 1)
        for watch in watches:
            watch.close()
    finally:
        cluster.close()
