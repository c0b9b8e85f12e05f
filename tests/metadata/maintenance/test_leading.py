"""Leader election on the sessions of each store. One candidate leads. When it ends or is killed, another candidate leads."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ledgers.storage import LedgerStorage
from metadata.cluster.cluster import Cluster
from metadata.maintenance.leading import Leadership
from metadata.records import paths
from metadata.records.cluster_records import Leader, Settings
from metadata.store import open_store
from metadata.store.contract import MetadataStore, look

URLS = ["memory", "sqlite", "zookeeper"]
KILLED = """
import sys
from tests.support.short_leases import open_mortal
from tests.metadata.maintenance.test_leading import candidate
with candidate(sys.argv[1], open_mortal) as leadership:
    print(leadership.leads(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = request.param
    if kind == "zookeeper":
        found: str = request.getfixturevalue("zk_url")
        return found
    return f"memory://{uuid.uuid4().hex}" if kind == "memory" else f"file://{tmp_path}/store"


@contextmanager
def candidate(url: str, opener: Callable[[str], MetadataStore] = open_store) -> Iterator[Leadership]:
    """Yield a candidate for the lead, which has its own session."""
    with opener(url) as store:
        yield Leadership(Cluster(url, store, LedgerStorage("file:///nothing/is/kept/here"), Settings()))


def until_it_leads(other: Leadership, seconds: float = 60) -> bool:
    """Wait until the candidate leads. Return False if it does not lead within `seconds`. A session that lapses wakes no watch, so
    the function polls as well.
    """
    woken, deadline = threading.Event(), time.monotonic() + seconds
    with ExitStack() as stack:
        watch = other.cluster.store.watch(paths.leader(), woken.set)
        stack.callback(watch.close)
        while not other.leads():
            if time.monotonic() > deadline:
                return False
            woken.wait(0.2)
            woken.clear()
    return True


@pytest.mark.parametrize("url", URLS, indirect=True)
def test_one_candidate_leads_until_it_ends_or_resigns(url: str) -> None:
    with candidate(url) as second, candidate(url) as third:
        with candidate(url) as first:
            assert first.leads()
            assert not second.leads()
            assert first.leads()
            record = look(first.cluster.store, paths.leader())
            assert record is not None
            assert Leader.of(record).token == first.token
        assert until_it_leads(second)
        assert not third.leads()
        third.resign()  # this call has no effect, because the candidate does not lead
        assert second.leads()
        second.resign()
        assert third.leads()
        assert not second.leads()


@pytest.mark.parametrize("url", URLS[1:], indirect=True)
def test_a_leader_that_is_killed_is_replaced(url: str) -> None:
    with candidate(url) as other:
        command = [sys.executable, "-c", KILLED, url]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        ) as leader:
            assert leader.stdout is not None
            try:
                assert leader.stdout.readline() == "True\n"
                assert not other.leads()
            finally:
                leader.kill()
        assert until_it_leads(other)


@pytest.mark.parametrize("url", URLS, indirect=True)
def test_one_of_many_concurrent_candidates_leads(url: str) -> None:
    with ExitStack() as stack:
        several = [stack.enter_context(candidate(url)) for _ in range(6)]
        answers = list[bool]()
        threads = [threading.Thread(target=lambda one=one: answers.append(one.leads())) for one in several]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [False] * 5 + [True]
        assert [one.leads() for one in several].count(True) == 1
