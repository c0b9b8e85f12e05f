"""A batch write whose tasks need more than one attempt, because an attempt is slow, or fails while it stages rows.

    python -m conformance.scenarios.attempts --url URL --topic NAME --folder FOLDER --trouble retry|speculation

With `retry`, both tasks fail once, after they have handed most of their rows to the sink. With `speculation`, one task sleeps
before its last row, so that Spark starts a second attempt of this task on another executor. The slow attempt continues until Spark
kills it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

import pyspark
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from conformance.harness.spark_start import spark_class_path
from conformance.scenarios.driver import SCHEMA
from conformance.scenarios.history import ROWS, written
from conformance.scenarios.job import settings
from conformance.servers import free_ports
from txnsegment.java import find_java

STRAGGLING_SECONDS = 25


class Troubled:
    """A function that Spark applies to the `seq` of each row. At its last row, each task attempt creates a file
    `attempt-<partition>-<attempt>` in `folder`, and may then fail or sleep, as `trouble` says.
    """

    def __init__(self, folder: Path, trouble: str) -> None:
        self._folder, self._trouble = str(folder), trouble

    def __call__(self, seq: int) -> int:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        if seq % ROWS == ROWS - 1:
            (Path(self._folder) / f"attempt-{partition}-{attempt}").touch()
            if attempt == 0 and self._trouble == "retry":
                raise RuntimeError("this attempt fails after it has handed rows to the sink")
            if (partition, attempt) == (1, 0) and self._trouble == "speculation":
                time.sleep(STRAGGLING_SECONDS)
        return seq


def two_hosts(folder: Path) -> str:
    """Start a standalone Spark master and two Spark workers. Return the master's URL. The started processes belong to this
    process's session (`conformance.processes`) and are killed with it.

    The workers have different loopback addresses, because Spark never runs a speculative attempt on the host of the first attempt.
    """
    home = Path(pyspark.__file__).parent
    (core,) = (home / "jars").glob("spark-core_*.jar")
    # Spark's own start scripts would set SPARK_SCALA_VERSION, but this function does not use them.
    scala = core.name.removeprefix("spark-core_").split("-")[0]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala}
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    master = ("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    workers = [
        (
            "worker.Worker",
            "--host",
            host,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(folder / host),
            url,
        )
        for host in ("127.0.0.1", "127.0.0.2")
    ]
    for name, *words in (master, *workers):
        command = [str(find_java()), "-Xmx256m", "-cp", spark_class_path(), f"org.apache.spark.deploy.{name}", *words]
        environment["SPARK_LOCAL_IP"] = words[1]
        subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    return url


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m conformance.scenarios.attempts")
    for name in ("url", "topic", "folder", "trouble"):
        arguments.add_argument(f"--{name}", required=True)
    given = arguments.parse_args()
    retry = given.trouble == "retry"
    folder = Path(given.folder)
    builder = settings(folder, "local[2,3]" if retry else two_hosts(folder))
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 5)
    if not retry:
        builder = (
            builder.config("spark.speculation", "true")
            .config("spark.executor.memory", "512m")
            .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
            .config("spark.cores.max", "2")
            .config("spark.locality.wait", "0")
            .config("spark.speculation.quantile", "0.1")
            .config("spark.speculation.multiplier", "1.1")
            .config("spark.speculation.interval", "50ms")
            .config("spark.speculation.minTaskRuntime", "100ms")
        )
    spark: SparkSession = builder.getOrCreate()
    troubled = F.udf(Troubled(folder, given.trouble), "long")
    rows = [row for batch in (0, 1) for row in written(batch)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), SCHEMA).withColumn("seq", troubled("seq"))
    frame.write.format("txnsegment").option("serviceUrl", given.url).option("segments", 4).mode("append").save(given.topic)
    spark.stop()


if __name__ == "__main__":
    main()
