"""A Spark streaming query that records each of its micro-batches. Scenarios run it as a reader beside their writers.

    python -m conformance.scenarios.follower --url URL --topic NAME --folder FOLDER --stop FILE

The file `FOLDER/running` exists once the query has read all rows that it found at its start. The file `FOLDER/seen` has a line of
JSON for each micro-batch. After the file `--stop` exists, the query reads all remaining rows and ends.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from pyspark.sql import DataFrame

from conformance.scenarios.job import session

COLUMNS = ("key", "seq", "batch", "of", "__segment", "__messageId", "__txnId")


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m conformance.scenarios.follower")
    for name in ("url", "topic", "folder", "stop"):
        arguments.add_argument(f"--{name}", required=True)
    given = arguments.parse_args()
    folder, stop = Path(given.folder), Path(given.stop)
    spark = session(folder)
    with (folder / "seen").open("a") as seen:

        def note(rows: DataFrame, batch: int) -> None:
            found = [[row[name] for name in COLUMNS] for row in rows.select(*(f"`{c}`" for c in COLUMNS)).collect()]
            seen.write(json.dumps({"at_ms": time.monotonic() * 1000, "batch": batch, "rows": found}) + "\n")
            seen.flush()

        query = (
            spark.readStream.format("txnsegment")
            .option("serviceUrl", given.url)
            .option("includeMetadata", True)
            .option("maxPartitionBytes", "128m")  # one task reads all; four tasks with a few rows each would take twice as long
            .option("startingOffsets", "earliest")
            .load(given.topic)
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        (folder / "running").touch()
        while not stop.exists() and query.isActive:
            query.awaitTermination(0.1)
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
