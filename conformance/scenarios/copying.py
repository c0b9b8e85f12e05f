"""A Spark driver that tests kill. It copies the rows of one topic to another topic. It reads them under a subscription, with
`--rows` as the soft limit of rows in a micro-batch.

    python -m conformance.scenarios.copying --url URL --source NAME --target NAME --subscription NAME --rows N --folder FOLDER

The driver runs until it is killed. Its checkpoint is `checkpoint` in the folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from conformance.scenarios.job import session


def copying(
    spark: SparkSession, url: str, source: str, target: str, subscription: str, checkpoint: Path, rows: int
) -> DataStreamWriter:
    """Return the query that copies the rows, not yet started. `rows`: the soft limit of rows in a micro-batch."""
    given = (
        spark.readStream.format("txnsegment")
        .option("serviceUrl", url)
        .option("subscription", subscription)
        .option("maxRowsPerTrigger", rows)
        .load(source)
    )
    return (
        given.writeStream.format("txnsegment")
        .option("serviceUrl", url)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
    )


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m conformance.scenarios.copying")
    for name in ("url", "source", "target", "subscription", "rows", "folder"):
        arguments.add_argument(f"--{name}", required=True)
    given = arguments.parse_args()
    folder = Path(given.folder)
    checkpoint = folder / "checkpoint"
    query = copying(session(folder), given.url, given.source, given.target, given.subscription, checkpoint, int(given.rows))
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
