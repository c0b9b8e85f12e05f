"""Import the modules that Spark's Python workers need, in the daemon that forks the workers. Only the tests' Spark session has this
module on its PYTHONPATH.

Spark forks a new worker for every plan, write and commit. Without this module, each worker would spend half a second of processor
time to import pandas, pyarrow and this project. The imported modules open no connection, and the modules of this project start no
thread. Other suites (chaos, the cluster suite, the quick start) start jobs without this module, as users do.
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
