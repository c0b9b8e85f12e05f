"""Tests of the marker-based model on each store with real threads: concurrent writers, a sweeper and a reader, each with its own
session.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from conformance.servers import ZooKeeperServer
from ledgers.model import Part
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import AckConflict, OutcomeUnknown, TransactionNotFound
from metadata.instream.client import InStream, instream
from metadata.records.cluster_records import Settings
from metadata.records.names import PersistentName
from metadata.rules.transitions import Claim
from metadata.write.write_set import WriteSet
from txnsegment import connect

T, U = PersistentName("public", "default", "t"), PersistentName("public", "default", "t1")
WRITERS, VERSIONS = 3, 8


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=["memory", "file", "zk"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    name = uuid.uuid4().hex
    if request.param == "zk":
        return f"zk://{request.getfixturevalue('zookeeper').hosts}/{name}"
    return f"memory://{name}" if request.param == "memory" else f"file://{tmp_path}/{name}"


def opened(url: str, tmp_path: Path) -> InStream:
    ledgers = None if url.startswith("file:") else f"file://{tmp_path}/ledgers"
    return instream(open_cluster(url, ledgers=ledgers, settings=Settings(header_retention_ms=50)))


def rows(mine: InStream, name: PersistentName) -> list[str]:
    return [part.path for ledger in mine.buffer.read(name).ledgers() for part in ledger.parts]


def test_writers_a_sweeper_and_a_reader_at_once(url: str, tmp_path: Path) -> None:
    first = opened(url, tmp_path)
    for name in (T, U):
        first.topics.create(name)
    over = threading.Event()

    def write(writer: int) -> int:
        mine = opened(url, tmp_path)
        try:
            for version in range(VERSIONS):
                mine.cluster.storage.publish(f"{writer}.{version}", b"part")
                parts = {str(n): [Part(f"{writer}.{version}", 1, 4, 0, (1,), 0)] for n in (T, U)}
                claim = Claim(version, "q", uuid.uuid4().hex, replays=True)
                work = WriteSet(f"app{writer}", "", claim, parts, mine.cluster.clock.now_ms(), 30_000)
                while True:
                    try:
                        mine.coordinator.commit(work)
                        break
                    except OutcomeUnknown:
                        continue
                if version == 3:
                    gone = mine.coordinator.begin(topics=[T])
                    mine.coordinator.append(gone, {T: [Part("aborted", 1, 4, 0, (1,), 0)]})
                    # The sweeper may abort the transaction, or drop its entries from the log, before this process reads the log.
                    with suppress(TransactionNotFound):
                        mine.coordinator.end(gone, commit=False)
            return VERSIONS
        finally:
            mine.cluster.close()

    def sweep() -> int:
        mine = opened(url, tmp_path)
        try:
            while not over.is_set():
                report = mine.sweeper.sweep()
                assert not report.stalled
                assert not report.failed
                mine.buffer.snapshot(T)
            return mine.sweeper.sweep().compacted
        finally:
            mine.cluster.close()

    def read() -> int:
        mine, seen = opened(url, tmp_path), list[str]()
        try:
            while not over.is_set():
                now = rows(mine, T)
                assert now[: len(seen)] == seen
                seen = now
            return len(seen)
        finally:
            mine.cluster.close()

    with ThreadPoolExecutor(WRITERS + 2) as pool:
        others = [pool.submit(sweep), pool.submit(read)]
        try:
            writers = [pool.submit(write, writer) for writer in range(WRITERS)]
            assert [done.result() for done in writers] == [VERSIONS] * WRITERS
        finally:
            over.set()
        for other in others:
            other.result()
    wanted = {f"{writer}.{version}" for writer in range(WRITERS) for version in range(VERSIONS)}
    fresh = opened(url, tmp_path)
    for name in (T, U):
        found = rows(fresh, name)
        assert len(found) == len(wanted)
        assert set(found) == wanted
        for writer in range(WRITERS):
            mine = [row for row in found if row.startswith(f"{writer}.")]
            assert mine == [f"{writer}.{version}" for version in range(VERSIONS)]
    for each in (first, fresh):
        each.cluster.close()


def test_programs_of_two_sessions(url: str, tmp_path: Path) -> None:
    """Writes of another session wake a consumer. The consumer acknowledges its rows in a transaction that also copies them to
    another topic. Then the other session cannot acknowledge the same rows.
    """
    ledgers = None if url.startswith("file:") else f"file://{tmp_path}/ledgers"
    with connect(url, ledgers=ledgers) as mine, connect(url, ledgers=ledgers) as other:
        for name in (str(T), str(U)):
            mine.topics.create(name, schema="n bigint")
        mine.topics.create("s", schema="n bigint")
        with mine.consumer([str(T), "topic://public/default/s"], "s", start="earliest") as consumer:
            with ThreadPoolExecutor(1) as reader, other.producer(str(T)) as producer:
                found = reader.submit(lambda: list(islice(consumer.messages(timeout=20), 3)))
                for n in range(3):
                    producer.send({"n": n})
                    producer.flush()
                assert [m.value["n"] for m in found.result(30)] == [0, 1, 2]
            with other.consumer(str(T), "s") as rival, mine.begin() as txn:
                consumer.ack(found.result(), txn=txn)
                txn.append(str(U), pa.table({"n": [3]}))
                txn.commit()
                with pytest.raises(AckConflict):
                    rival.ack(found.result())
            assert consumer.lag().rows == other.subscriptions.describe(str(T), "s").lag.rows == 0
        assert other.topics.describe(str(U)).name == str(U)
        with other.consumer(str(U), "s", start="earliest") as consumer:
            assert [m.value["n"] for m in consumer.messages(timeout=0)] == [3]
