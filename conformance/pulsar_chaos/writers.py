"""Eight writers write to the four segments of each of two Pulsar topics, while a batch reader and a stream read each topic. No
reader may see a part of a transaction.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

from conformance.harness.spark_driver import SparkWrite
from conformance.history.checker import check
from conformance.history.files import merge, repair, write
from conformance.history.files import read as read_history
from conformance.history.format import Commit, Event, Start, Told
from conformance.processes import Session
from conformance.pulsar_chaos.observing import Headers, Reader, batch_reader, final_look, segments_of, stream_reader
from conformance.pulsar_chaos.seen import Look, translated, without
from conformance.pulsar_server import PulsarBroker
from conformance.scenarios.history import now
from conformance.scenarios.scenario import Failed, Scenario
from conformance.scenarios.sessions import launched
from pulsar_protocol.client import PulsarClient

WRITERS = 8
START_SECONDS = 180.0
FIRST = pa.table({"key": ["first"], "seq": ["first"]})


class ManyWriters(Scenario):
    """A scenario with four writers that use `connect()` and four that use the Spark sink. They write for the given number of
    seconds.
    """

    name = "eight writers of two Pulsar topics"

    def __init__(self, broker: PulsarBroker, prefix: str, folder: Path, seconds: float) -> None:
        self._broker, self._folder, self._seconds = broker, folder, seconds
        self._topics = [f"topic://public/default/{prefix}-{one}" for one in "ab"]
        self._stop = folder / "stop"
        self._writers: dict[str, Session] = {}
        self._readers: dict[str, list[Reader]] = {}
        self._headers: Headers | None = None
        self.transactions = self.aborted = self.rows = 0
        self.anomalies: Counter[str] = Counter()

    def setup(self) -> None:
        """Create the topics and their schema by a write of one row to each topic."""
        self._folder.mkdir(parents=True)
        options = {"serviceUrl": self._broker.url, "adminUrl": self._broker.admin_url, "segments": "4", "keyColumn": "key"}
        for topic in self._topics:
            first = SparkWrite({**options, "path": topic}, FIRST)
            first.commit(first.run(tasks=1))

    def start(self) -> None:
        self._headers = Headers(self._broker.zookeeper.hosts)
        for topic in self._topics:
            options, name = {"serviceUrl": self._broker.url, "path": topic}, topic[-1]
            checkpoint = self._folder / f"{name}.checkpoint"
            self._readers[topic] = [
                batch_reader(options, self._headers, f"batch reader {name}"),
                stream_reader(options, self._headers, checkpoint, f"stream {name}"),
            ]
        for number in range(WRITERS):
            name = f"w{number}"
            given = {"url": self._broker.url, "admin": self._broker.admin_url, "topics": ",".join(self._topics), "name": name}
            given |= {"kind": "sink" if number % 2 else "connect", "file": str(self._file(name)), "stop": str(self._stop)}
            words = [word for pair in given.items() for word in (f"--{pair[0]}", pair[1])]
            self._writers[name] = launched("conformance.pulsar_chaos.writer", words, self._folder / f"{name}.log")

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"

    def faults(self) -> None:
        """Let the writers and readers run for a while. Nothing is killed."""
        deadline = time.monotonic() + START_SECONDS
        while not all(self._file(name).exists() for name in self._writers):
            self._check_running()
            if time.monotonic() > deadline:
                raise Failed(f"The writers did not begin within {START_SECONDS:g} s.")
            time.sleep(0.1)
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline:
            self._check_running()
            time.sleep(0.1)
        self._stop.touch()
        for name, one in self._writers.items():
            if (code := one.wait(120)) != 0:
                raise Failed(f"The writer {name} ended with {code}: {one.tail()}")

    def _check_running(self) -> None:
        for name, one in self._writers.items():
            if not one.running():
                raise Failed(f"The writer {name} has ended: {one.tail()}")

    def check(self) -> list[str]:
        events = {name: self._noted(name) for name in self._writers}
        wrong = [line for topic in self._topics for line in self._judged(topic, events)]
        commits = {call.call for noted in events.values() for call in noted if isinstance(call, Commit)}
        self.transactions = len({call.rsplit(" ", 1)[0] for call in commits})
        return wrong

    def _noted(self, name: str) -> list[Event]:
        file = self._file(name)
        repair(file)
        return [one for one in read_history(file) if not isinstance(one, Start)]

    def _judged(self, topic: str, events: dict[str, list[Event]]) -> list[str]:
        """Judge what the readers of a topic saw: once for each writer, by the rows of this writer only. Transactions of different
        writers have no known order.
        """
        mine = {
            name: [one for one in noted if isinstance(one, Commit | Told) and one.call.endswith(f" {topic}")]
            for name, noted in events.items()
        }
        failed = {one.call for noted in mine.values() for one in noted if isinstance(one, Told)}
        self.aborted += len(failed)
        calls = [one for noted in mine.values() for one in noted if isinstance(one, Commit)]
        ids = {row.id for call in calls if call.call not in failed for row in call.rows}
        last = final_look({"serviceUrl": self._broker.url, "path": topic}, ids)
        self.rows += len(last.rows)
        wrong, readers = [], self._readers[topic]
        deadline = time.monotonic() + 120
        while readers[1].rows() < len(last.rows) and time.monotonic() < deadline:
            time.sleep(0.1)
        for one in readers:
            one.finish()
            if one.dirty:
                wrong.append(f"{one.name} got rows of {len(one.dirty)} transactions before they were committed")
        if readers[1].rows() < len(last.rows):
            wrong.append(f"{readers[1].name} has {readers[1].rows()} of {len(last.rows)} rows")
        told = max(now(), last.at)
        last = last._replace(began=told + 1, at=told + 2)
        looks = without([look for reader in readers for look in reader.looks] + [last], {one.name: one.dirty for one in readers})
        with PulsarClient(self._broker.url) as client:
            segments = segments_of(client, topic)
        for name, noted in mine.items():
            answers = [Told(told, one.call, "committed") for one in noted if isinstance(one, Commit) and one.call not in failed]
            seen = translated([_of(name, one) for one in looks], segments, topic)
            history = merge([[Start(0, "conformance.pulsar_chaos", spanning=True)], noted, answers, seen])
            write(self._folder / f"history-{name}-{topic[-1]}.jsonl", history)
            findings = check(history)
            self.anomalies.update(one.anomaly for one in findings)
            wrong += [f"{name}: {one}" for one in findings]
        return wrong

    def figures(self) -> str:
        readers = [one for pair in self._readers.values() for one in pair]
        reads, polls = (sum(len(one.looks) for one in readers[kind::2]) for kind in (0, 1))
        return (
            f"{self.transactions} transactions and writes ({self.aborted} aborted in a topic), {self.rows} rows; {reads} batch "
            f"reads, {polls} micro-batches ({sum(one.failed for one in readers)} failed); anomalies: "
            f"{dict(self.anomalies) or 'none'}"
        )

    def close(self) -> None:
        self._stop.touch()
        for one in self._writers.values():
            one.kill()
        if self._headers is not None:
            self._headers.close()


def _of(writer: str, look: Look) -> Look:
    return look._replace(rows=tuple(row for row in look.rows if row.key.startswith(f"{writer}-")))
