"""The Spark driver of the suite. It streams the input files into a Pulsar topic, one transaction for each file.

    python -m conformance.pulsar_chaos.job --url URL --topic NAME --input FOLDER --checkpoint FOLDER --marks FOLDER --stop FILE
        --master MASTER --entry-rows N

The driver ends after the file `--stop` exists and all input is written. When its query runs, the driver creates a file in the
folder `--marks`, whose name is the driver's process id. An environment variable (`ADMIN_VARIABLE`) has the URL of Pulsar's REST
interface.
"""

from __future__ import annotations

import os
from pathlib import Path

from conformance.jobs import given, run_until
from conformance.scenarios.files import streamed
from conformance.scenarios.job import settings


def main() -> None:
    names = ("url", "topic", "input", "checkpoint", "marks", "stop", "master", "entry-rows")
    words = given("python -m conformance.pulsar_chaos.job", *names)
    marks = Path(words.marks)
    builder = settings(marks, words.master).config("spark.executor.memory", "512m").config("spark.task.maxFailures", 2)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        streamed(spark, Path(words.input))
        .writeStream.format("txnsegment")
        .options(serviceUrl=words.url, keyColumn="key", entryRows=words.entry_rows)
        .option("checkpointLocation", words.checkpoint)
        .outputMode("append")
        .start(words.topic)
    )
    (marks / str(os.getpid())).touch()
    run_until(Path(words.stop), query)
    spark.stop()


if __name__ == "__main__":
    main()
