"""A small driver process of the Pulsar sink, without Spark: it plans, sends the rows of each version and commits it.

    python -m tests.support.pulsar_driver URL ADMIN TOPIC FOLDER RUN VERSIONS

The file `FOLDER/next` is its checkpoint. The variable FATE, such as `kill before done 1`, kills (or with `stop` suspends) the
process before or after a step of a version: rows, take, begin, done or end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.committing import Committer, Work
from spark_txn_sink.pulsar.control import Record
from spark_txn_sink.pulsar.control_topic import ControlTopic
from spark_txn_sink.pulsar.options import PulsarWriteOptions
from spark_txn_sink.pulsar.plan import plan_write
from spark_txn_sink.pulsar.sending import Task, send_rows
from spark_txn_sink.pulsar.writer import joined

KEYS: Final = 8
ROWS: Final = 40
COLUMNS: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def values_of(version: int) -> list[tuple[str, bytes]]:
    """Return the keys and values of a version."""
    return [(f"k{row % KEYS}", f"{version:04}-{row:04}".encode()) for row in range(ROWS)]


class Fate:
    """The step before or after which this process is killed or suspended."""

    def __init__(self, text: str) -> None:
        self.words = text.split()
        self.version = -1

    def meets(self, when: str, step: str) -> None:
        if self.words[1:] == [when, step, str(self.version)]:
            how = signal.SIGKILL if self.words[0] == "kill" else signal.SIGSTOP
            self.words = []
            os.kill(os.getpid(), how)


class FatedControl(ControlTopic):
    """The control topic, with the steps that `Fate` names."""

    fate: Fate

    def take(self, run: str) -> Position:
        self.fate.meets("before", "take")
        found = super().take(run)
        self.fate.meets("after", "take")
        return found

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        step = type(record).__name__.lower()
        if step == "take":
            return super().append(record, txn)
        self.fate.meets("before", step)
        found = super().append(record, txn)
        self.fate.meets("after", step)
        return found

    def end(self, txn: TxnId, *, commit: bool) -> None:
        if not commit:
            return super().end(txn, commit=commit)
        self.fate.meets("before", "end")
        super().end(txn, commit=commit)
        self.fate.meets("after", "end")
        return None


def main(url: str, admin: str, topic: str, folder: Path, run: str, versions: int) -> int:
    given = {"serviceUrl": url, "adminUrl": admin, "topic": topic, "keyColumn": "key", "txnAppId": "app", "entryRows": "7"}
    options = PulsarWriteOptions.parse(given, streaming=True)
    client, fate = PulsarClient(url), Fate(os.environ.get("FATE", ""))
    control = FatedControl(lambda: PulsarClient(url), "app", options.topic, admin)
    control.fate = fate
    committer = Committer(control, pause=time.sleep, now=time.monotonic, patience=20.0)
    offset = folder / "next"
    try:
        for version in range(int(offset.read_text()) if offset.exists() else 0, versions):
            fate.version = version
            plan = plan_write(client, options, COLUMNS, f"{run}-{version}")
            reports = []
            for partition in range(2):
                rows = values_of(version)[partition * ROWS // 2 : (partition + 1) * ROWS // 2]
                keys, values = zip(*rows, strict=True)
                batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], ["key", "value"])
                reports.append(send_rows(client, plan, [batch], Task(partition), "app"))
            fate.meets("after", "rows")
            work = Work(
                plan.opened.txn,
                run,
                version,
                options.topic,
                joined(reports),
                ROWS,
                f"app to {topic}",
                streaming=True,
                opened=plan.opened,
            )
            committed = committer.commit(work)
            offset.write_text(str(version + 1))
            sys.stdout.write(f"{'committed' if committed else 'skipped'} {version}\n")
            sys.stdout.flush()
    except TxnSegmentError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return 1
    finally:
        control.drop()
        client.close()
    return 0


if __name__ == "__main__":
    where, rest, name, place, started, count = sys.argv[1:]
    sys.exit(main(where, rest, name, Path(place), started, int(count)))
