"""The streaming job under faults. Each input file becomes one micro-batch, which is one transaction on the topic.

    spark-submit run.py conformance.scenarios.cluster.writer --url URL --topic TOPIC --name NAME --input FOLDER --checkpoint FOLDER
        --marks FOLDER --stop FILE

The job runs until `--stop` exists and all input is written. The file `MARKS/application` has the job's Spark application id.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from conformance.domains import keyed
from conformance.jobs import given, run_until
from conformance.scenarios.cluster.input import SCHEMA, marked
from conformance.scenarios.cluster.jobs import announce


def main() -> None:
    words = given("conformance.scenarios.cluster.writer", "url", "topic", "name", "input", "checkpoint", "marks", "stop")
    spark = announce(words)
    run_until(Path(words.stop), start(spark, words))
    spark.stop()


def start(spark: SparkSession, words: argparse.Namespace) -> StreamingQuery:
    # One task reads each file, so the rows of a key keep their order through the shuffle. Two tasks write.
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(words.input)
    rows = marked(rows, words.name).repartition(2, "key")
    return (
        rows.writeStream.format("txnsegment")
        .option("serviceUrl", words.url)
        .options(**keyed(words.topic))
        .option("checkpointLocation", words.checkpoint)
        .outputMode("append")
        .start(words.topic)
    )


if __name__ == "__main__":
    main()
