"""Start Spark's Python processes in less processor time. This module does two things.

First, it removes Spark's archives of its Python code from Python's path. Spark puts them before the folder of the installed
pyspark, which has the same code. The archives contain no compiled code, so each process would compile pyspark again, for 0.6 s. The
installed pyspark is compiled.

Second, in Spark's daemons for Python workers it imports the modules that the workers need. A daemon forks a new worker for every
plan, write and commit, and each of them would spend half a second of processor time to import pandas, pyarrow and this project. A
fork of the daemon is safe: the imported modules open no connection, and the modules of this project start no thread.

`conformance.harness.spark_start` puts the folder of this module on the PYTHONPATH of a suite's jobs. The quick start, the examples
and the benchmarks start jobs without this module, as users do.
"""

import os
import sys

home = os.environ.get("SPARK_HOME", "")
if home.rpartition("/")[0] in sys.path:
    sys.path[:] = [place for place in sys.path if not place.startswith((f"{home}/python/lib/", f"{home}/jars/"))]

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import gc
    from importlib import import_module

    # Spark runs one daemon for each kind of worker, and passes it the name of the worker's module, which is the kind.
    kind = sys.orig_argv[3] if len(sys.orig_argv) > 3 else "pyspark.worker"
    needed = {
        "pyspark.worker": (
            "pandas",
            "pyarrow.compute",
            "pyarrow.parquet",
            "pyspark.sql.conversion",
            "pyspark.sql.pandas.serializers",
            "spark_txn_sink.writer",
            "spark_txn_source.tasks",
        ),
        "pyspark.sql.worker.create_data_source": ("metadata.client.client", "spark_txn_source.options"),
        "pyspark.sql.worker.plan_data_source_read": ("spark_txn_source.batch", "spark_txn_source.stream"),
        "pyspark.sql.worker.write_into_data_source": ("spark_txn_sink.writer",),
        "pyspark.sql.worker.commit_data_source_write": ("spark_txn_sink.writer",),
        "pyspark.sql.worker.python_streaming_sink_runner": ("spark_txn_sink.writer",),
    }
    for name in ("pyspark_txnsegment", kind, *needed.get(kind, ())):
        import_module(name)
    gc.freeze()
