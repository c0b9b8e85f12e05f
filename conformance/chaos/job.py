"""A Spark driver that is there to be killed: it streams the input files into a topic, one transaction for each pair of files.

    python -m conformance.chaos.job --url URL --topic NAME --input FOLDER --checkpoint FOLDER --marks FOLDER

It ends when all input is written. In `--marks` it leaves a file `<pid>` once its query runs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pyspark.sql import SparkSession

from conformance.chaos.files import FILES, SCHEMA
from conformance.domains import keyed


def settings(folder: Path, master: str = "local[2]") -> SparkSession.Builder:
    """A small Spark on 127.0.0.1 with its files under `folder`."""
    return (
        SparkSession.builder.master(master)
        .appName("chaos")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
    )


def session(folder: Path) -> SparkSession:
    """The session of one of our drivers."""
    made: SparkSession = settings(folder).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m conformance.chaos.job")
    for name in ("url", "topic", "input", "checkpoint", "marks"):
        arguments.add_argument(f"--{name}", required=True)
    given = arguments.parse_args()
    marks = Path(given.marks)
    spark = session(marks)
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(given.input)
        .writeStream.format("txnsegment")
        .option("serviceUrl", given.url)
        .options(**keyed(given.topic, segments="4"))
        .option("checkpointLocation", given.checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start(given.topic)
    )
    (marks / str(os.getpid())).touch()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
