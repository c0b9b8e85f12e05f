"""A driver of the cluster suite has died before any injected fault. `for_want_of_speed` recognizes from the driver's log whether
the cause was a timeout of an overloaded machine.
"""

from __future__ import annotations

import traceback
import zipfile
from pathlib import Path

import pyspark
import pytest

from conformance.scenarios.cluster.party import for_want_of_speed
from metadata.common.errors import Unavailable
from metadata.store.zookeeper import ZooKeeperStore

LOG = "26/11/22 12:00:00 WARN TaskSetManager: Lost task 0.0: Python worker failed to connect back.\n"
DRIVER = 'Traceback (most recent call last):\n  File "run.py", line 4, in <module>\n'


def test_an_unanswering_server_is_a_death_for_want_of_speed() -> None:
    with pytest.raises(Unavailable) as raised:
        ZooKeeperStore("127.0.0.1:1", "/nowhere", connect_seconds=0.2)
    log = "".join(traceback.format_exception(raised.value))
    assert for_want_of_speed(log)
    assert for_want_of_speed(f"{LOG}{log}26/11/22 12:00:01 INFO ShutdownHookManager: Shutdown hook called\n")


def test_an_unconnected_python_worker_is_a_death_for_want_of_speed() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as core:
        code = core.read("org/apache/spark/api/python/PythonWorkerFactory.class")
    for words in ("Python worker failed to connect back.", "Timed out while waiting for the Python worker to connect back"):
        assert words.encode() in code
        assert for_want_of_speed(
            f"{DRIVER}py4j.protocol.Py4JJavaError: An error occurred.\n: org.apache.spark.SparkException: {words}\n"
        )


@pytest.mark.parametrize("log", ["", LOG, f"{LOG}{DRIVER}metadata.common.errors.TxnConflict: Transaction 0_7 is ABORTED.\n"])
def test_other_errors_are_no_death_for_want_of_speed(log: str) -> None:
    assert not for_want_of_speed(log)
