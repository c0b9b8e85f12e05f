"""A program that moves rows from one Pulsar topic to another: it consumes, transforms and produces in transactions.

    python -m tests.support.pulsar_etl URL SOURCE TARGET SUBSCRIPTION

It ends when no row came for two seconds. The variable FATE, such as `kill before Done 2`, kills it at the second transaction,
before or after one of its steps: `Begin` and `Done` (records of the log of acknowledgements), `acked` (the rows are acknowledged),
`sent` (the new rows are sent), and `end` (the commit).
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.owned_log import OwnedLog
from txnsegment.pulsar.cluster import open_pulsar

ROWS: Final = 5
FATES: Final = ("before Begin", "after Begin", "after acked", "after sent", "before Done", "after Done", "before end", "after end")


class Fate:
    """The step of a transaction before or after which this process is killed."""

    def __init__(self, text: str) -> None:
        self._words = text.split()[1:]
        self.number = 0

    def meets(self, when: str, step: str) -> None:
        if self._words == [when, step, str(self.number)]:
            os.kill(os.getpid(), signal.SIGKILL)


def bind(fate: Fate) -> None:
    """Let the steps inside of the product meet the fate."""
    append, end = OwnedLog.append, PulsarClient.end

    def fated_append(self: OwnedLog[Any], record: Any, txn: TxnId | None = None) -> Position:
        fate.meets("before", type(record).__name__)
        found = append(self, record, txn)
        fate.meets("after", type(record).__name__)
        return found

    def fated_end(self: PulsarClient, txn: TxnId, *, commit: bool) -> None:
        fate.meets("before", "end")
        end(self, txn, commit=commit)
        fate.meets("after", "end")

    OwnedLog.append = fated_append  # type: ignore[method-assign]
    PulsarClient.end = fated_end  # type: ignore[method-assign]


def main(url: str, source: str, target: str, subscription: str) -> None:
    fate = Fate(os.environ.get("FATE", ""))
    with open_pulsar(url, None) as cluster, cluster.consumer(source, subscription, start="earliest") as consumer:
        bind(fate)
        while True:
            fate.number += 1
            with cluster.begin() as txn:
                found = list(islice(consumer.messages(timeout=2), ROWS))
                if not found:
                    return
                rows = [{"id": one.value["id"], "who": one.value["who"]} for one in found]
                consumer.ack_cumulative(found[-1], txn=txn)
                fate.meets("after", "acked")
                txn.append(target, pa.Table.from_pylist(rows), key="who")
                fate.meets("after", "sent")
                txn.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
