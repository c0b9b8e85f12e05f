"""A Spark program that moves the unacknowledged rows of one Pulsar topic to another in one transaction, and is killed where it is
told to.

    python -m tests.support.pulsar_spark_etl URL ADMIN SOURCE TARGET CALL APP

CALL: `read` (`txn.read`) or `rows` (`txn.acknowledge_rows`). APP: the application of version 1, or `-` for none. The variable FATE,
such as `before acks Done`, names the step before or after which it is killed: the records `Begin` and `Done` of the log of
acknowledgements (`acks`) and of the control topic (`control`), `read` (the rows are read), `written` (the new rows are sent),
`sent` (the record of where they are), `end` (the commit), `cursors` (those of the broker).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.layout import Position
from pulsar_protocol.subscription import Subscription
from spark_txn_sink.pulsar import many_topics
from spark_txn_sink.pulsar.owned_log import OwnedLog
from txnsegment import connect

RECORDS: Final = ("acks Begin", "control Begin", "control Done", "acks Done")
FATES: Final = (
    *(f"{when} {record}" for record in RECORDS for when in ("before", "after")),
    *("after read", "after written", "after sent", "before end", "after end", "before cursors"),
)


def meets(when: str, step: str) -> None:
    if os.environ.get("FATE") == f"{when} {step}":
        os.kill(os.getpid(), signal.SIGKILL)


def fated(owner: Any, name: str, step: Callable[..., str | None]) -> None:
    """Let a function of the product meet the fate. `step`: names the step, by the arguments of the call; None: no step."""
    real = getattr(owner, name)

    def call(*args: Any, **named: Any) -> Any:
        here = step(*args, **named)
        if here is not None:
            meets("before", here)
        found = real(*args, **named)
        if here is not None:
            meets("after", here)
        return found

    setattr(owner, name, call)


def record_of(log: OwnedLog[Any], record: Any, txn: TxnId | None = None) -> str:
    return f"{'acks' if '__txnsegment_acks_' in log.name else 'control'} {type(record).__name__}"


def end_of(client: PulsarClient, txn: TxnId, *, commit: bool) -> str | None:
    return "end" if commit else None


def cursors_of(subscription: Subscription, places: dict[str, Position]) -> str:
    return "cursors"


def main(url: str, admin: str, source: str, target: str, call: str, app: str) -> None:
    from pyspark.sql import SparkSession

    os.environ["TXNSEGMENT_PULSAR_ADMIN_URL"] = admin
    fated(OwnedLog, "append", record_of)
    fated(PulsarClient, "end", end_of)
    fated(Subscription, "acknowledge", cursors_of)
    fated(many_topics, "record_sent", lambda *args: "sent")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    who: dict[str, Any] = {} if app == "-" else {"app": app, "version": 1}
    with connect(url) as cluster, cluster.transaction(**who) as txn:
        if call == "read":
            rows = txn.read(spark, source, subscription="s")
        else:
            rows = spark.read.format("txnsegment").options(serviceUrl=url, includeMetadata="true").load(source)
            txn.acknowledge_rows(rows, subscription="s")
        meets("after", "read")
        writer = rows.select("id", "who").write.format("txnsegment").mode("append").options(**txn.options)
        writer.option("keyColumn", "who").save(target)
        meets("after", "written")
    sys.stdout.write("skipped\n" if txn.commit().skipped else "committed\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
