"""The scenarios of the power suite. Each does one kind of work in a cluster until the power fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType

from conformance.power.judging import judged
from conformance.power.world import BACKUPS, RESTORED, STORE, World, table
from ledgers import snapshots
from metadata.backup import backup_file
from metadata.backup import in_stream as instream_backup
from metadata.backup.backup import BackupReader
from metadata.backup.restore import restore
from metadata.common.errors import TxnSegmentError
from metadata.instream import coordinator as instream_coordinator
from metadata.instream import snapshots as instream_snapshots
from metadata.instream import transaction_log
from metadata.write import coordinator
from spark_txn_sink.commit import commit
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from spark_txn_sink.planned import Identity
from spark_txn_sink.staged_write import StagedWrite
from spark_txn_sink.staging import stage
from txnsegment import Cluster
from txnsegment.spark_transaction import SparkTransaction

T, U, P = "topic://public/default/t", "topic://public/default/u", "persistent://public/default/p"
TYPES = StructType([StructField("n", LongType()), StructField("text", StringType())])
BACKUP = BACKUPS / "one.backup"

Judge = Callable[[World], Iterator[str]]


@dataclass(frozen=True)
class Scenario:
    """One kind of work.

    play      does the work
    judge     yields the violations in the state that a power cut during the work has left
    again     finishes the work in a second process, after the first one was killed. What the second process has committed must
              survive a power cut, too. None: the process is not killed in this scenario
    small     (module, name) of a limit in the real code -> a lower value, so that little work reaches the limit
    embedded  whether the store is SQLite, in a folder that the cluster creates; otherwise it is in memory
    """

    name: str
    play: Callable[[World], None]
    judge: Judge = judged
    again: Callable[[World], None] | None = None
    small: Mapping[tuple[Any, str], int] = field(default_factory=dict)
    embedded: bool = False

    @contextmanager
    def limits(self) -> Iterator[None]:
        before = {place: getattr(*place) for place in self.small}
        for (where, name), value in self.small.items():
            setattr(where, name, value)
        try:
            yield
        finally:
            for (where, name), value in before.items():
                setattr(where, name, value)


def founding(world: World) -> None:
    """Create a cluster and a topic, and commit one transaction."""
    with world.connected() as cluster:
        cluster.topics.create(T, segments=2)
        world.commit(cluster, {T: 4})


def found_again(world: World) -> None:
    with world.connected() as cluster:
        if not any(topic.name == T for topic in cluster.topics.list()):
            cluster.topics.create(T, segments=2)
        world.commit(cluster, {T: 4})


def transactions(world: World) -> None:
    """Run transactions over two topics. One is aborted, and one stays open."""
    with world.connected() as cluster:
        _topics(cluster)
        world.commit(cluster, {T: 5, U: 2}, calls=2)
        txn = cluster.begin()
        world.append(txn, world.begin({T: 3}))
        txn.abort()
        world.commit(cluster, {U: 3})
        world.append(cluster.begin(), world.begin({T: 2, U: 1}))


def sink(world: World) -> None:
    """Do the work of Spark's sink. Two tasks stage parts, the first of them twice, and then the driver commits."""
    with world.connected() as cluster:
        _topics(cluster)
        client = cluster.client
        for version in (1, 2):
            written = world.begin({T: 6})
            options = WriteOptions.parse({"serviceUrl": STORE, "path": T}, streaming=False)
            plan = plan_write(client, options, TYPES)
            tasks = [table(written[T][:3]).to_batches(), table(written[T][3:]).to_batches()]
            staged = [stage(plan, task, name_source=world.unique) for task in [tasks[0], *tasks]][1:]
            commit(client, plan, Identity("query", version, False, False), 30_000, staged)
            world.promise(written)


def together(world: World) -> None:
    """Commit transactions, each with several Spark writes. Each write leaves a staging manifest."""
    with world.connected() as cluster:
        _topics(cluster)
        client = cluster.client
        for version in (1, 2):
            written = world.begin({T: 4, U: 4})
            txn = SparkTransaction(client, app="etl", version=version, timeout_ms=30_000)
            token = txn.options["txnStaging"]
            for topic in (T, U):
                plan = plan_write(client, WriteOptions.parse({"serviceUrl": STORE, "path": topic}, streaming=False), TYPES)
                write = StagedWrite.begin(plan, token, world.unique())
                half = written[topic][:2]
                write.commit([stage(plan, table(half).to_batches(), name_source=world.unique)])
                txn.append(topic, table(written[topic][2:]))
            txn.commit()
            world.promise(written)


def sweeping(world: World) -> None:
    """Fold transactions into index snapshots. Sweeps delete the index snapshot files that newer ones have replaced."""
    with world.connected() as cluster:
        _topics(cluster)
        for _ in range(4):
            world.commit(cluster, {T: 4, U: 2})
            world.commit(cluster, {T: 2})
            cluster.sweep()
            world.pass_time(cluster.settings.orphan_age_ms + 1)
        world.pass_time(cluster.settings.grace_period_ms)
        cluster.sweep()


def compacting(world: World) -> None:
    """Join folded parts by compaction. Sweeps delete the old parts after the grace period."""
    with world.connected() as cluster:
        _topics(cluster)
        for _ in range(3):
            for _ in range(3):
                world.commit(cluster, {T: 4, U: 2})
            cluster.sweep()
            cluster.compact(T)
            world.pass_time(cluster.settings.orphan_age_ms + 1)
            cluster.sweep()
        world.pass_time(cluster.settings.grace_period_ms)
        cluster.sweep()
        world.pass_time(cluster.settings.grace_period_ms)
        cluster.sweep()


def trimming(world: World) -> None:
    """Let retention trim the older transactions of a topic."""
    with world.connected() as cluster:
        _topics(cluster)
        for _ in range(3):
            for _ in range(2):
                world.commit(cluster, {T: 4})
                world.commit(cluster, {U: 2})
            cluster.sweep()
            world.pass_time(60_000)
        world.leave(T)
        cluster.retention.set(T, keep=timedelta(seconds=70))
        cluster.sweep()
        cluster.retention.clear(T)
        world.pass_time(cluster.settings.grace_period_ms + cluster.settings.orphan_age_ms)
        cluster.sweep()
        world.pass_time(cluster.settings.grace_period_ms + 1)
        cluster.sweep()


def persistent(world: World) -> None:
    """Run committed and aborted transactions on a persistent topic, with snapshots of its transaction buffer and compactions of the
    transaction log.
    """
    with world.connected() as cluster:
        cluster.topics.create(P)
        for i in range(4):
            world.commit(cluster, {P: 3})
            txn = cluster.begin()
            world.append(txn, world.begin({P: 2}))
            txn.abort()
            if i % 2:
                cluster.sweep()
        world.pass_time(cluster.settings.orphan_age_ms + cluster.settings.grace_period_ms + 1)
        cluster.sweep()


def backing_up(world: World) -> None:
    """Write a backup into a file, between transactions."""
    with world.connected() as cluster:
        _topics(cluster)
        world.commit(cluster, {T: 4, U: 2})
        cluster.sweep()
        world.commit(cluster, {T: 2})
        _backup(cluster)
        world.state("a backup was written")
        world.commit(cluster, {T: 2})


def judged_backup(world: World) -> Iterator[str]:
    """Yield the violations of `judged` and of two more rules. A finished backup is readable. If the power cut left no backup file,
    a backup can be written again under the same name.
    """
    try:
        backup_file.read(BACKUP)
    except TxnSegmentError as error:
        if "a backup was written" in world.facts or world.disk.is_there(BACKUP):
            yield f"the backup: {error}"
            return
        try:
            with world.connected() as cluster:
                world.pass_time(cluster.settings.max_txn_timeout_ms + cluster.settings.deadline_allowance_ms)
                _backup(cluster)
            backup_file.read(BACKUP)
        except TxnSegmentError as again:
            yield f"another backup of the same name: {again}"
    yield from judged(world)


def restoring(world: World) -> None:
    """Restore a backup into another store, over the same files."""
    with world.connected() as cluster:
        _topics(cluster)
        cluster.topics.create(P)
        world.commit(cluster, {T: 4, U: 2})
        world.commit(cluster, {P: 3})
        cluster.sweep()
        world.commit(cluster, {T: 2})
        _backup(cluster)
    world.state("a backup was written")
    _restore(world)
    world.state("it was restored")
    with world.connected(RESTORED) as cluster:
        world.commit(cluster, {T: 4})


def restore_again(world: World) -> None:
    if "a backup was written" in world.facts and "it was restored" not in world.facts:
        _restore(world)
        world.state("it was restored")


def judged_restore(world: World) -> Iterator[str]:
    """If no backup was written, yield the violations of `judged`. If one was written, first run an unfinished restore again, which
    must succeed. Then yield the violations of `judged` in the restored cluster.
    """
    if "a backup was written" not in world.facts:
        yield from judged(world)
        return
    try:
        if "it was restored" not in world.facts:
            _restore(world)
    except TxnSegmentError as error:
        yield f"the restore run again: {type(error).__name__}: {error}"
        return
    yield from judged(world, RESTORED)


def _restore(world: World) -> None:
    restore(backup_file.read(BACKUP), RESTORED, clock=world.clock)


def _backup(cluster: Cluster) -> None:
    backup_file.write(BACKUP, BackupReader(cluster.client.cluster).take(0))


def _topics(cluster: Cluster) -> None:
    cluster.topics.create(T, segments=2)
    cluster.topics.create(U)


_MANIFESTS = {(coordinator, "MAX_INLINE"): 1}
_CHAINS = {(snapshots, "TAIL_PARTS"): 3, (snapshots, "FANOUT"): 2}
_IN_STREAM = {
    (instream_snapshots, "INLINE_BYTES"): 1,
    (transaction_log, "INLINE_BYTES"): 1,
    (instream_coordinator, "COMPACT_ENTRIES"): 4,
}
_FILED = {(instream_backup, "INLINE_BYTES"): 0}

SCENARIOS = (
    Scenario("founding", founding, again=found_again),
    Scenario("embedded", founding, again=found_again, embedded=True),
    Scenario("transactions", transactions),
    Scenario("manifests", transactions, small=_MANIFESTS),
    Scenario("sink", sink),
    Scenario("together", together),
    Scenario("sweeping", sweeping, small=_CHAINS),
    Scenario("compacting", compacting, small=_CHAINS),
    Scenario("trimming", trimming, small=_CHAINS),
    Scenario("persistent", persistent, small=_IN_STREAM),
    Scenario("backup", backing_up, judged_backup, small=_MANIFESTS),
    Scenario("restore", restoring, judged_restore, restore_again, small=_MANIFESTS | _IN_STREAM),
    Scenario("restore_filed", restoring, judged_restore, restore_again, small=_MANIFESTS | _IN_STREAM | _FILED),
)
