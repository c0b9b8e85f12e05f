"""Imports the modules of Spark's Python processes before they are needed, in each daemon or once for all processes of a job.

`preload` imports the modules that the workers of one daemon need. `serve` is the warm process. It imports the modules of all kinds
of workers. It then forks a child for each caller (`calling`), and the child does the work of the caller. The warm process ends two
seconds after its last child.
"""

import ast
import gc
import os
import runpy
import select
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

IDLE_SECONDS = 2.0

TASKS = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "spark_txn_sink.writer",
    "spark_txn_source.tasks",
)
NEEDED: dict[str, tuple[str, ...]] = {
    "pyspark.worker": TASKS,
    "pyspark.sql.worker.lookup_data_sources": (),
    "pyspark.sql.worker.create_data_source": ("metadata.client.client", "spark_txn_source.options"),
    "pyspark.sql.worker.plan_data_source_read": ("spark_txn_source.batch", "spark_txn_source.stream"),
    "pyspark.sql.worker.write_into_data_source": ("spark_txn_sink.writer", "spark_txn_sink.plan"),
    "pyspark.sql.worker.commit_data_source_write": ("spark_txn_sink.writer", "spark_txn_sink.commit"),
    "pyspark.sql.worker.python_streaming_sink_runner": ("spark_txn_sink.writer", "spark_txn_sink.plan", "spark_txn_sink.commit"),
}
"""The modules that the workers of each kind import. The kind of a worker is the name of its main module."""

PREBUILT = "conformance.harness.prebuilt"
"""The module that the warm process imports last."""


def preload(words: Sequence[str]) -> None:
    """Import the modules for the workers of a daemon. `words`: the arguments after `python -m`. Other processes import nothing."""
    if words[0] == "pyspark.daemon":
        # Spark runs one daemon for each kind of worker
        kind = words[1] if len(words) > 1 else "pyspark.worker"
        gc.disable()  # imports leave little to collect
        for name in ("pyspark_txnsegment", kind, *NEEDED.get(kind, ())):
            import_module(name)
        gc.freeze()
        gc.enable()


def serve(listening: socket.socket) -> NoReturn:
    """Import the modules, then fork a child for each request. Ends this process."""
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        gc.disable()  # imports leave little to collect
        for kind, needed in NEEDED.items():
            for name in ("pyspark_txnsegment", kind, *needed):
                import_module(name)
        import_module(PREBUILT)
        gc.enable()
        _accept(listening)
        status = 0
    finally:
        os._exit(status)


def _accept(listening: socket.socket) -> None:
    """Fork a child for each request. Return when there has been neither a child nor a request for IDLE_SECONDS."""
    children: set[int] = set()
    last = time.monotonic()
    while children or time.monotonic() < last + IDLE_SECONDS:
        ready, _, _ = select.select([listening], [], [], 0.5)
        if ready:
            connection, _ = listening.accept()
            child = os.fork()
            if child == 0:
                listening.close()
                _become(connection)
            children.add(child)
            connection.close()
        while children and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            children.discard(ended)
            last = time.monotonic()


def _become(connection: socket.socket) -> NoReturn:
    """Do the work of the process that has sent the request. Ends this process."""
    status = 1
    try:
        length, files, _, _ = socket.recv_fds(connection, 4, 3)
        request = b""
        while len(request) < int.from_bytes(length, "big"):
            request += connection.recv(65536)
        (module, *words), path, environment, folder = ast.literal_eval(request.decode())
        for standard, file in enumerate(files):
            os.dup2(file, standard)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        sys.argv = [module, *words]
        connection.sendall(b"1")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
