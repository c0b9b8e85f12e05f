"""Fixtures for every test: one Spark session for each process of the run, made at its first use."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from conformance.servers import ZooKeeperServer
from txnsegment import Cluster, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Property tests draw the same in every run, however slow the machine is: the code alone decides. `make properties` draws anew.
settings.register_profile(
    "same-draws", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "new-draws", settings.get_profile("same-draws"), derandomize=False, print_blob=True, suppress_health_check=()
)
settings.load_profile("same-draws")


LONG = ("conformance/scenarios", "packaging", "spark", "metadata/store", "conformance")
"""Folders with servers, drivers, or files that take longer than others."""

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, then the long folders: else one process works on the last long file while the other has nothing
    left to do.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}

    def rank(path: Path) -> int:
        place = f"{path.relative_to(HERE).as_posix()}"
        return next((number for number, folder in enumerate(LONG) if place.startswith(f"{folder}/")), len(LONG))

    items.sort(key=lambda item: (item.path not in slow, rank(item.path)))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """A test closes the clusters that it opens: the background of one that stays open warns in the logs of later tests."""
    before = set(threading.enumerate())
    yield
    left = sorted(one.name for one in set(threading.enumerate()) - before if one.name == "txnsegment-lease")
    assert not left, f"a cluster was not closed: its threads {left} go on"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/cluster"


@pytest.fixture
def cluster(url: str) -> Iterator[Cluster]:
    """A real embedded cluster."""
    with connect(url) as opened:
        yield opened


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One real ZooKeeper server for all tests of a process; each test has a chroot of its own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zk_url(zookeeper: ZooKeeperServer) -> str:
    return f"zk://{zookeeper.hosts}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A real `local[2]` session, on 127.0.0.1 only, without a UI, its files under pytest's temporary folder.

    It is shared: a test that sets a configuration puts it back, and stops the queries that it started. Rows written in one test
    stay out of another's way by a service URL of its own. Its JVM compiles little, for no test lives long enough to gain by that,
    and its Python workers are forked from daemons that have imported what they need (`tests/workers`).
    """
    from pyspark.sql import SparkSession

    from conformance.harness.spark_start import spark_environment

    folder = tmp_path_factory.mktemp("spark")
    monkeypatch = pytest.MonkeyPatch()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The variable would give every test one cluster; Spark's JVM keeps the environment that it is started with.
    os.environ.pop("TXNSEGMENT_SERVICE_URL", None)
    for name, value in spark_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "workers"), prepend=os.pathsep)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("txnsegment tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    monkeypatch.undo()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
