"""A Spark driver that tests kill. It runs a stream with a subscription, and never finishes the first micro-batch.

    python -m conformance.scenarios.holding --url URL --source NAME --subscription NAME --folder FOLDER

Its checkpoint is `checkpoint` in the folder. Spark logs the end offset of the micro-batch and runs it. Then the job writes the file
`planned` to the folder, with the number of rows in the micro-batch, and waits for ever.
"""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import DataFrame

from conformance.jobs import given
from conformance.scenarios.job import session


def main() -> None:
    words = given("python -m conformance.scenarios.holding", "url", "source", "subscription", "folder")
    folder = Path(words.folder)

    def hold(rows: DataFrame, batch: int) -> None:
        (folder / "planned").write_text(str(rows.count()))
        threading.Event().wait()

    stream = session(folder).readStream.format("txnsegment").options(serviceUrl=words.url, subscription=words.subscription)
    query = stream.load(words.source).writeStream.foreachBatch(hold).option("checkpointLocation", str(folder / "checkpoint"))
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
