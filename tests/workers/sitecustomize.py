"""On PYTHONPATH of the tests' Spark session: the daemon that forks Spark's Python workers has imported what each of them needs.

Spark forks a new worker for every plan, write and commit, and each takes half a second of the processor to import pandas, pyarrow
and this project. Whatever is imported here is at rest: no connection, no thread of ours. Jobs that other suites start (chaos, the
cluster suite, the quick start) import everything anew, as a user's do.
"""

import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import gc
    from importlib import import_module

    for name in (
        "pandas",
        "pyarrow.compute",
        "pyarrow.parquet",
        "pyspark.sql.conversion",
        "pyspark.sql.pandas.serializers",
        "pyspark.sql.pandas.types",
        "pyspark_txnsegment",
        "metadata.client.client",
        "spark_txn_sink.commit",
        "spark_txn_sink.writer",
        "spark_txn_source.batch",
        "spark_txn_source.stream",
        "spark_txn_source.tasks",
        *sys.orig_argv[3:4],
    ):
        import_module(name)
    gc.freeze()
