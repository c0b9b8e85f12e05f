"""The Spark driver of a soak: a writing stream, a reading stream, and a stream over a topic without writers. Once a minute it
runs the JVM's garbage collection and records the remaining heap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.longevity.words import IDLE, PERIOD, TOPIC, WENT_ON, given, stop_file
from conformance.scenarios.job import settings

ROWS_PER_SECOND = 5
HEAP_EVERY = 60.0


def main() -> None:
    url, folder = given("benchmarks.longevity.job")
    spark: SparkSession = settings(folder / "spark", "local[2]").config("spark.driver.memory", "768m").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    starts = {"writing": _writing(spark, url, folder), "reading": _reading(spark, url, folder, TOPIC)}
    starts["idle"] = _reading(spark, url, folder, IDLE)
    queries = {name: start() for name, start in starts.items()}
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    with (folder / "heap.csv").open("w") as heap:
        heap.write("s,heap\n")
        began = time.monotonic()
        looked = began - HEAP_EVERY
        while not stop_file(folder).exists():
            for name, query in queries.items():
                if not query.isActive:  # overload can end a query, which is then started again, as a user's supervisor does
                    print(f"{WENT_ON} the {name} stream: {query.exception()}", flush=True)
                    queries[name] = starts[name]()
            if time.monotonic() - looked >= HEAP_EVERY:
                looked = time.monotonic()
                spark._jvm.java.lang.System.gc()
                heap.write(f"{looked - began:.1f},{runtime.totalMemory() - runtime.freeMemory()}\n")
                heap.flush()
            time.sleep(1)
    for query in queries.values():
        query.stop()
    spark.stop()


def _writing(spark: SparkSession, url: str, folder: Path) -> Callable[[], StreamingQuery]:
    rate = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
    rows = rate.selectExpr("concat('k', value % 16) AS key", "value", "timestamp AS at")
    to = rows.writeStream.format("txnsegment").option("serviceUrl", url).outputMode("append")
    to = to.option("checkpointLocation", str(folder / "checkpoints" / "written")).trigger(processingTime=f"{PERIOD:g} seconds")
    return lambda: to.start(TOPIC)


def _reading(spark: SparkSession, url: str, folder: Path, topic: str) -> Callable[[], StreamingQuery]:
    rows = spark.readStream.format("txnsegment").option("serviceUrl", url).option("startingOffsets", "latest").load(topic)
    to = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoints" / topic))
    to = to.trigger(processingTime=f"{PERIOD:g} seconds")
    return lambda: to.start()


if __name__ == "__main__":
    main()
