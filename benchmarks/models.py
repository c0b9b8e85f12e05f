"""Compares the two transaction models: decisions in the metadata store (topic://) and markers in the data (persistent://).

Measures the promises of PIP-473: the time to end a transaction with few or many participants, the time to open a topic after a long
history, the records and bytes written for each transaction, and the effect of a sealed segment on a commit. Both models run on the
same store, with the same files.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from benchmarks.measure import Report, folder
from benchmarks.segments import Timed, folded
from benchmarks.weighing import Weighed, Weighing
from conformance.harness.faulty_store import FaultyStore
from conformance.servers import ZooKeeperServer
from ledgers.model import Part
from metadata.client.client import client
from metadata.client.logs import selected
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.errors import TransactionUnfinished
from metadata.instream import paths
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.coordinator import InStreamCoordinator
from metadata.instream.end import Ending
from metadata.instream.model import transaction_buffer
from metadata.instream.sealing import Sealing
from metadata.instream.sweeping import InStreamSweeper
from metadata.instream.txn_records import Txn
from metadata.instream.txn_rules import COORDINATOR
from metadata.read.selection import Topics
from metadata.records.names import PersistentName, TopicName, topic_name
from metadata.records.persistent_records import CONTAINS_TXN, EntryKind, LogEntry
from metadata.rules.transitions import Claim
from metadata.store.contract import Append, time_ms
from metadata.write.background import inline
from metadata.write.coordinator import Coordinator
from metadata.write.write_set import WriteSet, segment_write

PARTICIPANTS = (1, 4, 16, 64, 256)
HISTORIES = (0, 1_000, 100_000)
GROUP = 250
BYTES = 1_000
PICTURE = Path("out/models.png")


def part(name: str) -> Part:
    """Return a part of this name, without writing its file, because transactions never open the file."""
    return Part(f"{name}.parquet", 1, BYTES, 1, (1,), 0)


def persistent(cluster: Cluster, what: str, count: int) -> list[PersistentName]:
    return [PersistentName("public", "default", f"{what}-{cluster.unique()}-{i}") for i in range(count)]


def topics(cluster: Cluster, what: str, count: int) -> list[TopicName]:
    return [topic_name(f"{what}-{cluster.unique()}-{i}") for i in range(count)]


def write_set(cluster: Cluster, participants: Sequence[str], version: int) -> WriteSet:
    if cluster.storage.info("bench.parquet") is None:
        cluster.storage.publish("bench.parquet", bytes(BYTES))
    parts = {name: [part("bench")] for name in participants}
    claim = Claim(version, "bench", f"bench-{version}", True)
    return WriteSet("bench", participants[0], claim, parts, time_ms(cluster.store), 30_000)


# --- the end of a transaction ------------------------------------------------------------------------------------------


def end_in_stream(cluster: Cluster, participants: int, runs: int) -> float:
    """Return the median time of `end` in milliseconds: from the begin of the decision to the last marker and the final state."""
    coordinator = InStreamCoordinator(cluster, InStreamBuffer(cluster))
    names = persistent(cluster, "end", participants)
    for name in names:
        coordinator.topics.create(name)
    taken = []
    for run in range(runs + 1):
        txn = coordinator.begin(topics=names)
        coordinator.append(txn, {name: [part(f"{run}")] for name in names})
        started = time.perf_counter()
        coordinator.end(txn, commit=True)
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken[1:])


def end_in_store(cluster: Cluster, participants: int, runs: int) -> float:
    """Return the median time of the deciding CAS, in milliseconds."""
    made = client(cluster)
    names = [s for t in topics(cluster, "end", participants) for s in made.topics.create(t, segments=1).segments()]
    timed = Timed(cluster, lambda job: None, made.buffer.log)
    for version in range(runs + 1):
        timed.commit(write_set(cluster, names, version))
    made.finish()
    return statistics.median(timed.deciding[1:]) * 1000


# --- opening a topic ---------------------------------------------------------------------------------------------------


def past(cluster: Cluster, name: PersistentName, transactions: int, *, transactional: bool) -> None:
    """Create a topic. `transactions`: how many messages it has. `transactional`: each message is a transaction of its own, with a
    marker. Otherwise each message is a plain message. (The entries are written in groups, because another benchmark measures
    committing.)
    """
    coordinator = InStreamCoordinator(cluster, InStreamBuffer(cluster))
    coordinator.topics.create(name)
    if transactional:
        coordinator.topics.expect_transactions([name])
    now, write = time_ms(cluster.store), segment_write([part("past")])
    for first in range(0, transactions, GROUP):
        entries = []
        for n in range(first, min(first + GROUP, transactions)):
            txn = f"{COORDINATOR}_{n}" if transactional else None
            entries.append(LogEntry(kind=EntryKind.DATA, id=f"d{n}", publish_ms=now, txn=txn, write=write))
            if transactional:
                entries.append(LogEntry(kind=EntryKind.COMMIT, id=f"m{n}", publish_ms=now, txn=txn, low_water=n - 1))
        cluster.store.write(*(Append(paths.log(name), entry.to_bytes(), durable=False) for entry in entries))
    found = coordinator.topics.properties(name)[CONTAINS_TXN]
    assert found == str(transactional).lower()


def opening(make: Callable[[], object], runs: int) -> float:
    """Return the median time of `make` in milliseconds. `make` reads a topic's state without a cache, as a new process does."""
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        make()
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


def open_in_stream(cluster: Cluster, transactions: int, runs: int) -> dict[str, float]:
    plain, marked, kept = persistent(cluster, "open", 3)
    past(cluster, plain, transactions, transactional=False)
    past(cluster, marked, transactions, transactional=True)
    past(cluster, kept, transactions, transactional=True)
    InStreamBuffer(cluster).snapshot(kept)
    cases = {"no transactional message": plain, "no snapshot": marked, "snapshot": kept}
    return {what: opening(lambda name=name: InStreamBuffer(cluster).read(name), runs) for what, name in cases.items()}  # type: ignore[misc]


def open_in_store(cluster: Cluster, transactions: int, runs: int) -> float:
    """Return the milliseconds to open a topic with this many transactions, in a new cluster. The topic has one segment, and is
    in the state that a sweep leaves.
    """
    made = client(cluster)
    if transactions:
        folded(made, "open", 1, transactions, part("past"), segments=1)
    else:
        made.topics.create(topic_name("open"), segments=1)
    selection = selected(Topics((topic_name("open"),)))
    assert selection is not None
    taken = opening(lambda: transaction_buffer(cluster).read(selection), runs)
    made.close()
    return taken


# --- what is written ---------------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """The cost of one transaction of one message, as an average. `of`: all writes to the store, including those of the sweep that
    follows. `entries`: how many entries the transaction adds to the log of its message, the message's own entry included.
    """

    of: Weighed
    entries: float


def written_in_stream(cluster: Cluster, transactions: int) -> Written:
    weighing = Weighing()
    cluster.store = FaultyStore(cluster.store, weighing)
    buffer = InStreamBuffer(cluster)
    coordinator = InStreamCoordinator(cluster, buffer)
    (name,) = persistent(cluster, "written", 1)
    coordinator.topics.create(name)
    coordinator.commit(write_set(cluster, [str(name)], 0))
    before, weighed = buffer.read(name).end, weighing.weighed
    for version in range(1, transactions + 1):
        coordinator.commit(write_set(cluster, [str(name)], version))
    entries = buffer.read(name).end - before
    InStreamSweeper(cluster, buffer, coordinator).sweep()
    found = Written(weighing.weighed.since(weighed).each(transactions), entries / transactions)
    cluster.close()
    return found


def written_in_store(cluster: Cluster, transactions: int) -> Written:
    weighing = Weighing()
    cluster.store = FaultyStore(cluster.store, weighing)
    made = client(cluster)
    made.coordinator = Coordinator(cluster, inline, made.buffer.log)
    segments = made.topics.create(topics(cluster, "written", 1)[0], segments=1).segments()
    first = made.coordinator.commit(write_set(cluster, segments, 0))
    weighed, last = weighing.weighed, first
    for version in range(1, transactions + 1):
        last = made.coordinator.commit(write_set(cluster, segments, version))
    made.sweeper.sweep()
    assert first.number is not None
    assert last.number is not None
    found = Written(weighing.weighed.since(weighed).each(transactions), (last.number - first.number) / transactions)
    made.close()
    return found


# --- a sealed segment --------------------------------------------------------------------------------------------------


class SplitMeanwhile(Coordinator):
    """A coordinator that splits the segment right before its decision."""

    split: Callable[[], object]
    took_ms = 0.0

    def _decide(self, opened, work, number):  # type: ignore[no-untyped-def]
        self.split()
        started = time.perf_counter()
        super()._decide(opened, work, number)
        self.took_ms = (time.perf_counter() - started) * 1000


def sealed_in_store(cluster: Cluster) -> str:
    made = client(cluster)
    (name,) = topics(cluster, "sealed", 1)
    topic = made.topics.create(name, segments=1)
    meeting = SplitMeanwhile(cluster, inline, made.buffer.log)
    meeting.split = lambda: made.topics.split(name, 0)
    done = meeting.commit(write_set(cluster, topic.segments(), 0))
    assert done.number is not None
    made.finish()
    return f"committed, in {meeting.took_ms:.1f} ms"


class TerminateMeanwhile(Ending):
    """An `Ending` that seals the topic whenever it ends a transaction: after COMMITTING is logged and before the marker arrives."""

    terminate: Callable[[], object]

    def finish(self, least: int, seen: Txn | None = None, *, again: bool = False) -> None:
        self.terminate()
        super().finish(least, seen, again=again)


def sealed_in_stream(cluster: Cluster, sweeps: int = 10) -> str:
    buffer = InStreamBuffer(cluster)
    coordinator = InStreamCoordinator(cluster, buffer)
    (name,) = persistent(cluster, "sealed", 1)
    coordinator.topics.create(name)
    ending = TerminateMeanwhile(cluster, buffer, coordinator.log, coordinator.acks)
    ending.terminate = lambda: Sealing(cluster, buffer, coordinator.topics).terminate(name)
    coordinator.ending = ending
    with suppress(TransactionUnfinished):
        coordinator.commit(write_set(cluster, [str(name)], 0))
        raise AssertionError("the marker-based model should stall here")
    sweeper = InStreamSweeper(cluster, buffer, coordinator)
    stalled = sum(bool(sweeper.sweep().stalled) for _ in range(sweeps))
    rows = len(list(buffer.read(name).ledgers()))
    assert stalled == sweeps
    assert rows == 0
    return f"COMMITTING for ever: stalled in {stalled} of {sweeps} sweeps, its rows never seen"


# --- the report --------------------------------------------------------------------------------------------------------


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*row)
    return made


def draw(ends: dict[str, dict[int, float]], opens: dict[str, dict[int, float]]) -> None:
    """Draw the time to end a transaction and the time to open a topic, with a curve for each model and store."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    for name, found in ends.items():
        left.plot(list(found), list(found.values()), marker="o", label=name)
    left.set(xscale="log", yscale="log", xlabel="participants", ylabel="ms", title="End of a transaction")
    for name, found in opens.items():
        right.plot(list(found), list(found.values()), marker="o", label=name)
    right.set(xscale="symlog", yscale="log", xlabel="transactions before", ylabel="ms", title="Opening a topic")
    for axes in (left, right):
        axes.legend()
        axes.grid(visible=True, alpha=0.3)
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def run(
    *,
    participants: Sequence[int] = PARTICIPANTS,
    histories: Sequence[int] = HISTORIES,
    runs: int = 10,
    transactions: int = 200,
    stores: Sequence[str] = ("SQLite", "ZooKeeper"),
) -> Report:
    report = Report("The two models")
    logging.getLogger("txnsegment.instream").setLevel(logging.CRITICAL)  # hides the warnings: transactions must stall here
    ends: dict[str, dict[int, float]] = {}
    opens: dict[str, dict[int, float]] = {}
    written, sealed = [], []
    with folder() as root, ZooKeeperServer(root / "zookeeper", java_options=("-Xmx3g",)) as server:
        urls = {"SQLite": f"file://{root}/cluster", "ZooKeeper": f"zk://{server.hosts}/bench"}
        for store in stores:
            url = urls[store]
            cluster = open_cluster(url, ledgers=f"file://{root}/{store}-ledgers")
            old, new = f"persistent://, {store}", f"topic://, {store}"
            ends[old] = {n: end_in_stream(cluster, n, runs) for n in participants}
            ends[new] = {n: end_in_store(cluster, n, runs) for n in participants}
            for n in histories:
                for what, ms in open_in_stream(cluster, n, runs).items():
                    opens.setdefault(f"{old}, {what}", {})[n] = ms
                fresh = open_cluster(f"{url}-{n}", ledgers=f"file://{root}/{store}-{n}")
                opens.setdefault(new, {})[n] = open_in_store(fresh, n, runs)
            sealed += [(old, sealed_in_stream(cluster)), (new, sealed_in_store(cluster))]
            cluster.close()
            for name, measure in ((old, written_in_stream), (new, written_in_store)):  # each in a new, empty cluster
                fresh = open_cluster(f"{url}-{measure.__name__}", ledgers=f"file://{root}/{store}-{measure.__name__}")
                written.append((name, measure(fresh, transactions)))
    report.tables = [
        table(
            "End of a transaction, ms, against its participants",
            ["", *map(str, participants)],
            [(name, *(f"{ms:.1f}" for ms in found.values())) for name, found in ends.items()],
        ),
        table(
            "Opening a topic, ms, after so many transactions of one message",
            ["", *(f"{n:,}" for n in histories)],
            [(name, *(f"{ms:.1f}" for ms in found.values())) for name, found in opens.items()],
        ),
        table(
            "Written for a transaction of one message, until all is at rest",
            ["", "entries in the data's log", "records written", "records deleted", "bytes"],
            [(name, f"{w.entries:.2f}", f"{w.of.written:.1f}", f"{w.of.deleted:.1f}", f"{w.of.bytes:,.0f}") for name, w in written],
        ),
        table("A segment is sealed between the last write and the decision's end", ["", "the commit"], sealed),
    ]
    most = participants[-1]
    for store in stores:
        text = f"{store}: the end of a transaction over {most} participants, topic:// against persistent://"
        report.claim(text, ends[f"topic://, {store}"][most] / ends[f"persistent://, {store}"][most], 1, at_least=False)
    draw(ends, opens)
    report.figures.append(("picture", str(PICTURE)))
    return report


if __name__ == "__main__":
    run().show()
