"""Elapsed time is computed from several clocks. No fresh row becomes old when one clock leaps (protocol.md section 7, Time)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.client.client import client
from metadata.client.passes import delete_orphans
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.clock import SystemClock
from metadata.rules import elapsed
from metadata.rules.elapsed import ClockLook, Clocks, SeenTime
from txnsegment.cluster import Cluster as Face

HOUR = 3_600_000
BEGIN = 1_700_000_000_000


@dataclass
class World:
    """The real time in ms, and by how many ms two clocks are off: the store's (`store`) and that of the sweeper's machine (`wall`).
    `started`: the real time at which the machine was started.
    """

    real: int = 0
    store: int = 0
    wall: int = 0
    boot: str = "boot-1"
    started: int = 0
    number: int = 0
    seen: SeenTime | None = None

    def look(self) -> SeenTime:
        clocks = Clocks(BEGIN + self.real + self.store, BEGIN + self.real + self.wall, self.real - self.started + 777, self.boot)
        self.seen = elapsed.looked(self.seen, clocks, self.number)
        return self.seen

    def passes(self, ms: int) -> World:
        self.real += ms
        return self

    def publish(self) -> tuple[int, int, int]:
        """Return the number of a new row, its publish time by the store's clock, and its real publish time."""
        self.number += 1
        return self.number, BEGIN + self.real + self.store, self.real


def goes(world: World, row: tuple[int, int, int], keep_ms: int) -> bool:
    """Return whether a trim now removes the row."""
    seen = world.look()
    return row[1] + keep_ms < elapsed.now_for(seen, keep_ms) and row[0] <= elapsed.known_to(seen, keep_ms)


@pytest.mark.parametrize("together", [False, True], ids=["the store's clock", "the machine's only clock"])
def test_a_clock_that_leaps_ahead_makes_no_row_old(together: bool) -> None:
    world = World()
    world.look()
    row = world.passes(60_000).publish()
    world.passes(1_000)
    world.store, world.wall = 4 * HOUR, 4 * HOUR * together
    assert not goes(world, row, 3 * HOUR)
    world.store = world.wall = 0
    assert not goes(world.passes(1_000), row, 3 * HOUR)
    assert not goes(world.passes(2 * HOUR), row, 3 * HOUR)
    assert goes(world.passes(HOUR + 2_000), row, 3 * HOUR), (
        "the row goes late by the time between the two looks around the leap back"
    )


def test_a_row_published_while_the_clock_was_behind_is_not_old_when_it_is_right_again() -> None:
    world = World()
    world.look()
    world.passes(24 * HOUR).look()
    world.store = world.wall = -4 * HOUR
    row = world.publish()
    world.store = world.wall = 0
    assert not goes(world.passes(1_000), row, 3 * HOUR)
    assert goes(world.passes(3 * HOUR), row, 3 * HOUR)


def test_rows_expire_late_by_at_most_the_error_of_a_slow_clock() -> None:
    world = World()
    for _ in range(5):
        world.passes(HOUR).look()
    world.store = world.wall = -4 * HOUR
    world.passes(HOUR).look()
    world.store = world.wall = 0
    for _ in range(4):
        world.passes(HOUR).look()
    row = world.publish()
    for _ in range(3):
        world.passes(HOUR).look()
    assert goes(world.passes(1), row, 3 * HOUR)


def test_the_first_observation_of_a_machine_uses_the_slower_of_two_clocks() -> None:
    world = World()
    world.look()
    row = world.passes(1_000).publish()
    world.boot, world.started, world.wall = "boot-2", world.real, 4 * HOUR
    assert not goes(world.passes(1_000), row, 3 * HOUR), "the machine's clock is wrong"
    world.boot, world.wall, world.store = "boot-3", 0, 4 * HOUR
    assert not goes(world.passes(1_000), row, 3 * HOUR), "the store's clock is wrong"
    world.boot, world.store = "boot-4", 0
    assert not goes(world.passes(1_000), row, 3 * HOUR)
    world.boot = "boot-5"
    assert goes(world.passes(3 * HOUR), row, 3 * HOUR), "a trim works even if each look is by a new machine"
    assert world.seen is not None
    assert world.seen.elapsed_ms <= world.real, "the elapsed time is not above the real time"


def test_machines_an_hour_apart_that_sweep_in_turn_lose_no_time() -> None:
    world = World()
    world.look()
    row = world.publish()
    for i in range(36):
        world.boot, world.wall = ("a", HOUR) if i % 2 else ("b", -HOUR)
        world.passes(5 * 60_000).look()
    assert world.seen is not None
    assert world.seen.elapsed_ms >= 3 * HOUR - 2 * 5 * 60_000
    assert goes(world.passes(HOUR + 10 * 60_000 + 1), row, 3 * HOUR), (
        "the row goes late by the error of the slow clock, and no more"
    )


def test_without_an_earlier_observation_the_slower_clock_counts() -> None:
    """A cluster of an earlier version of the product has no recorded observation of the clocks. At its first trim the machine's
    clock is four hours ahead. The store's clock counts, so the row stays. The next trim uses the observation of the first trim.
    """
    world = World()
    row = world.publish()
    world.passes(2 * HOUR)
    world.wall = 4 * HOUR
    assert not goes(world, row, 3 * HOUR)
    world.wall = 0
    assert goes(world.passes(HOUR + 1), row, 3 * HOUR)


def test_an_observation_that_is_not_kept_passes_its_lead_to_the_next() -> None:
    """The second of four observations is dropped. The third observation gets the lead of the second (-50 ms), which is smaller than
    its own (0). A lead is defined in `metadata.rules.elapsed`.
    """
    looks = [
        ClockLook(number=n, elapsed_ms=at, lead_ms=lead) for n, (at, lead) in enumerate([(0, 0), (10, -50), (20, 0), (10_000, 0)])
    ]
    kept = elapsed.thinned(looks)
    assert [look.elapsed_ms for look in kept] == [0, 20, 10_000]
    assert [look.lead_ms for look in kept] == [0, -50, 0]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(1, 5 * HOUR)),
        st.tuples(st.just("store"), st.sampled_from((-10 * HOUR, -HOUR, 0, HOUR, 10 * HOUR))),
        st.tuples(st.just("publish"), st.just(0)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("boot"), st.integers(0, 2)),
    ),
    max_size=40,
)


@given(steps=STEPS, keep=st.integers(1, 6).map(lambda hours: hours * HOUR))
def test_no_row_expires_early_at_any_leap_of_the_store_clock(steps: list[tuple[str, int]], keep: int) -> None:
    """The clocks are observed every hour. Between two observations the store's clock may leap. No row younger than `keep` is
    trimmed.
    """
    world = World()
    world.look()
    rows: list[tuple[int, int, int]] = []
    for what, by in steps:
        match what:
            case "pass":
                for _ in range(by // HOUR):
                    world.passes(HOUR).look()
                world.passes(by % HOUR)
            case "store":
                world.look()
                world.store = by
                world.look()
            case "publish":
                rows.append(world.publish())
            case "look":
                world.look()
            case "boot":
                world.boot = f"boot-{by}"
    latest = 0
    assert world.look().elapsed_ms <= world.real
    for number, publish_ms, really in rows:
        latest = max(latest, publish_ms)
        if goes(world, (number, latest, really), keep):
            assert world.real - really >= keep


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 3)), min_size=1, max_size=400))
def test_few_clock_observations_are_kept_and_each_dropped_one_is_near_a_kept_one(steps: list[tuple[int, int]]) -> None:
    world = World()
    ages = []
    for ms, more in steps:
        world.number += more
        world.passes(ms).look()
        ages.append(world.real)
    assert world.seen is not None
    kept = [look.elapsed_ms for look in world.seen.looks]
    assert kept == sorted(kept)
    assert len(kept) <= 2 + 2 * elapsed.SPACING * 40
    newest = world.seen.elapsed_ms
    first = ages[0]
    for age in (one - first for one in ages):
        assert min(look - age for look in kept if look >= age) <= (newest - age) / elapsed.SPACING + 1 or age in kept


class Leaping(SystemClock):
    """The wall clock and the monotonic clock of one machine. `ahead_ms`: by how much the wall clock is ahead of the true time.
    `passed_ms`: how much time a test has let pass, which both clocks show.
    """

    ahead_ms = 0
    passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms + self.passed_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_ms / 1000


def opened(folder: Path, clock: Leaping) -> tuple[Cluster, Face]:
    cluster = open_cluster(folder.as_uri(), clock=clock)
    return cluster, Face(client(cluster))


def test_an_embedded_cluster_keeps_its_rows_when_the_clock_leaps_ahead_and_back(tmp_path: Path) -> None:
    """Rows are kept for three hours. The clock leaps four hours ahead and back, while other processes trim, as cron jobs do. No row
    is trimmed too early (issue 13, fault 5).
    """
    clock = Leaping()
    _, face = opened(tmp_path / "c", clock)
    with face:
        face.topics.create("t", segments=2)
        face.retention.set("t", keep=timedelta(hours=3))
        with face.producer("t") as producer:
            producer.send({"a": 1})
        face.sweep()
        clock.ahead_ms = 4 * HOUR
        assert face.retention.trim("t").rows == 0
    cluster, again = opened(tmp_path / "c", clock)
    with again:
        again.sweep()
        assert again.retention.trim("t").rows == 0
        (part,) = [file for file in cluster.storage.list("public") if file.path.endswith(".parquet")]
        clock.ahead_ms = 1000 * HOUR
        delete_orphans(cluster)
        assert cluster.storage.info(part.path) is not None
        clock.ahead_ms = 0
        assert again.retention.trim("t").rows == 0


def test_a_row_of_a_persistent_topic_that_was_committed_while_the_clock_was_behind_stays(tmp_path: Path) -> None:
    """The row is committed while the clock is four hours behind. No sweep runs in that time, but the committer observes the clocks.
    The observation stores a number of the cluster's log. This number does not show how young an entry of the persistent topic's log
    is. The row is nevertheless not trimmed too early.
    """
    clock = Leaping()
    name = "persistent://public/default/t"
    _, face = opened(tmp_path / "c", clock)
    with face:
        face.topics.create(name)
        face.retention.set(name, keep=timedelta(hours=3))
        face.sweep()
        clock.ahead_ms = -4 * HOUR
        with face.producer(name) as producer:
            producer.send({"a": 1})
        face.client.finish()
        clock.ahead_ms = 0
        face.sweep()
        face.subscriptions.create(name, "s", start="earliest")
        with face.consumer(name, "s") as consumer:
            assert [m.value["a"] for m in consumer.messages(timeout=0)] == [1]


def test_a_staged_part_outlives_a_leap_of_the_clock(tmp_path: Path) -> None:
    clock = Leaping()
    cluster, face = opened(tmp_path / "c", clock)
    with face:
        face.topics.create("t")
        with face.begin() as txn:
            txn.append("t", pa.table({"a": [1]}))
            clock.ahead_ms = 1000 * HOUR
            delete_orphans(cluster)
            clock.ahead_ms = 0
            txn.commit()
        assert face.subscriptions.create("t", "s", start="earliest").name == "s"
        with face.consumer("t", "s") as consumer:
            assert [m.value["a"] for m in consumer.messages(timeout=0)] == [1]


def test_a_fresh_process_trims_old_rows(tmp_path: Path) -> None:
    clock = Leaping()
    _, face = opened(tmp_path / "c", clock)
    with face:
        face.topics.create("t")
        with face.producer("t") as producer:
            producer.send({"a": 1})
        face.sweep()
        face.retention.set("t", keep=timedelta(milliseconds=20))
    clock.passed_ms += 30
    _, face = opened(tmp_path / "c", clock)
    with face:
        assert face.retention.trim("t").rows == 1
