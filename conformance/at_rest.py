"""Run many commits of every kind on a real store, then count the remaining records and files (protocol.md section 8.14).

The run does every kind of work that leaves records or files: writes of streams, batches with a chosen or a random application id,
empty batches, attempts that are aborted after their registration, acknowledgements inside and outside of transactions. It creates
and deletes topics and subscriptions. It deletes persistent topics, and it migrates others, whose successors are then trimmed or
deleted. At the end the clock passes the header retention, the orphan age and the grace period, and sweeps run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledgers import snapshots
from ledgers.model import Part
from metadata.client.client import Client, client
from metadata.client.passes import delete_orphans
from metadata.client.upkeep import upkeep
from metadata.cluster.cluster import open_cluster
from metadata.cluster.reports import keys_without_reports
from metadata.common.clock import SystemClock
from metadata.common.errors import AckConflict
from metadata.maintenance.sweeper import FORGET_EVERY_MS
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.folders import folder_of
from metadata.records.names import PersistentName, TopicName, topic_name
from metadata.records.records import Watermark
from metadata.records.row_ranges import end_of, parse_all
from metadata.rules import acks
from metadata.rules.acks import Ack
from metadata.rules.transitions import Claim
from metadata.store.contract import decide, time_ms
from metadata.store.zookeeper import ZooKeeperStore
from metadata.topics import policies
from metadata.write.write_set import WriteSet

SETTINGS = Settings(
    txn_timeout_ms=30_000, header_retention_ms=10_000, orphan_age_ms=3_600_000, grace_period_ms=3_600_000, fold_after_ms=1_000
)
EVERY_MS = 50
"""Milliseconds of the store's time from one commit to the next."""
CATCH_UP = 20
"""Number of commits after which the run waits for the background work. Without this wait the background work could fall behind the
store's time, because the run moves the clock by hand.
"""
PART_BYTES = 8_192
"""Size of each part file. No test reads the content of these files."""
SEGMENTS = 4
GONE = 5
"""Number of times that a run creates, uses and deletes a topic, a subscription and persistent topics (`AtRest._come_and_go`)."""
SUCCESSOR_SEGMENTS = 2
"""Number of segments that a migration creates in the successor."""
FIXED = 8
"""Number of records that each cluster has once: the cluster, its founding, the sweepers' turn, the time that sweeps have seen pass,
the transaction ids, the newest record of the log, the snapshot of the transaction log for persistent topics, and one to spare.
"""


class Hurried(SystemClock):
    """The machine's clock plus `ahead_ms`, which the run raises. In a run, the ZooKeeper store measures the server's time only
    once. Later it adds the time that has passed on this clock. So `ahead_ms` also moves the time of that store.
    """

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_ms / 1000


class ByHand(Hurried):
    """A clock for stores that have no time of their own. It begins at the machine's time, because files have the machine's times.

    `now_ms` then changes only if the run raises `ahead_ms`. So the header retention covers the same number of commits on every
    machine. `monotonic` also advances by the time of each sleep, so that a waiting loop reaches its deadline.
    """

    def __init__(self) -> None:
        self._began_ms = super().now_ms()
        self._waited = 0.0

    def now_ms(self) -> int:
        return self._began_ms + self.ahead_ms

    def monotonic(self) -> float:
        return self.ahead_ms / 1000 + self._waited

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._waited += seconds


def bound_meanwhile(at_rest: int) -> int:
    """Return the maximum number of records during the run. This maximum does not depend on the number of commits.

    `at_rest`: the result of `bound`. During the run the header retention also keeps headers, tombstones of subscriptions, and the
    records of applications with a random id (one commit in twenty has such an id). Other records wait for the next sweep.
    """
    kept_ms = SETTINGS.header_retention_ms + FORGET_EVERY_MS + 10 * SETTINGS.fold_after_ms
    return at_rest + 2 * kept_ms // EVERY_MS


def bound(*, topics: int, deleted: int, segments: int, cursors: int, applications: int, migrated: int = 0) -> int:
    """Return the maximum number of records of a store at rest (operations.md, What stays). This maximum does not depend on the
    number of commits or on the time.

    `topics`: number of existing topics; each has its record and a schema. `deleted`: number of topics that were deleted and not
    created again; each has a tombstone and its newest schema. `segments`, `cursors`: number of segments and of cursors of existing
    topics. `applications`: number of pairs (appId, topic) with a chosen appId, not a random one. `migrated`: number of persistent
    topics that were migrated and whose entries were then removed. Two records of each are left: the topic's record, which names the
    successor, and the SEAL.
    """
    return FIXED + 2 * (topics + deleted + migrated) + segments + cursors + applications


@dataclass
class Left:
    """The records and files that are left at rest.

    `records`: number of records. `allowed`: the result of `bound`. `kinds`: number of records by kind. `needed`: bytes of committed
    parts and of index snapshots. `bytes`: bytes of all files of segments. `files`: number of all files.
    """

    commits: int
    records: int
    allowed: int
    kinds: Mapping[str, int]
    needed: int
    bytes: int
    files: int
    most_records: int
    """Largest number of records during the run, counted at every hundredth commit."""
    allowed_meanwhile: int


@dataclass
class AtRest:
    """One run on a new cluster, whose ledger root is a folder of this machine."""

    url: str
    root: Path
    commits: int
    clock: Hurried = field(init=False)
    _versions: Counter[str] = field(default_factory=Counter)
    _aborted: int = 0

    def __post_init__(self) -> None:
        self.clock = Hurried() if self.url.startswith("zk://") else ByHand()

    def run(self, told: Callable[[int], None] = lambda _: None) -> Left:
        cluster = open_cluster(self.url, ledgers=f"file://{self.root}", settings=SETTINGS, clock=self.clock)
        if isinstance(cluster.store, ZooKeeperStore):
            cluster.store._session.time_seconds = math.inf  # never measure the server's clock again; `self.clock` moves instead
        made = client(cluster)
        try:
            a, b = topic_name("a"), topic_name("b")
            for topic in (a, b):
                made.topics.create(topic, segments=SEGMENTS)
                made.subscriptions.create(topic, "s", at=0)
            most = 0
            for n in range(self.commits):
                self._commit(made, a, b, n)
                self.clock.ahead_ms += EVERY_MS
                if n % max(1, self.commits // GONE) == 0:
                    self._come_and_go(made, a, n)
                if n % CATCH_UP == 0:
                    made.finish()
                if n % 100 == 0:
                    most = max(most, self._count(made))
                    told(n)
            made.finish()
            # Headers expire in the first pass. Files and deleted topics need three further passes. A replaced file, for example,
            # must reach the orphan age. Then a pass must find that no record names it. Then the grace period must pass.
            for _ in range(4):
                self.clock.ahead_ms += SETTINGS.orphan_age_ms + SETTINGS.grace_period_ms + 1
                made.sweep()
                upkeep(made)
                delete_orphans(cluster)
            made.sweep()
            return self._left(made, (a, b), most)
        finally:
            made.close()

    # --- what is committed ----------------------------------------------------------------------------------------------

    def _commit(self, made: Client, a: TopicName, b: TopicName, n: int) -> None:
        match n % 20:
            case 0:
                self._write(made, f"write-{n}", a, random=True)
            case 1:
                self._write(made, "etl", b, replays=False)
            case 2:
                self._write(made, "quiet", a, rows=False)
            case 3:
                self._write(made, "consumer", b, acks=[acks.up_to(self._segment(made, a), "s", end_of(self._end(made)))])
            case 4:
                made.coordinator.acks.advance([acks.up_to(self._segment(made, b), "s", end_of(self._end(made)))])
                self._write(made, "stream", a)
            case 5:
                self._refused(made, a, b)
                self._write(made, "stream", a)
            case _:
                self._write(made, "stream" if n % 2 else "other", a if n % 3 else b)

    def _write(
        self,
        made: Client,
        app: str,
        topic: TopicName,
        *,
        rows: bool = True,
        random: bool = False,
        replays: bool = True,
        acks: list[Ack] | None = None,
    ) -> None:
        key = f"{app} {topic}"
        version = self._versions[key]
        staged = time_ms(made.cluster.store)
        parts = self._parts(made, topic, f"{app}-{version}") if rows else {}
        claim = Claim(version, app if replays else None, f"{app}-{version}-{self._aborted}", replays)
        work = WriteSet(app, str(topic), claim, parts, staged, SETTINGS.txn_timeout_ms, random=random, acks=acks or ())
        made.coordinator.commit(work)
        self._versions[key] += 1

    def _parts(self, made: Client, topic: TopicName, name: str) -> dict[str, list[Part]]:
        found = {}
        for segment in made.topics.get(topic).segments()[:2]:
            found[segment] = [self._part(folder_of(segment), f"{name}-{self._aborted}")]
        return found

    def _part(self, folder: str, name: str) -> Part:
        path = f"{folder}/{name}.parquet"
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * PART_BYTES)
        return Part(path, 10, PART_BYTES, 0, (10,), 0)

    def _refused(self, made: Client, a: TopicName, b: TopicName) -> None:
        """Register a transaction that is then aborted, because it acknowledges rows a second time. Its parts become orphans."""
        self._aborted += 1
        again = Ack(self._segment(made, a), "s", parse_all(["1:0"]))
        try:
            self._write(made, "refused", b, acks=[again])
        except AckConflict:
            return
        raise AssertionError("the rows were acknowledged before")

    def _come_and_go(self, made: Client, a: TopicName, n: int) -> None:
        passing = topic_name(f"passing-{n}")
        made.topics.create(passing, segments=2)
        made.subscriptions.create(passing, "s", at=0)
        self._write(made, f"passing-{n}", passing, random=True)
        made.topics.delete(passing)
        made.subscriptions.create(a, f"s-{n}", at=0)
        made.subscriptions.delete(a, f"s-{n}")
        made.instream.sealing.delete(self._older(made, f"older-{n}"))
        self._trimmed_whole(made, self._migrated(made, f"trimmed-{n}"))
        _, to = self._migrated(made, f"migrated-{n}")
        made.topics.delete(to)

    def _older(self, made: Client, name: str) -> PersistentName:
        """Create a persistent topic with a subscription and one committed transaction."""
        older = PersistentName("public", "default", name)
        made.instream.topics.create(older)
        made.instream.acks.create(str(older), "s")
        parts = {str(older): [self._part(folder_of(str(older)), name)]}
        claim = Claim(1, None, name, False)
        work = WriteSet(name, str(older), claim, parts, time_ms(made.cluster.store), SETTINGS.txn_timeout_ms, random=True)
        made.instream.coordinator.commit(work)
        return older

    def _migrated(self, made: Client, name: str) -> tuple[PersistentName, TopicName]:
        older, to = self._older(made, name), topic_name(name)
        made.instream.migrator.migrate(older, to, segments=SUCCESSOR_SEGMENTS)
        return older, to

    @staticmethod
    def _trimmed_whole(made: Client, names: tuple[PersistentName, TopicName]) -> None:
        """Let retention trim all rows of a migrated topic: set a short limit, and acknowledge all rows for the subscription."""
        older, to = names
        policies.put(made.cluster, str(to), {"retention_ms": 1})
        made.coordinator.acks.advance([acks.up_to(str(older), "s", end_of(10**6))])

    @staticmethod
    def _segment(made: Client, topic: TopicName) -> str:
        return made.topics.get(topic).segments()[0]

    @staticmethod
    def _end(made: Client) -> int:
        keys = decide(made.cluster.store, lambda view: view.keys(paths.LOG.range()))
        return paths.sequence_number(keys[-1]) if keys else 0

    # --- what is left ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _count(made: Client) -> int:
        return len(decide(made.cluster.store, keys_without_reports))

    @staticmethod
    def _applications(keys: Iterable[str]) -> int:
        """Return how many of the keys ("<appId> <topic>") have an appId that a program chose. Keys that begin with `write-` or
        `passing-` have a random appId and are not counted.
        """
        return sum(not key.startswith(("write-", "passing-")) for key in keys)

    def _left(self, made: Client, topics: tuple[TopicName, ...], most: int) -> Left:
        found = decide(made.cluster.store, keys_without_reports)
        segments = [s for t in topics for s in made.topics.get(t).segments()]
        allowed = bound(
            topics=len(topics) + GONE,  # the successors that were trimmed and not deleted count, too
            deleted=3 * GONE,
            segments=len(segments) + SUCCESSOR_SEGMENTS * GONE,
            cursors=len(segments) + SUCCESSOR_SEGMENTS * GONE,
            migrated=2 * GONE,
            applications=self._applications({*self._versions, "refused"}),
        )
        storage = made.cluster.storage
        files = {f.path: f.bytes for f in storage.list("")}
        needed = {file for s in segments for file in self._needed(made, s)}
        return Left(
            self.commits,
            len(found),
            allowed,
            Counter(_kind(path) for path in found),
            sum(files[path] for path in needed),
            sum(size for path, size in files.items() if _of_a_segment(path)),
            len(files),
            most,
            bound_meanwhile(allowed),
        )

    @staticmethod
    def _needed(made: Client, segment: str) -> list[str]:
        """Return the files that a reader of the whole segment opens: its committed parts and the files of its index snapshot."""
        record = decide(made.cluster.store, lambda view: view.get(paths.watermark(segment)))
        mark = None if record is None else Watermark.of(record)
        if mark is None or mark.snapshot is None:
            return []
        head = snapshots.read_head(made.cluster.storage, mark.snapshot)
        parts = [p.path for found in snapshots.read_ledgers(made.cluster.storage, head, 0, mark.ledger_id) for p in found.parts]
        return [*snapshots.files(head), *parts]


def _of_a_segment(path: str) -> bool:
    """Return whether the file is a part or an index snapshot of a segment, not `cluster.json` or a file below `sweep/`."""
    return path.count("/") >= 4


def _kind(path: str) -> str:
    return "/".join(path.split("/")[1:3]) if path.startswith("/txn/") else path.split("/")[1]
