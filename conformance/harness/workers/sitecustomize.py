"""Start Spark's Python processes in less processor time. This module does two things.

First, it removes Spark's archives of its Python code from Python's path. Spark puts them before the folder of the installed
pyspark, which has the same code. The archives contain no compiled code, so each process would compile pyspark again, for 0.6 s. The
installed pyspark is compiled. Python also forgets the archives: otherwise it would read their lists of files again whenever Spark
calls `importlib.invalidate_caches`, which Spark does before each task, for 0.04 s.

Second, it lets Spark's Python processes import their modules earlier: once for all processes of a job, or once for each daemon
(`warm`, `calling`). A daemon forks a new worker for every plan, write and commit, and each of them would spend half a second of
processor time to import pandas, pyarrow and this project. A fork of the daemon is safe: the imported modules open no connection,
and the modules of this project start no thread.

`conformance.harness.spark_start` puts the folder of this module on the PYTHONPATH of a suite's jobs. The quick start, the examples
and the benchmarks start jobs without this module, as users do.
"""

import os
import sys

home = os.environ.get("SPARK_HOME", "")
if home.rpartition("/")[0] in sys.path:
    archives = (f"{home}/python/lib/", f"{home}/jars/")
    sys.path[:] = [place for place in sys.path if not place.startswith(archives)]
    for place in [place for place in sys.path_importer_cache if place.startswith(archives)]:
        del sys.path_importer_cache[place]

match sys.orig_argv[1:3]:
    case ["-m", "pyspark.daemon" | "pyspark.sql.streaming.python_streaming_source_runner"]:
        warm_python = os.environ.get("TXNSEGMENT_WARM_PYTHON")
        if warm_python == "all" or (warm_python == "all but tasks" and sys.orig_argv[3:] != ["pyspark.worker"]):
            import calling  # type: ignore[import-not-found]  # found by the folder of this file, which is on PYTHONPATH

            calling.run_forked()
        import warm  # type: ignore[import-not-found]

        warm.preload(sys.orig_argv[2:])
