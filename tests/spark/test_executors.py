"""Executors never open the metadata store. The tests run tasks in processes where it is an error to open a store, or to import a
module that could open one.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from conformance.processes import Found, processes
from pyspark_txnsegment import DefaultSource

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment

WORKER = '''
import pickle, sys

class Closed:
    """Refuses the backends of the metadata store and what they are made with."""

    def find_spec(self, name, path=None, target=None):
        if name == "sqlite3" or name.split(".")[0] == "kazoo" or name in (
            "metadata.store.sqlite", "metadata.store.sqlite_database", "metadata.store.zookeeper", "metadata.store.memory"
        ):
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
for name in ("sqlite3", "kazoo"):
    assert name not in sys.modules
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
    forked = [one for one in processes() if one.command()[:2] == [sys.executable, "-m"]]
    holding = {one.pid for one in (*known, *forked) if _holds(one.pid, str(here.folder))}
    assert tasks
    assert holding
    assert not tasks & holding


def _started_here() -> list[Found]:
    """Return the processes that this process started, and the processes that those started."""
    rest, known = list(processes()), []
    parents = {os.getpid()}
    while parents:
        found = [one for one in rest if one.parent in parents]
        known += found
        parents = {one.pid for one in found}
    return known


def _holds(pid: int, folder: str) -> bool:
    """Return whether a process has a database below the folder open."""
    try:
        files = [str(file.readlink()) for file in (Path("/proc") / str(pid) / "fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(file.startswith(folder) and file.endswith("metadata.db") for file in files)
