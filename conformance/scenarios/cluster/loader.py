"""The batch job under faults. It runs one batch write after the other, each as one transaction with `txnAppId` and `txnVersion`.

    spark-submit run.py conformance.scenarios.cluster.loader --url URL --topic TOPIC --name NAME --input FOLDER --progress FOLDER
        --marks FOLDER --stop FILE

The job writes the same input as the streaming job, to another topic. When the write of a version has returned, the job creates the
file `PROGRESS/<version>`. A new driver continues with the first version without such a file. This version may be committed
already. The job ends when the file `--stop` exists and all input is written.
"""

from __future__ import annotations

import time
from pathlib import Path

from conformance.domains import keyed
from conformance.jobs import LOOK_SECONDS, given
from conformance.scenarios.cluster.input import marked
from conformance.scenarios.cluster.jobs import announce

APP = "loader"


def main() -> None:
    words = given("conformance.scenarios.cluster.loader", "url", "topic", "name", "input", "progress", "marks", "stop")
    folder, progress, stop = Path(words.input), Path(words.progress), Path(words.stop)
    spark = announce(words)
    version = 0
    while True:
        while (progress / str(version)).exists():
            version += 1
        ending = stop.exists()
        file = folder / f"batch-{version:06d}.parquet"
        if file.exists():
            (
                marked(spark.read.parquet(str(file)), words.name)
                .write.format("txnsegment")
                .option("serviceUrl", words.url)
                .options(**keyed(words.topic))
                .option("txnAppId", APP)
                .option("txnVersion", version)
                .mode("append")
                .save(words.topic)
            )
            (progress / str(version)).touch()
        elif ending:
            break
        else:
            time.sleep(LOOK_SECONDS)
    spark.stop()


if __name__ == "__main__":
    main()
