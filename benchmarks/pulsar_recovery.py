"""Measures how long a new driver needs to take over the control topic after 10,000 batches, on a live Pulsar broker:
`python -m benchmarks.pulsar_recovery`.

The sink's own `Committer` commits the batches, with the records that it writes for each batch. It uses no transactions of the
broker, because they would take an hour. The driver that takes over uses real transactions.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid

from benchmarks.measure import Report, folder, machine
from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.layout import Position
from pulsar_protocol.producers import lend
from spark_txn_sink.pulsar.attempts import Attempt, Opened, opened
from spark_txn_sink.pulsar.committing import Committer
from spark_txn_sink.pulsar.control import Record
from spark_txn_sink.pulsar.control_topic import ControlTopic
from spark_txn_sink.pulsar.work import Work

BATCHES = 10_000
SECONDS = 1.0
APP = "benchmark"


class WithoutTransactions(ControlTopic):
    """A control topic that writes `done` outside of the transaction, and never ends a transaction."""

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        return super().append(record)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        """Do nothing, because no transaction was begun."""


def write_batches(client: PulsarClient, broker: PulsarBroker, topic: str, batches: int) -> None:
    """Write the records of many batches: for each batch its opening, the attempt of one task, `begin` and `done`."""
    control = WithoutTransactions(lambda: PulsarClient(broker.url), APP, topic, broker.admin_url)
    committer = Committer(control, pause=time.sleep, now=time.monotonic, patience=60)
    for version in range(batches):
        txn = TxnId(0, (1 << 40) + version)
        opening = opened(client, topic, broker.admin_url, txn, uuid.uuid4().hex)
        with lend(client, opening.segment) as producer:
            producer.send([Message(Attempt(txn.text, uuid.uuid4().hex, 0, APP).encoded())])
        assert committer.commit(work(txn, "run-1", version, topic, opening))
    control.drop()


def work(txn: TxnId, run: str, version: int, topic: str, opening: Opened) -> Work:
    return Work(txn, run, version, topic, {}, 1, f"{APP} to {topic}", streaming=True, opened=opening)


def take_over(client: PulsarClient, broker: PulsarBroker, topic: str, batches: int, run: str) -> float:
    """Let a new driver find out that its first batch is committed. Return how many seconds that takes."""
    opening = opened(client, topic, broker.admin_url, client.begin(60_000), uuid.uuid4().hex)
    control = ControlTopic(lambda: PulsarClient(broker.url), APP, topic, broker.admin_url)
    committer = Committer(control, pause=time.sleep, now=time.monotonic, patience=60)
    begun = time.monotonic()
    committed = committer.commit(work(opening.txn, run, batches - 1, topic, opening))
    took = time.monotonic() - begun
    control.drop()
    assert not committed, "the batch is in the control topic"
    return took


def measure(broker: PulsarBroker, batches: int) -> Report:
    topic = broker.create(f"recovery-{uuid.uuid4().hex}", 1)
    with PulsarClient(broker.url) as client:
        begun = time.monotonic()
        write_batches(client, broker, topic, batches)
        wrote = time.monotonic() - begun
        times = [take_over(client, broker, topic, batches, f"run-{number}") for number in range(2, 7)]
    report = Report(f"A new driver takes over after {batches:,} batches")
    load = "load " + ", ".join(f"{one:.1f}" for one in os.getloadavg())
    report.claim("the first driver", times[0], SECONDS, at_least=False, unit="s", note=load)
    report.claim("the slowest of four later ones", max(times[1:]), SECONDS, at_least=False, unit="s")
    report.figures.append(("writing the batches", f"{wrote:.0f} s"))
    return report


def run(*, batches: int = BATCHES) -> Report:
    with folder() as root, PulsarBroker(root / "broker") as broker:
        return measure(broker, batches)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pulsar_recovery", description=__doc__)
    parser.add_argument("--batches", type=int, default=BATCHES, help=f"before the driver takes over (default {BATCHES})")
    sys.stdout.write(machine() + "\n")
    report = run(batches=parser.parse_args().batches)
    report.show()
    return 1 if any(not one.holds for one in report.claims) else 0


if __name__ == "__main__":
    sys.exit(main())
