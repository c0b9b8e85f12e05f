"""`make chaos`: all of it, on SQLite and on a real ZooKeeper, and on a real cluster. Exits with 1 if anything at all was wrong.

python -m conformance.chaos [--store sqlite|zookeeper] [--kills 30] [--seed N]
    [--only points|topics|job|splits|migrate|load|clocks|cluster] [--domain topic|persistent|mixed]
    [--load-seconds 20] [--every 1] [--faults 100] [--kinds ...] [--logs FOLDER]
    [--faketime]

Without --domain the points and the job are done on topics of both domains, all else on topic://; with it only what can be of it is.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from conformance.chaos import migration_storm, migrations, topics
from conformance.chaos.clocks import clocks, faketime
from conformance.chaos.contention import load
from conformance.chaos.crash_points import AROUND, FATES, series
from conformance.chaos.crashing import Fate, When
from conformance.chaos.driver import Place
from conformance.chaos.forks import Forks
from conformance.chaos.spark_migration import spark_migration
from conformance.chaos.splits import splits
from conformance.chaos.streaming import Report, StreamingJob, random_kills, two_drivers, zombie_driver
from conformance.cluster.command import add_options, as_text, cluster
from conformance.domains import MIXED, PERSISTENT, TOPIC, named
from conformance.servers import ZooKeeperServer

STORES = ("sqlite", "zookeeper")
PARTS = ("points", "topics", "job", "splits", "migrate", "load", "clocks")
"""On each store."""
CLOCK_TRANSACTIONS = 200
CLUSTER = "cluster"
"""The cluster suite, which has servers of its own."""
OLDER = ("points", "job", "migrate", CLUSTER)
"""What there is for persistent topics alone."""


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


class Run:
    """One store, one folder, everything on it."""

    def __init__(self, forks: Forks, store: str, folder: Path, hosts: str, given: argparse.Namespace) -> None:
        self._forks, self._store, self._folder, self._hosts, self._given = forks, store, folder, hosts, given
        self._domains = {None: (TOPIC, PERSISTENT), MIXED: (TOPIC, PERSISTENT)}.get(given.domain, (given.domain,))
        self.wrong: list[str] = []

    def _place(self, name: str, domain: str = TOPIC) -> Place:
        name, topic = f"{domain}-{name}", named(domain, "chaos")
        if self._store == "sqlite":
            return Place(f"file://{self._folder}/{name}", topic)
        return Place(f"zk://{self._hosts}/{name}", topic, f"file://{self._folder}/{name}-ledgers")

    def _note(self, what: str, wrong: list[str], began: float) -> None:
        say(f"{self._store}: {what}; {len(wrong)} wrong ({time.monotonic() - began:.0f} s)")
        for text in wrong[:20]:
            say(f"    WRONG {text}")
        self.wrong += wrong

    def points(self) -> None:
        """Before and after each store call of a commit: killed, asleep, beside a twin, failing."""
        for domain, fate in itertools.product(self._domains, FATES):
            began = time.monotonic()
            cases = list(series(self._forks, self._place(fate, domain), fate))
            wrong = [f"{case.what}: {what}" for case in cases for what in case.wrong]
            what = f"{domain}://, {fate}: {len(cases)} crash points, {sum(c.hit for c in cases)} reached"
            self._note(what, wrong, began)

    def topics(self) -> None:
        """Transactions over four topics in two namespaces with acknowledgements: the same crash points, then random kills."""
        for fate in topics.FATES:
            began = time.monotonic()
            whens = AROUND if fate is Fate.DIE else (When.AFTER,)  # after a call and before the next one the store is the same
            cases = list(topics.points(self._forks, self._place(f"topics-{fate.name}"), fate, whens))
            wrong = [f"{case.what}: {what}" for case in cases for what in case.wrong]
            what = f"four topics, {fate.name}: {len(cases)} crash points, {sum(c.hit for c in cases)} reached"
            self._note(what, wrong, began)
        began = time.monotonic()
        folder = self._folder / "topics-storm"
        folder.mkdir()
        found = topics.storm(self._forks, self._place("storm"), folder, self._given.kills, random.Random(self._given.seed))
        what = f"four topics, random kills: {found.kills} kills, {found.batches} transactions, looked at {found.looks} times"
        self._note(what, found.wrong, began)

    def job(self) -> None:
        """A real streaming job: random kills, a zombie, two drivers."""
        for domain in self._domains:
            for name, report, began in self._jobs(domain, random.Random(self._given.seed)):
                seen = report.observed
                figures = (
                    f"{report.kills} kills, {report.batches} batches, {seen.reads} batch reads, {seen.micro_batches} micro-batches"
                )
                self._note(f"{domain}://, {name}: {figures}", report.wrong, began)

    def _jobs(self, domain: str, rng: random.Random) -> Iterator[tuple[str, Report, float]]:
        kills = self._given.kills
        done: dict[str, Callable[[StreamingJob], Report]] = {
            "random kills": lambda job: random_kills(job, kills, rng, lambda text: say(f"  {self._store}: {text}")),
            "zombie driver": lambda job: zombie_driver(job, rng),
            "two drivers": two_drivers,
        }
        for name, do in done.items():
            began, place = time.monotonic(), name.replace(" ", "-")
            with StreamingJob(self._forks, self._place(place, domain), self._folder / f"{domain}-{place}") as job:
                yield name, do(job), began

    def splits(self) -> None:
        """Writers and readers of a topic that is split 4 -> 16 and merged back; all of them are killed and stopped."""
        began = time.monotonic()
        folder = self._folder / "splits"
        folder.mkdir()
        given, rng = self._given, random.Random(self._given.seed)
        seconds = 2 * given.load_seconds
        found = splits(self._forks, self._place("splits-cluster"), folder, seconds=seconds, faults=given.kills, rng=rng)
        self._note(f"splits: {found}", found.wrong, began)

    def migrate(self) -> None:
        """Persistent topics that migrate while others write, read, acknowledge and move their rows: by command under Spark jobs,
        under random kills, and at each store call.
        """
        began, given = time.monotonic(), self._given
        wrong = self._forks.call(migrations.refusals, self._place("migrations-refused"))
        self._note("migrations with open transactions: refused, waiting, aborting", wrong, began)
        began, folder = time.monotonic(), self._folder / "migrations-spark"
        folder.mkdir()
        through = spark_migration(self._forks, self._place("migrations-spark-cluster", PERSISTENT), folder)
        self._note(f"migration through Spark: {through}", through.wrong, began)
        began = time.monotonic()
        folder, rng = self._folder / "migrations-storm-notes", random.Random(given.seed)
        found = migration_storm.storm(self._forks, self._place("migrations-storm"), folder, given.kills, rng)
        self._note(f"migrations, random kills: {found}", found.wrong, began)
        for fate, twins in (*((fate, False) for fate in migrations.FATES), (Fate.DIE, True)):
            began, name = time.monotonic(), f"migrations-{fate.name}{'-twins' * twins}".lower()
            folder = self._folder / f"{name}-notes"
            cases = list(migrations.points(self._forks, self._place(name), folder, fate, twins=twins, every=self._given.every))
            wrong = [f"{case.what}: {what}" for case in cases for what in case.wrong]
            meant, reached = len(cases) - len(migrations.WAYS), sum(case.hit for case in cases)
            if 2 * reached < max(meant, 1):  # (under load one migration takes more calls than another)
                wrong.append(f"of {meant} crash points only {reached} were reached")
            what = f"migrations, {fate.name}{' beside a twin' * twins}: {meant} crash points"
            self._note(f"{what}, {reached} reached (demanded: half of them)", wrong, began)

    def load(self) -> None:
        """Writers and readers, one of them a Spark query."""
        began = time.monotonic()
        folder = self._folder / "load"
        folder.mkdir()
        readers = ("buffer", "stream")
        found = load(
            self._forks, self._place("load-cluster"), folder, seconds=self._given.load_seconds, readers=readers, spark=True
        )
        late = [f"{name} fell {lag.behind:.0f} ms behind" for name, lag in found.lag.items() if lag.behind >= 1000]
        self._note(f"load: {found}", found.wrong + late, began)

    def clocks(self) -> None:
        """Processes whose clocks are hours apart."""
        ways = {"shifted by Python": None} | ({"shifted by libfaketime": faketime()} if self._given.faketime else {})
        for number, (way, library) in enumerate(ways.items()):
            began, folder = time.monotonic(), self._folder / f"clocks-{number}"
            folder.mkdir()
            found = clocks(self._place(f"clocks-cluster-{number}"), folder, CLOCK_TRANSACTIONS, library=library)
            self._note(f"clocks hours apart, {way}: {found}", found.wrong, began)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.chaos", description=__doc__)
    parser.add_argument("--store", choices=STORES, action="append", help="only this one (default: both)")
    parser.add_argument("--only", choices=(*PARTS, CLUSTER), action="append", help="only this part (default: all)")
    parser.add_argument("--kills", type=int, default=30, help="random kills of the streaming job on each store")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--load-seconds", type=float, default=20.0)
    parser.add_argument("--every", type=int, default=1, help="of a migration's crash points: only each so many-th")
    parser.add_argument("--faketime", action="store_true", help="the clocks part also with libfaketime (apt-get install faketime)")
    add_options(parser.add_argument_group("cluster suite"), faults=100)
    given = parser.parse_args()
    if given.faketime:
        faketime()  # missing, it is missed before anything has run
    say(f"seed {given.seed}")
    parts = given.only or (OLDER if given.domain == PERSISTENT else (*PARTS, CLUSTER))
    wrong = _on_stores(given, [part for part in parts if part != CLUSTER])
    if CLUSTER in parts:
        found = cluster(given, given.seed)
        say(as_text(found))
        wrong += [f"cluster: {one.name}: {one.detail}" for one in found if not one.ok]
    say("Nothing was lost, doubled or split." if not wrong else f"{len(wrong)} things were wrong.")
    return 1 if wrong else 0


def _on_stores(given: argparse.Namespace, parts: list[str]) -> list[str]:
    """What was wrong with these parts on each store."""
    wrong: list[str] = []
    if not parts:
        return wrong
    forks = Forks()
    with tempfile.TemporaryDirectory(prefix="txnsegment-chaos-") as temporary, ExitStack() as servers:
        for store in given.store or STORES:
            folder = Path(temporary) / store
            folder.mkdir()
            hosts = servers.enter_context(ZooKeeperServer(folder / "server")).hosts if store == "zookeeper" else ""
            run = Run(forks, store, folder, hosts, given)
            for part in parts:
                getattr(run, part)()
            wrong += run.wrong
    return wrong


if __name__ == "__main__":
    sys.exit(main())
