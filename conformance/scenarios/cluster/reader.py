"""The reading job. It runs a streaming query over all topics. Beside the query it runs batch reads, one after the other, unless
`--batches` is `no`. It records each micro-batch and each batch read.

    spark-submit run.py conformance.scenarios.cluster.reader --url URL --topics JSON --name NAME --checkpoint FOLDER --seen FOLDER
        --limit ROWS --batches yes|no --marks FOLDER --stop FILE

`SEEN/poll-<unique>.jsonl` and `SEEN/read-<unique>.jsonl` are the histories of one driver, for the checker.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from conformance.history.files import Writer, shortened
from conformance.history.format import Poll, Read, Row, Start
from conformance.jobs import given, run_until
from conformance.scenarios.cluster.input import COLUMNS, rows_of
from conformance.scenarios.cluster.jobs import announce

PAUSE_SECONDS = 0.5
"""The least pause between two batch reads. If the first of them took longer, the pause is as long as that read, so that the reads
leave cores to other processes.
"""


def main() -> None:
    words = given(
        "conformance.scenarios.cluster.reader", "url", "topics", "name", "checkpoint", "seen", "limit", "batches", "marks", "stop"
    )
    stop, name, topics = Path(words.stop), words.name, tuple(json.loads(words.topics))
    spark = announce(words)
    options = {"serviceUrl": words.url, "topics": words.topics, "includeMetadata": "true"}
    limit = {} if words.limit == "0" else {"maxRowsPerTrigger": words.limit}
    polls = history(words.seen, "poll", name)

    def note(rows: DataFrame, batch: int) -> None:
        began = now()
        found = taken(rows)
        polls.add(Poll(now(), began, f"{name}, stream", batch, topics, found, ordered=False))

    query = (
        spark.readStream.format("txnsegment")
        .options(**options, **limit, startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", words.checkpoint)
        .start()
    )
    reads = None
    if words.batches == "yes":
        reads = Reads(spark, options, topics, f"{name}, batches", history(words.seen, "read", name))
        reads.start()
    run_until(stop, query)
    if reads is not None:
        reads.finish()
    spark.stop()


class Reads(threading.Thread):
    """A thread that runs batch reads. When `finish` is called, the thread runs one last read and ends. An error of a read ends the
    thread, too; `finish` then raises this error.
    """

    def __init__(self, spark: SparkSession, options: dict[str, str], topics: tuple[str, ...], who: str, history: Writer) -> None:
        super().__init__(name="reads", daemon=True)
        self._spark, self._options, self._topics, self._who, self._history = spark, options, topics, who, history
        self._ending = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._read_on()
        except Exception as error:
            self._error = error

    def _read_on(self) -> None:
        before: Read | None = None
        last = False
        pause = PAUSE_SECONDS
        while not last:
            last = self._ending.wait(pause)
            began = now()
            rows = taken(self._spark.read.format("txnsegment").options(**self._options).load())
            whole = Read(now(), began, self._who, self._topics, rows, ordered=False)
            self._history.add(shortened(before, whole))
            before = whole
            pause = max(PAUSE_SECONDS, (now() - began) / 1000)

    def finish(self) -> None:
        self._ending.set()
        self.join()
        if self._error is not None:
            raise self._error


def taken(rows: DataFrame) -> tuple[Row, ...]:
    return rows_of(rows.select(*(f"`{name}`" for name in COLUMNS)).toArrow())


def history(folder: str, kind: str, name: str) -> Writer:
    return Writer(Path(folder) / f"{kind}-{uuid.uuid4().hex}.jsonl", Start(now(), name))


def now() -> float:
    return time.monotonic() * 1000


if __name__ == "__main__":
    main()
