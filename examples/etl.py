"""An incremental job for a scheduler: it processes the new flights of a topic into two other topics, in one transaction.

    spark-submit examples/etl.py --service-url zk://zk1:2181/txnsegment

Each run reads the flights that the subscription `etl` has not acknowledged. In one transaction it acknowledges them, writes a
row for each carrier (flights, arrived, sum of the delays) to one topic, and writes the late flights to the other.

The job may be repeated, killed at any point, and started twice at once: no flight is skipped, and none counts twice. If a run was
killed in its commit, the next run ends the transaction of the killed run. If two runs work at the same time, the slower run fails
and leaves nothing visible. The subscription must exist:

    txnsegment subscriptions create flights etl
"""

from __future__ import annotations

import argparse
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from txnsegment import Committed, connect


def etl(spark: SparkSession, given: argparse.Namespace) -> Committed:
    """Run the job once. Return the committed transaction."""
    with (
        connect(given.service_url) as cluster,
        cluster.transaction(app=given.subscription, version=given.version) as txn,
    ):
        flights = txn.read(spark, given.flights, subscription=given.subscription).persist()
        carriers = flights.groupBy("carrier").agg(
            F.count("*").alias("flights"), F.count("arr_delay").alias("arrived"), F.sum("arr_delay").alias("delay")
        )
        late = flights.where(F.col("arr_delay") > given.late_minutes)
        for topic, rows in ((given.carriers, carriers), (given.late, late)):
            rows.write.format("txnsegment").mode("append").options(**txn.options).save(topic)
    return txn.commit()  # the committed transaction; a second commit changes nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service-url", help="default: the variable TXNSEGMENT_SERVICE_URL")
    parser.add_argument("--flights", default="flights", help="the topic to read")
    parser.add_argument("--subscription", default="etl", help="the subscription to read by; also the name of the application")
    parser.add_argument("--carriers", default="topic://reports/daily/carriers", help="the topic for the sums")
    parser.add_argument("--late", default="topic://reports/alerts/late", help="the topic for flights that were late")
    parser.add_argument("--late-minutes", type=int, default=120)
    parser.add_argument(
        "--version", type=int, default=time.time_ns() // 1_000_000, help="must rise from run to run; default: the time"
    )
    spark = SparkSession.builder.appName("etl").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    done = etl(spark, parser.parse_args())
    print(f"committed {done.txn_id}: {done.rows} rows" if done.txn_id else "nothing was new")
    spark.stop()


if __name__ == "__main__":
    main()
