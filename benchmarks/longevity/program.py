"""The plain Python program of a soak: a producer that writes a row every few seconds, and a consumer that acknowledges all rows. In
every twelfth turn of its loop, the program commits a transaction that acknowledges rows and writes one row. In the next turn it
aborts such a transaction.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from benchmarks.longevity.words import PERIOD, SUBSCRIPTION, TOPIC, WENT_ON, given, stop_file
from metadata.common.errors import TxnSegmentError
from txnsegment import Cluster, connect
from txnsegment.consumer import Consumer
from txnsegment.producer import Producer


def main() -> None:
    url, folder = given("benchmarks.longevity.program")
    with (
        connect(url) as cluster,
        cluster.producer(TOPIC) as producer,
        cluster.consumer(TOPIC, SUBSCRIPTION, start="earliest") as consumer,
    ):
        turn = 0
        while not stop_file(folder).exists():
            turn += 1
            try:
                _turn(cluster, producer, consumer, turn)
            except TxnSegmentError as error:  # overload can cause errors; the next turn tries again
                print(f"{WENT_ON} turn {turn}: {error}", flush=True)
                consumer.rewind()
            time.sleep(PERIOD / 2)


def _turn(cluster: Cluster, producer: Producer, consumer: Consumer, turn: int) -> None:
    producer.send(_row(turn))
    producer.flush()
    if turn % 12 < 2:
        _transaction(cluster, producer, consumer, turn)
        return
    for message in consumer.messages(timeout=PERIOD / 2):
        consumer.ack(message)


def _transaction(cluster: Cluster, producer: Producer, consumer: Consumer, turn: int) -> None:
    with cluster.begin() as txn:
        for message in consumer.messages(timeout=0):
            consumer.ack(message, txn=txn)
        producer.write(pa.Table.from_pylist([_row(turn)]), txn=txn)
        if turn % 12 == 0:
            txn.commit()
        else:
            txn.abort()
            consumer.rewind()


def _row(turn: int) -> dict[str, Any]:
    return {"key": f"p{turn % 7}", "value": turn, "at": datetime.now(UTC)}


if __name__ == "__main__":
    main()
