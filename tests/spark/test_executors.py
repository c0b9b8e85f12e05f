"""Executors never open the metadata store. The tests run tasks in processes where it is an error to open a store, or to import a
module that could open one. It is also an error there to import a module that only the driver's processes need: a new worker would
spend more time on these imports than on a small task.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from conformance.processes import Found, processes
from pyspark_txnsegment import DefaultSource
from spark_txn_source.task_reader import only_pickled

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment

WORKER = '''
import pickle, sys

class Closed:
    """Refuses the metadata store, what its backends are made with, and what only plans and commits need."""

    def find_spec(self, name, path=None, target=None):
        refused = (
            *("sqlite3", "kazoo", "pydantic", "prometheus_client", "pulsar_protocol", "txnsegment"),
            *("metadata.store", "metadata.client", "metadata.cluster", "metadata.log", "metadata.read", "metadata.write"),
            *("spark_txn_sink.plan", "spark_txn_sink.options", "spark_txn_sink.commit", "spark_txn_sink.pulsar"),
            *("spark_txn_source.stream", "spark_txn_source.batch", "spark_txn_source.options", "spark_txn_source.pulsar"),
        )
        if any(name == one or name.startswith(f"{one}.") for one in refused):
            raise AssertionError(f"a task imports {name}")

for name in [n for n in sys.modules if n.startswith(("sqlite3", "kazoo", "metadata"))]:
    raise AssertionError(f"{name} is there already")
sys.meta_path.insert(0, Closed())

import pyarrow
kind, one, argument = pickle.load(sys.stdin.buffer)
if kind == "write":
    answer = one.write(iter(argument))
else:
    answer = [batch.to_pylist() for batch in one.read(argument)]
ours = [n for n in sys.modules if n.split(".")[0] in ("metadata", "ledgers", "spark_txn_source", "spark_txn_sink")]
assert len(ours) <= 36, sorted(ours)
pickle.dump(answer, sys.stdout.buffer)
'''


def in_a_task(*work: object) -> object:
    """Run the work in a worker process. The process gets the reader or writer pickled, as from Spark. Return the answer of the
    process.
    """
    found = subprocess.run(
        [sys.executable, "-c", WORKER], input=pickle.dumps(work), capture_output=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert found.returncode == 0, found.stderr.decode()
    return pickle.loads(found.stdout)


def test_tasks_run_where_no_store_can_be_opened(here: Deployment) -> None:
    schema = here.spark.createDataFrame([], "k string, n bigint").schema
    sink = {"serviceUrl": here.url, "topic": "t", "keyColumn": "k", "segments": "4", "txnAppId": "app"}
    batch = pa.record_batch({"k": [f"k{i}" for i in range(100)], "n": list(range(100))})
    writer = DefaultSource(sink).streamWriter(schema, overwrite=False)
    writer.commit([in_a_task("write", writer, [batch])], 0)
    batch_writer = DefaultSource({**sink, "txnVersion": "1", "txnAppId": "other"}).writer(schema, overwrite=False)
    batch_writer.commit([in_a_task("write", batch_writer, [batch, batch])])
    source = {"serviceUrl": here.url, "topic": "t"}
    reader = DefaultSource(source).reader(DefaultSource(source).schema())
    rows = [row["n"] for p in reader.partitions() for some in in_a_task("read", reader, p) for row in some]  # type: ignore[attr-defined]
    assert sorted(rows) == sorted(list(range(100)) * 3)
    streaming = DefaultSource({**source, "startingOffsets": "earliest", "includeMetadata": "true"})
    stream = streaming.streamReader(streaming.schema())
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    rows = [row["n"] for p in stream.partitions(start, end) for some in in_a_task("read", stream, p) for row in some]  # type: ignore[attr-defined]
    stream.stop()
    assert sorted(rows) == sorted(list(range(100)) * 3)


def test_only_the_drivers_processes_have_the_store_open(here: Deployment) -> None:
    """The processes that run tasks, which a daemon for `pyspark.worker` forks, do not open the cluster's database. Other
    processes of the driver do. The warm process forks those (`conformance/harness/workers`), and the driver of another test process
    of this session may have started the warm process.
    """
    here.write(here.spark.range(0, 1000, 1, 4), segments="2", keyColumn="id")
    assert here.read().count() == 1000
    known = _started_here()
    tasks = {one.pid for one in known if "pyspark.worker" in one.command()}
    holding = _holding(here)
    assert tasks
    assert holding
    assert not tasks & holding


def test_the_process_that_pickles_the_reader_of_a_stream_opens_no_store(here: Deployment) -> None:
    """Spark makes the reader of a stream in two processes. The process of the query plans with it. Another process, in the first
    micro-batch, only pickles it for the tasks.
    """
    here.write(here.spark.range(10))
    rows = here.spark.readStream.format("txnsegment").options(serviceUrl=here.url, startingOffsets="earliest").load("t")
    holding = _holding(here)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(here.folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(one["numInputRows"] for one in query.recentProgress) == 10
    ended = time.monotonic() + 60
    while _holding(here) - holding and time.monotonic() < ended:  # the process of the query is ending
        time.sleep(0.01)
    assert not _holding(here) - holding


@pytest.mark.parametrize(
    ("arguments", "only"),
    [
        (["/site/pyspark/daemon.py", "pyspark.sql.worker.plan_data_source_read"], True),
        (["pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"], True),
        (["/site/pyspark/daemon.py", "pyspark.sql.worker.create_data_source"], False),
        (["/site/pyspark/sql/worker/plan_data_source_read.py"], False),
        (["/site/pyspark/sql/streaming/python_streaming_source_runner.py"], False),
        (["job.py", "pyspark.sql.worker.plan_data_source_read"], False),
        ([], False),
    ],
)
def test_a_reader_without_a_plan_is_made_only_where_spark_pickles_it(arguments: list[str], only: bool) -> None:
    assert only_pickled(arguments) is only


def _started_here() -> list[Found]:
    """Return the processes that this process started, and the processes that those started."""
    rest, known = list(processes()), []
    parents = {os.getpid()}
    while parents:
        found = [one for one in rest if one.parent in parents]
        known += found
        parents = {one.pid for one in found}
    return known


def _holding(here: Deployment) -> set[int]:
    """Return the processes that have the cluster's database open."""
    return {one.pid for one in (*_started_here(), *_forked()) if _holds(one.pid, str(here.folder))}


def _forked() -> list[Found]:
    """Return the processes that may be workers, whoever started them."""
    return [one for one in processes() if one.command()[:2] == [sys.executable, "-m"]]


def _holds(pid: int, folder: str) -> bool:
    """Return whether a process has a database below the folder open."""
    try:
        files = [str(file.readlink()) for file in (Path("/proc") / str(pid) / "fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(file.startswith(folder) and file.endswith("metadata.db") for file in files)
