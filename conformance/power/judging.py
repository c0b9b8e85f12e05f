"""Judges a cluster after a power cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.power.world import COLUMNS, World, text
from ledgers.errors import TxnSegmentError
from metadata.client.logs import log_of
from metadata.instream.model import InStreamModel
from metadata.maintenance.orphans import named_files
from metadata.store.contract import decide
from spark_txn_source.entries import entry_rows
from spark_txn_source.pieces import large_pieces
from txnsegment import Cluster


def judged(world: World, url: str | None = None) -> Iterator[str]:
    """Use the cluster on the state that a power cut has left, and yield all violations. This function opens the cluster, writes to
    it and reads it. Then it sweeps until all age limits have passed. At the end it writes again, compacts, and reads again.
    """
    try:
        with world.connected(url) as cluster:
            settings = cluster.settings
            _write(world, cluster)
        # After this, transactions that the power cut left open are past their deadlines.
        world.pass_time(settings.max_txn_timeout_ms + settings.deadline_allowance_ms)
        with world.connected(url) as cluster:
            yield from _whole(world, cluster, "after the power cut")
        for passed in (settings.orphan_age_ms, settings.grace_period_ms, settings.grace_period_ms):
            with world.connected(url) as cluster:
                cluster.sweep()
            world.pass_time(passed + 1)
        with world.connected(url) as cluster:
            _write(world, cluster)
            for topic in _topics(cluster):
                if topic.startswith("topic:"):
                    cluster.compact(topic)
            yield from _whole(world, cluster, "after sweeps beyond all ages and a compaction")
    except TxnSegmentError as error:
        yield f"{type(error).__name__}: {error}{''.join(f' [{note}]' for note in getattr(error, '__notes__', ()))}"


def _topics(cluster: Cluster) -> list[str]:
    return [topic.name for topic in cluster.topics.list()]


def _write(world: World, cluster: Cluster) -> None:
    """Commit one transaction to all topics of each transaction model."""
    topics = _topics(cluster)
    for kind in ("topic:", "persistent:"):
        mine = {topic: 2 for topic in topics if topic.startswith(kind)}
        if mine:
            world.commit(cluster, mine)


def _whole(world: World, cluster: Cluster, when: str) -> Iterator[str]:
    """Yield the violations of four rules. Each transaction is visible as a whole or not at all. A transaction whose commit has
    returned is visible. Each visible row belongs to a visible transaction. All files that records name exist. Rows that
    retention may have trimmed (`Txn.leaving`) may be missing.
    """
    there = _topics(cluster)
    found = {topic: Counter(rows(cluster, topic)) for topic in there}
    wanted: dict[str, Counter[int]] = {topic: Counter() for topic in there}
    for number, txn in world.txns.items():
        seen = {topic for topic, numbers in txn.rows.items() if any(found.get(topic, Counter())[n] for n in numbers)}
        stays = txn.rows.keys() - txn.leaving
        if txn.promised and stays and not seen & stays:
            yield f"{when}: transaction {number} was committed and is gone"
        for topic, numbers in txn.rows.items():
            if topic in seen or (topic in stays and seen & stays):
                wanted.setdefault(topic, Counter()).update(numbers)
    for topic, counted in wanted.items():
        if counted != found.get(topic, Counter()):
            lost, more = counted - found.get(topic, Counter()), found.get(topic, Counter()) - counted
            yield f"{when}: {topic} lacks rows {sorted(lost)[:5]} and has rows {sorted(more)[:5]} too many"
    storage = cluster.client.cluster.storage
    named = decide(
        cluster.client.cluster.store,
        lambda view: set(named_files(cluster.client.cluster, InStreamModel(cluster.client.cluster), view)),
    )
    for path in sorted(named):
        if storage.info(path) is None:
            yield f"{when}: a record names {path}, which is missing"


def rows(cluster: Cluster, topic: str) -> Iterator[int]:
    """Yield the number `n` of each visible row, read from the files. Raises AssertionError if a row has another text than
    `text(n)`.
    """
    storage = cluster.client.cluster.storage
    reading = log_of(cluster.client, topic).now()
    for segment in reading.segments:
        for piece in large_pieces(segment, 0, reading.cut, marks=True):
            for found in entry_rows(storage, piece, COLUMNS):
                for row in found.batch.to_pylist():
                    if row["text"] != text(row["n"]):
                        raise AssertionError(f"row {row['n']} of {topic} reads as {row}")
                    yield row["n"]
