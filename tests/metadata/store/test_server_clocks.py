"""The time of a ZooKeeper store is the time of the current leader. All sessions agree on it, also after a change of leader."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from conformance.servers import ZooKeeperEnsemble, ZooKeeperServer
from metadata.common.errors import StoreError
from metadata.records.paths import Key
from metadata.store.contract import decide, time_ms
from metadata.store.zookeeper import ZooKeeperStore
from metadata.store.zookeeper_time import ServerTime, learned

HOUR = 3600.0
SLOW_SECONDS = 120.0
A = Key("/a", "")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three ZooKeeper servers, whose clocks are one hour behind, right, and one hour ahead."""
    settings = {"maxSessionTimeout": f"{1000 * SLOW_SECONDS:.0f}"}
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("clocks"), settings=settings, clocks_off=(-HOUR, 0, HOUR)) as running:
        yield running


def opened(ensemble: ZooKeeperEnsemble) -> ZooKeeperStore:
    return ZooKeeperStore(ensemble.hosts, "/clocks", connect_seconds=SLOW_SECONDS, session_seconds=SLOW_SECONDS)


def off_seconds(store: ZooKeeperStore) -> float:
    """Return the difference between the store's time and the real time, in seconds."""
    return time_ms(store) / 1000 - time.time()


def other_leader(ensemble: ZooKeeperEnsemble) -> tuple[ZooKeeperServer, ZooKeeperServer]:
    """Kill the leader, wait for the next leader, and restart the killed server. Return the old leader and the new leader."""
    before = ensemble.leader()
    before.kill()
    after = ensemble.leader()
    before.start()
    return before, after


def test_after_a_change_of_leader_old_and_new_sessions_agree_on_the_time(ensemble: ZooKeeperEnsemble) -> None:
    with opened(ensemble) as old:
        session = old._session.begin()
        led = ensemble.leader()
        assert off_seconds(old) == pytest.approx(led.clock_off, abs=30)
        before, leads = other_leader(ensemble)
        assert before is led
        with opened(ensemble) as new:
            assert off_seconds(new) == pytest.approx(leads.clock_off, abs=30)
            assert off_seconds(old) == pytest.approx(leads.clock_off, abs=30)
            assert abs(off_seconds(old) - off_seconds(new)) < 5, "within the deadline allowance"
        assert old._session.begin() == session, "the session stayed the same"


def test_the_time_does_not_leap_within_a_decision(ensemble: ZooKeeperEnsemble) -> None:
    with opened(ensemble) as store:
        view = store.view()
        first, began = view.now_ms(), time.monotonic()
        other_leader(ensemble)
        while True:
            try:
                view.get(A)
                break
            except StoreError:
                continue
        assert view.now_ms() - first == pytest.approx((time.monotonic() - began) * 1000, abs=500)
        assert off_seconds(store) == pytest.approx(ensemble.leader().clock_off, abs=30), "the next decision has the leader's time"


def test_the_time_is_measured_again_after_a_while(zk_url: str) -> None:
    """A leader's clock may be set while it leads. So a session measures the time again after `time_seconds`."""
    with ZooKeeperStore.from_url(zk_url) as store:
        first = decide(store, lambda view: view.now_ms())
        known = store._session._measured
        assert known is not None
        store._session.time_seconds = 0.0
        assert decide(store, lambda view: view.now_ms()) >= first
        assert store._session._measured is not None
        assert store._session._measured.at > known.at


def test_an_answer_that_took_long_does_not_set_the_time_back() -> None:
    known = ServerTime(7, 1_000_000, 10.0)
    late = ServerTime(7, 1_001_700, 12.0)  # the request was sent at 11.5, stamped by the server at 11.7, and answered at 12
    assert learned(known, late, 11.5, "h") == ServerTime(7, 1_002_000, 12.0)
    assert learned(known, ServerTime(7, 1_002_100, 12.0), 11.5, "h").ms == 1_002_100, (
        "the leader's clock is ahead of what was known"
    )
    assert learned(known, ServerTime(7, 1_001_400, 12.0), 11.5, "h").ms == 1_001_400, "the leader's clock was set"
    assert learned(None, late, 11.5, "h") == late
