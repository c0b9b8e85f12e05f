"""A Spark driver that tests kill. It streams the input files into a topic, one transaction for each file.

    python -m conformance.scenarios.job --url URL --topic NAME --input FOLDER --checkpoint FOLDER --marks FOLDER --stop FILE

The driver ends after the file `--stop` exists and all input is written. When its query runs, it creates the file `<pid>` in
`--marks`.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from conformance.domains import keyed
from conformance.harness.spark_start import FEW_ROWS
from conformance.jobs import given, run_until
from conformance.scenarios.files import streamed


def settings(folder: Path, master: str = "local[2]") -> SparkSession.Builder:
    """Return the settings of a small Spark on 127.0.0.1 with its files under `folder`."""
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
    """Return the Spark session of a driver of the suite."""
    made: SparkSession = settings(folder).config(map=FEW_ROWS).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    words = given("python -m conformance.scenarios.job", "url", "topic", "input", "checkpoint", "marks", "stop")
    marks = Path(words.marks)
    spark = session(marks)
    query = (
        streamed(spark, Path(words.input))
        .writeStream.format("txnsegment")
        .option("serviceUrl", words.url)
        .options(**keyed(words.topic, segments="4"))
        .option("checkpointLocation", words.checkpoint)
        .outputMode("append")
        .start(words.topic)
    )
    (marks / str(os.getpid())).touch()
    run_until(Path(words.stop), query)
    spark.stop()


if __name__ == "__main__":
    main()
