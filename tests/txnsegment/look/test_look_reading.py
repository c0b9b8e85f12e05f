"""A look finds what the cluster's records say, on SQLite and ZooKeeper. It changes nothing, and its cost is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metadata.client.reporter import Reporter
from metadata.common.errors import NotAllowed, OptionError, Unavailable
from metadata.records import paths
from metadata.records.driver_records import DriverReport
from metadata.store.contract import Record, View, time_ms
from tests.txnsegment.cli.test_cli import undecided
from txnsegment import Cluster, connect
from txnsegment.look import reading
from txnsegment.look.drivers import DriverState
from txnsegment.look.reading import Looker, look_at_drivers, open_to_look
from txnsegment.look.seen import Seen


@pytest.fixture(params=["sqlite", "zookeeper"])
def each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A real cluster on each store."""
    if request.param == "sqlite":
        with connect(f"file://{tmp_path}/cluster") as opened:
            yield opened
    else:
        with connect(request.getfixturevalue("zk_url"), ledgers=f"file://{tmp_path}/ledgers") as opened:
            yield opened


@pytest.fixture
def looker(each: Cluster) -> Iterator[Looker]:
    made = Looker(open_to_look(each.url))
    yield made
    made.close()


def commit(cluster: Cluster, topic: str = "t", *, rows: int = 4) -> str:
    """Commit rows, and wait for the background work."""
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"k": [f"k{i}" for i in range(rows)], "n": list(range(rows))}))
        txn.commit()
    cluster.client.finish()
    return txn.id


def make(cluster: Cluster, topic: str = "t", segments: int = 2) -> None:
    cluster.topics.create(topic, segments=segments, key="k", schema="k string, n bigint")


def records(cluster: Cluster) -> list[Record]:
    return cluster.client.cluster.store.view().scan(paths.EVERYTHING)


def test_a_look_finds_topics_transactions_subscriptions_and_sweeps(each: Cluster, looker: Looker) -> None:
    make(each)
    make(each, "u", segments=1)
    each.subscriptions.create("t", "s")
    done = commit(each)
    each.sweep()
    each.topics.split("t", 1)
    commit(each)
    number = undecided(each, "0_9999", deadline_in_ms=60_000)
    commit(each, "u", rows=3)
    commit(each, rows=5)

    seen = looker.look()
    t, u = seen.topics
    assert (seen.topic_count, t.name, u.name) == (2, "topic://public/default/t", "topic://public/default/u")
    assert (t.size.rows, u.size.rows, seen.size.rows) == (13, 3, 16)
    assert (t.active, len(t.segments)) == (3, 4)
    assert {s.segment.id: (s.segment.parents, s.segment.children) for s in t.segments}[1] == ((), (2, 3))
    assert (t.horizon, t.undecided, t.waiting.rows) == (number - 1, ((number, "0_9999"),), 5)
    assert (u.horizon, u.behind, u.undecided, u.waiting.rows) == (seen.log.newest, 0, (), 0)
    assert t.behind == seen.log.newest - number + 1
    assert [x.id for x in seen.open] == ["0_9999"]
    assert 0 <= seen.oldest_open_s < 60
    assert seen.overdue == ()
    assert done in {x.id for x in seen.ended}
    assert seen.sweeps.last_ms is not None
    lag = each.subscriptions.describe("t", "s").lag
    (found,) = looker.subscriptions()
    assert (found.topic, found.name, found.lag.rows, found.lag.bytes, found.at_least) == (t.name, "s", lag.rows, lag.bytes, False)
    assert {f.check for f in looker.findings()} == {"store", "storage", "clock", "transactions", "log"}


def test_a_look_finds_the_drivers_of_all_processes(each: Cluster, looker: Looker) -> None:
    """A second client of the cluster stands for a driver elsewhere, which has died while its transaction was open."""
    make(each)
    reporter = Reporter(each.client.cluster, 15.0)
    with each.begin(app="loader", version=1) as txn:
        txn.append("t", pa.table({"k": ["a"], "n": [1]}))
        txn.commit()
    assert reporter.tick()
    store, now_ms = each.client.cluster.store, time_ms(each.client.cluster.store)
    dead = DriverReport(owner="dead:1", program="spark", since_ms=1, at_ms=now_ms - 60_000, every_ms=15_000, commits=3)
    store.put(paths.driver("dead:1", "x"), dead.to_bytes())
    each.client.finish()  # the sweep after the commit would abort the next transaction
    undecided(each, "0_9999", deadline_in_ms=-40_000)
    living, silent = looker.look().drivers
    assert (living.name, living.state, living.open) == (each.client.cluster.owner, DriverState.REPORTING, 0)
    assert (living.report.commits, living.report.applications, living.rows > 0) == (1, ("loader",), True)
    assert (silent.name, silent.state, silent.open, silent.rows) == ("dead:1", DriverState.SILENT, 1, 0)
    found, at_ms = look_at_drivers(looker.client)
    assert [(d.name, d.state) for d in found] == [(d.name, d.state) for d in (living, silent)]
    assert at_ms >= now_ms


def test_a_look_writes_nothing_and_aborts_no_overdue_transaction(each: Cluster, looker: Looker) -> None:
    make(each)
    each.subscriptions.create("t", "s")
    undecided(each, "0_9999", deadline_in_ms=-60_000)
    before = records(each)
    seen = looker.look()
    looker.subscriptions()
    assert any("past their deadline" in f.message for f in looker.findings())
    assert [x.id for x in seen.overdue] == ["0_9999"]
    assert len(seen.topics[0].undecided) == 1
    assert records(each) == before
    with pytest.raises(NotAllowed):
        looker.client.cluster.store.put(paths.CLUSTER, b"")
    each.sweep()
    assert looker.look().open == ()


def test_rows_count_the_same_before_and_after_they_are_folded(each: Cluster, looker: Looker) -> None:
    make(each)
    for _ in range(5):
        commit(each)
    before = looker.look()
    each.sweep()
    after = looker.look()
    assert sum(s.live for t in before.topics for s in t.segments) > 0
    assert sum(s.live for t in after.topics for s in t.segments) == 0
    assert after.log.length <= 1 < before.log.length
    assert after.size == before.size


def test_each_ended_transaction_is_in_one_look_only(cluster: Cluster) -> None:
    make(cluster)
    first = commit(cluster)
    looker = Looker(open_to_look(cluster.url))
    found = [[x.id for x in looker.look().ended]]
    second = commit(cluster)
    undecided(cluster, "0_9999", deadline_in_ms=600_000)
    found += [[x.id for x in looker.look().ended] for _ in range(2)]
    cluster.transactions.abort("0_9999")
    found += [[x.id for x in looker.look().ended] for _ in range(2)]
    assert found == [[first], [second], [], ["0_9999"], []]
    looker.close()


def test_a_look_that_fails_loses_no_ended_transaction(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    make(cluster)
    looker = Looker(open_to_look(cluster.url))
    looker.look()
    txn = commit(cluster)
    with monkeypatch.context() as patched:
        patched.setattr(type(looker.client.buffer), "read", lambda *_: (_ for _ in ()).throw(Unavailable("gone")))
        with pytest.raises(Unavailable):
            looker.look()
    assert [x.id for x in looker.look().ended] == [txn]
    looker.close()


class Counted(View):
    """A view that counts the records that are asked for."""

    def __init__(self, view: View, counts: list[int]) -> None:
        self._view, self._counts = view, counts

    def get_many(self, keys: Sequence[Any]) -> list[Record | None]:
        self._counts.append(len(keys))
        return self._view.get_many(keys)

    def keys(self, within: Any) -> list[str]:
        return self._view.keys(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        found = self._view.scan_index(index, first, last)
        self._counts.append(len(found))
        return found

    def now_ms(self) -> int:
        return self._view.now_ms()


def records_read(looker: Looker, monkeypatch: pytest.MonkeyPatch) -> int:
    counts: list[int] = []
    store = looker.client.cluster.store
    view = type(store).view
    with monkeypatch.context() as patched:
        patched.setattr(type(store), "view", lambda self: Counted(view(self), counts))
        looker.look()
        looker.subscriptions()
    return sum(counts)


def test_a_look_at_a_long_history_reads_as_many_records_as_at_a_short_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "OVERLAP_MS", 0)
    make(cluster)
    cluster.subscriptions.create("t", "s", start="latest")
    looker = Looker(open_to_look(cluster.url))
    commit(cluster)
    cluster.sweep()
    looker.look()
    short = records_read(looker, monkeypatch)
    for _ in range(120):
        commit(cluster, rows=1)
    cluster.sweep()
    looker.look()
    assert records_read(looker, monkeypatch) == short
    looker.close()


def test_many_topics_are_counted_and_the_first_and_the_asked_ones_are_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_TOPICS", 2)
    for name in "dcba":
        make(cluster, name, segments=1)
    looker = Looker(open_to_look(cluster.url))
    names = [f"topic://public/default/{name}" for name in "abcd"]
    assert ([t.name for t in looker.look().topics], looker.look().topic_count) == (names[:2], 4)
    assert [t.name for t in looker.look([names[3], "topic://public/default/none", "no name"]).topics] == [*names[:2], names[3]]
    cluster.topics.delete("a")
    assert [t.name for t in looker.look().topics] == [names[1]]  # the record of a deleted topic still counts as one of the first
    looker.close()


def test_a_lag_of_very_many_ledgers_is_a_lower_bound(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_LEDGERS", 2)
    make(cluster, segments=1)
    cluster.subscriptions.create("t", "s")
    looker = Looker(open_to_look(cluster.url))
    for count in (1, 2, 3):
        commit(cluster)
        looker.look()
        (found,) = looker.subscriptions()
        assert (found.lag.rows, found.at_least) == (4 * min(count, 2), count > 2)
    looker.close()


def test_a_damaged_topic_hides_no_other_one(cluster: Cluster) -> None:
    make(cluster)
    make(cluster, "u")
    commit(cluster)
    commit(cluster, "u")
    cluster.sweep()
    root = Path(cluster.ledgers.removeprefix("file://"))
    for head in root.glob("public/default/t/*/index/*"):
        head.write_bytes(b"damaged")
    looker = Looker(open_to_look(cluster.url))
    broken, sound = looker.look().topics
    assert "index snapshot" in (broken.problem or "")
    assert (broken.size.rows, sound.problem, sound.size.rows) == (0, None, 4)
    looker.close()


def test_marker_based_topics_and_their_transactions_are_listed(cluster: Cluster) -> None:
    cluster.topics.create("persistent://public/default/p", schema="n bigint")
    with cluster.begin() as txn:
        txn.append("persistent://public/default/p", pa.table({"n": [1]}))
        txn.commit()
    looker = Looker(open_to_look(cluster.url))
    seen = looker.look()
    assert [(p.name, p.sealed, p.migrated_to) for p in seen.persistent] == [("persistent://public/default/p", False, None)]
    assert (seen.open, txn.id in {x.id for x in seen.ended}) == ((), True)
    cluster.topics.migrate("persistent://public/default/p", "topic://public/default/q")
    seen = looker.look()
    assert seen.persistent[0].migrated_to == "topic://public/default/q"
    assert [(t.name, t.size.rows) for t in seen.topics] == [("topic://public/default/q", 1)]
    looker.close()


def test_an_empty_cluster_is_seen(each: Cluster, looker: Looker) -> None:
    seen = looker.look()
    assert isinstance(seen, Seen)
    assert (seen.topics, seen.topic_count, seen.log.length, seen.open, looker.subscriptions()) == ((), 0, 0, (), ())


def test_a_pulsar_cluster_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="metrics of its brokers"):
        open_to_look("pulsar://localhost:6650")
    monkeypatch.setenv("TXNSEGMENT_SERVICE_URL", "pulsar://localhost:6650")
    with pytest.raises(OptionError, match="txnsegment topics") as told:
        open_to_look(None)
    commands = {"topics list", "topics describe", "subscriptions list", "subscriptions describe", "txns list", "doctor"}
    assert {one for one in commands if f"{one}`" in told.value.advice} == commands
