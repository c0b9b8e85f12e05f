"""Fixtures for all tests. Each process of a run has one Spark session, which is made at its first use."""

from __future__ import annotations

import gc
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from conformance.harness.zookeeper_classes import make_archive
from conformance.servers import PulsarBroker, ZooKeeperServer
from txnsegment import Cluster, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Property tests draw the same examples in every run and have no deadline, so their result does not depend on chance or on the speed
# of the machine. `make properties` draws new examples.
settings.register_profile(
    "same-draws", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "new-draws", settings.get_profile("same-draws"), derandomize=False, print_blob=True, suppress_health_check=()
)
settings.load_profile("same-draws")


# Tests start hundreds of Python processes. Each of them would compile the modules that it imports if the environment forbade Python
# to keep compiled modules. The processes of pytest-xdist inherit this environment.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# numpy's linear algebra starts a thread for each core in each process that imports it. No process of the tests uses these threads.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

# Tests compare all records of a store. The tests of reports (`TXNSEGMENT_REPORT_SECONDS`) ask for them.
os.environ["TXNSEGMENT_REPORT_SECONDS"] = "0"

# Spark and `doctor` look for txnsegment in the Python that this variable names. No environment need be activated.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Thousands of tests and modules stay in memory. The garbage collector would go through all of them again and again.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


LONG = ("conformance/scenarios", "packaging", "spark", "metadata/store", "conformance")
"""Folders whose tests take long, because they start servers or drivers or have many cases. They run in this order."""

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first, then the long folders. Otherwise one process would work on the last long file while the
    other processes have nothing left to do.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}

    def rank(path: Path) -> int:
        place = f"{path.relative_to(HERE).as_posix()}"
        return next((number for number, folder in enumerate(LONG) if place.startswith(f"{folder}/")), len(LONG))

    items.sort(key=lambda item: (item.path not in slow, rank(item.path)))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Fail a test that leaves a cluster open. The background threads of an open cluster would warn in the logs of later tests."""
    before = set(threading.enumerate())
    yield
    left = sorted(one.name for one in set(threading.enumerate()) - before if one.name == "txnsegment-lease")
    assert not left, f"a cluster was not closed: its threads {left} still run"


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
    """A real ZooKeeper server for all tests of a process. Each test uses its own chroot."""
    make_archive()
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zk_url(zookeeper: ZooKeeperServer) -> str:
    return f"zk://{zookeeper.hosts}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def pulsar_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    """A real Pulsar 5 broker for all tests of a process (`make pulsar`). Each test creates topics of its own. A test that ends the
    broker starts it again.
    """
    with PulsarBroker(tmp_path_factory.mktemp("pulsar")) as broker:
        yield broker


@pytest.fixture(scope="session")
def pulsar(pulsar_broker: PulsarBroker) -> str:
    """Return the service URL of a real Pulsar 5 broker."""
    return pulsar_broker.url


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A real `local[2]` session on 127.0.0.1, without a UI. Its files are in pytest's temporary folder.

    All tests of a process share the session. So a test restores each configuration that it sets, and stops the queries that it
    starts. Each test has its own service URL, so that it does not see the rows of other tests. The JVM compiles little, because no
    test is long enough to gain from compiled code. The daemons that fork the Python workers have already imported the modules that
    workers need (`conformance/harness/workers`).
    """
    from pyspark.sql import SparkSession

    from conformance.harness.spark_start import FEW_ROWS, python_environment, spark_environment

    folder = tmp_path_factory.mktemp("spark")
    monkeypatch = pytest.MonkeyPatch()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # With TXNSEGMENT_SERVICE_URL all tests would use one cluster. The JVM keeps the environment of its start, so the variable is
    # removed here.
    os.environ.pop("TXNSEGMENT_SERVICE_URL", None)
    for name, value in {**spark_environment(warm=True, tasks=False), **python_environment()}.items():
        monkeypatch.setenv(name, value)
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
        .config(map=FEW_ROWS)
        .getOrCreate()
    )
    monkeypatch.undo()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
