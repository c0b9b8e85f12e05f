"""A Spark driver that writes two topics in one transaction of a Pulsar cluster, and dies where it is told to.

    python -m tests.support.pulsar_transaction URL ADMIN VERSION PLACE ONE TWO

PLACE: `writes` (after the writes, in the block), `end` (before the commit is asked for), `ended` (after it), or `never`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from spark_txn_sink.pulsar.control_topic import ControlTopic
from txnsegment import connect

if TYPE_CHECKING:
    from pulsar_protocol.client import TxnId


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(ControlTopic):
    """A control topic whose process dies before or after the commit."""

    place = ""

    def end(self, txn: TxnId, *, commit: bool) -> None:
        if commit and self.place == "end":
            die()
        super().end(txn, commit=commit)
        if commit and self.place == "ended":
            die()


def main(url: str, admin: str, version: int, place: str, topics: list[str]) -> None:
    from pyspark.sql import SparkSession

    import txnsegment.pulsar.ending as ending

    os.environ["TXNSEGMENT_PULSAR_ADMIN_URL"] = admin
    Dying.place = place
    ending.ControlTopic = Dying
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    with connect(url) as cluster, cluster.transaction(app="killed", version=version) as txn:
        for number, topic in enumerate(topics):
            rows = spark.range(10 * number, 10 * number + 10, 1, 2)
            rows.write.format("txnsegment").mode("append").options(**txn.options).option("segments", 2).save(topic)
        if place == "writes":
            die()
    sys.stdout.write("skipped\n" if txn.commit().skipped else "committed\n")
    spark.stop()


if __name__ == "__main__":
    where, rest, count, at, *names = sys.argv[1:]
    main(where, rest, int(count), at, names)
