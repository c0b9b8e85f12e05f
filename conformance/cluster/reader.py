"""A reader: a streaming query over all topics that notes each micro-batch, and batch reads beside it, one after the other.

    spark-submit run.py conformance.cluster.reader --url URL --topics JSON --checkpoint FOLDER --seen FOLDER
        --limit ROWS --batches yes|no --marks FOLDER --stop FILE

`SEEN/poll-<batch>-<unique>.parquet` holds the rows of one run of a micro-batch, `SEEN/read-<unique>.parquet` those of a batch
read; began and ended (`time.monotonic()` in ms) are in the file's metadata. Every batch read is judged here (`SEEN/wrong-<unique>`
says what was wrong), and is kept only when the rows have grown by a third since the last one kept.
"""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from conformance.cluster.checks import COLUMNS, partial, vanished
from conformance.cluster.jobs import announce
from conformance.jobs import given, run_until

GROWTH = 4 / 3
PAUSE_SECONDS = 0.5
"""Between two batch reads at least; else as long as the last one took, so that they leave the cores to others."""


def main() -> None:
    words = given("conformance.cluster.reader", "url", "topics", "checkpoint", "seen", "limit", "batches", "marks", "stop")
    stop = Path(words.stop)
    spark = announce(words)
    options = {"serviceUrl": words.url, "topics": words.topics, "includeMetadata": "true"}
    limit = {} if words.limit == "0" else {"maxRowsPerTrigger": words.limit}

    def note(rows: DataFrame, batch: int) -> None:
        began = now()
        keep(Path(words.seen), f"poll-{batch}", taken(rows), began)

    query = (
        spark.readStream.format("txnsegment")
        .options(**options, **limit, startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", words.checkpoint)
        .start()
    )
    reads = Reads(spark, options, Path(words.seen)) if words.batches == "yes" else None
    if reads is not None:
        reads.start()
    run_until(stop, query)
    if reads is not None:
        reads.finish()
    spark.stop()


class Reads(threading.Thread):
    """Batch reads until `finish`; one more then. An error ends it, and is raised by `finish`."""

    def __init__(self, spark: SparkSession, options: dict[str, str], seen: Path) -> None:
        super().__init__(name="reads", daemon=True)
        self._spark, self._options, self._seen = spark, options, seen
        self._ending = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._read_on()
        except Exception as error:
            self._error = error

    def _read_on(self) -> None:
        before: pa.Table | None = None
        kept = 0
        last = False
        pause = PAUSE_SECONDS
        while not last:
            last = self._ending.wait(pause)
            began = now()
            rows = taken(self._spark.read.format("txnsegment").options(**self._options).load())
            wrong = [*partial(rows), *(vanished(before, rows) if before is not None else [])]
            if wrong:
                (self._seen / f"wrong-{uuid.uuid4().hex}").write_text("\n".join(wrong))
            if wrong or last or rows.num_rows > kept * GROWTH:
                keep(self._seen, "read", rows, began)
                kept = rows.num_rows
            with (self._seen / "reads").open("a") as log:
                log.write(f"{began} {now()} {rows.num_rows}\n")
            before = rows
            pause = max(PAUSE_SECONDS, (now() - began) / 1000)

    def finish(self) -> None:
        self._ending.set()
        self.join()
        if self._error is not None:
            raise self._error


def taken(rows: DataFrame) -> pa.Table:
    return rows.select(*(f"`{name}`" for name in COLUMNS)).toArrow()


def keep(folder: Path, name: str, rows: pa.Table, began: float) -> None:
    """Whole under its name at once."""
    made = folder / f".{uuid.uuid4().hex}"
    pq.write_table(rows.replace_schema_metadata({"began": repr(began), "ended": repr(now())}), made)
    made.rename(folder / f"{name}-{uuid.uuid4().hex}.parquet")


def now() -> float:
    return time.monotonic() * 1000


if __name__ == "__main__":
    main()
