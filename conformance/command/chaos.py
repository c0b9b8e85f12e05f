"""`python -m conformance.scenarios` (`make chaos`) runs every scenario on SQLite and on a real ZooKeeper, and the cluster suite.

python -m conformance.scenarios [--store sqlite|zookeeper] [--kills 30] [--seed N]
    [--only points|topics|job|splits|migrate|load|clocks|cluster] [--domain topic|persistent|mixed]
    [--load-seconds 20] [--every 1] [--faults 100] [--kinds ...] [--logs FOLDER]
    [--faketime]

The domain of a topic is topic:// or persistent://. Without --domain, the parts `points` and `job` run on topics of both domains,
`migrate` on persistent:// topics, and all other parts on topic:// topics. With --domain persistent, the parts that need topic://
topics are left out. The exit code is 1 if a scenario found anything wrong.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from conformance.command.cluster import CLUSTER as CLUSTER_SUITE
from conformance.command.cluster import kinds
from conformance.command.simulation import RECORD
from conformance.domains import MIXED, PERSISTENT, TOPIC, named
from conformance.scenarios.clocks import Clocks, faketime
from conformance.scenarios.cluster.plan import BY_NAME
from conformance.scenarios.cluster.run import Cluster, results
from conformance.scenarios.cluster.scene import chosen
from conformance.scenarios.commit_points import AROUND, CommitPoints
from conformance.scenarios.contention import Load
from conformance.scenarios.crashing import When
from conformance.scenarios.driver import Place
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Forks
from conformance.scenarios.migration_storm import MigrationStorm
from conformance.scenarios.migrations import FAULTS, MigrationPoints, Refusals
from conformance.scenarios.scenario import Scenario, reported
from conformance.scenarios.spark_migration import SparkMigration
from conformance.scenarios.splits import Splits
from conformance.scenarios.streaming import RandomKills, TwoDrivers, ZombieDriver
from conformance.scenarios.topics import TopicsPoints, TopicsStorm
from conformance.servers import ZooKeeperServer

STORES = ("sqlite", "zookeeper")
CLOCK_TRANSACTIONS = 200
CLUSTER_FAULTS = 100
CLUSTER = "cluster"
"""The name of the cluster suite, which starts ZooKeeper servers of its own."""
OLDER = ("points", "job", "migrate", CLUSTER)
"""The parts that can run without topic:// topics."""
BEHIND_MS = 1000.0
"""The largest lag that a reader may have under load, in milliseconds."""


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


@dataclass(frozen=True)
class Stage:
    """One store, and the arguments of the command line. Each call of `place` or `notes` must have a new name, so that no two
    scenarios share a cluster or a folder.
    """

    forks: Forks
    store: str
    folder: Path
    hosts: str
    given: argparse.Namespace

    @property
    def domains(self) -> tuple[str, ...]:
        return (TOPIC, PERSISTENT) if self.given.domain in (None, MIXED) else (self.given.domain,)

    @property
    def rng(self) -> random.Random:
        return random.Random(self.given.seed)

    def place(self, name: str, domain: str = TOPIC) -> Place:
        name, topic = f"{domain}-{name}", named(domain, "chaos")
        if self.store == "sqlite":
            return Place(f"file://{self.folder}/{name}", topic)
        return Place(f"zk://{self.hosts}/{name}", topic, f"file://{self.folder}/{name}-ledgers")

    def notes(self, name: str, *, made: bool = True) -> Path:
        folder = self.folder / f"{name}-notes"
        if made:
            folder.mkdir()
        return folder


def points(on: Stage) -> Iterator[Scenario]:
    """Yield a scenario of a commit for each domain and each of four faults. The fault strikes at each store call of the commit in
    turn. KILL kills the process, and STOP stops it. TWIN kills it beside a second process that does the same work. FAIL lets the
    store call raise an error.
    """
    for domain, fault in itertools.product(on.domains, (Fault.KILL, Fault.STOP, Fault.TWIN, Fault.FAIL)):
        yield CommitPoints(on.forks, on.place(fault, domain), fault)


def topics(on: Stage) -> Iterator[Scenario]:
    """Yield scenarios of transactions with acknowledgements over four topics: one with crash points for each fault, and then one
    with random kills.
    """
    for fault in (Fault.KILL, Fault.STOP, Fault.FAIL):
        # A process that stops before a call, or whose call fails before it is sent, leaves the store as after the previous call.
        whens = AROUND if fault is Fault.KILL else (When.AFTER,)
        yield TopicsPoints(on.forks, on.place(f"topics-{fault}"), fault, whens)
    yield TopicsStorm(on.forks, on.place("storm"), on.notes("topics-storm"), on.given.kills, on.rng)


def job(on: Stage) -> Iterator[Scenario]:
    """Yield scenarios of a real streaming job whose driver is killed at random, is stopped and resumed, or has a twin."""
    for domain in on.domains:
        kills = on.notes(f"{domain}-random-kills", made=False)
        yield RandomKills(on.forks, on.place("random-kills", domain), kills, on.rng, on.given.kills, say)
        yield ZombieDriver(on.forks, on.place("zombie-driver", domain), on.notes(f"{domain}-zombie", made=False), on.rng)
        yield TwoDrivers(on.forks, on.place("two-drivers", domain), on.notes(f"{domain}-two", made=False), on.rng)


def splits(on: Stage) -> Iterator[Scenario]:
    """Yield the scenario in which a topic is split and merged while its writers and readers are killed and stopped."""
    seconds, kills = 2 * on.given.load_seconds, on.given.kills
    yield Splits(on.forks, on.place("splits"), on.notes("splits"), seconds=seconds, faults=kills, rng=on.rng)


def migrate(on: Stage) -> Iterator[Scenario]:
    """Yield scenarios of migrations. In the first one a transaction is open. In the second one Spark jobs use the topic. In the
    third one processes are killed at random. In each further one a certain fault strikes at each store call of a migration.
    """
    yield Refusals(on.forks, on.place("migrations-refused"))
    yield SparkMigration(on.forks, on.place("migrations-spark", PERSISTENT), on.notes("migrations-spark"))
    yield MigrationStorm(on.forks, on.place("migrations-storm"), on.notes("migrations-storm"), on.given.kills, on.rng)
    for fault in FAULTS:
        place, notes = on.place(f"migrations-{fault}"), on.notes(f"migrations-{fault}")
        yield MigrationPoints(on.forks, place, notes, fault, every=on.given.every)


def load(on: Stage) -> Iterator[Scenario]:
    """Yield the scenario in which readers read while writers commit as fast as they can. One of the readers is a Spark query."""
    seconds, readers = on.given.load_seconds, ("buffer", "stream")
    place, notes = on.place("load"), on.notes("load")
    yield Load(on.forks, place, notes, seconds=seconds, readers=readers, spark=True, behind_ms=BEHIND_MS)


def clocks(on: Stage) -> Iterator[Scenario]:
    """Yield scenarios of processes whose clocks are hours apart."""
    for number, library in enumerate((None, faketime()) if on.given.faketime else (None,)):
        yield Clocks(on.place(f"clocks-{number}"), on.notes(f"clocks-{number}"), CLOCK_TRANSACTIONS, library=library)


PARTS: Mapping[str, Callable[[Stage], Iterator[Scenario]]] = {
    made.__name__: made for made in (points, topics, job, splits, migrate, load, clocks)
}
"""Name of a part -> the function that yields its scenarios. Each part runs on each store."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.scenarios", description=__doc__)
    parser.add_argument("--store", choices=STORES, action="append", help="run on this store only (default: both)")
    parser.add_argument("--only", choices=(*PARTS, CLUSTER), action="append", help="run this part only (default: all)")
    parser.add_argument("--kills", type=int, default=30, help="random kills of the streaming job on each store")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--load-seconds", type=float, default=20.0)
    parser.add_argument("--every", type=int, default=1, help="kill a migration at each Nth crash point only (default 1)")
    parser.add_argument("--faketime", action="store_true", help="run clocks also with libfaketime (apt-get install faketime)")
    group = parser.add_argument_group("cluster suite")
    for word in CLUSTER_SUITE.words:
        if word is not RECORD:
            word.add_to(group)
            parser.set_defaults(**{word.name: word.default})
    parser.set_defaults(faults=CLUSTER_FAULTS)
    given = parser.parse_args()
    if given.faketime:
        faketime()  # if libfaketime is missing, raise the error before any scenario runs
    say(f"seed {given.seed}")
    signal.signal(signal.SIGTERM, _interrupt)
    parts = given.only or (OLDER if given.domain == PERSISTENT else (*PARTS, CLUSTER))
    wrong = _on_stores(given, [part for part in parts if part != CLUSTER])
    if CLUSTER in parts:
        wrong += _on_a_cluster(given)
    say("Nothing was lost, doubled or split." if not wrong else f"{len(wrong)} things were wrong.")
    return 1 if wrong else 0


def _on_stores(given: argparse.Namespace, parts: list[str]) -> list[str]:
    """Run the scenarios of these parts on each store. Return what they found wrong."""
    wrong: list[str] = []
    if not parts:
        return wrong
    forks = Forks()
    with tempfile.TemporaryDirectory(prefix="txnsegment-chaos-") as temporary, ExitStack() as servers:
        for store in given.store or STORES:
            folder = Path(temporary) / store
            folder.mkdir()
            hosts = servers.enter_context(ZooKeeperServer(folder / "server")).hosts if store == "zookeeper" else ""
            on = Stage(forks, store, folder, hosts, given)
            for part in parts:
                for scenario in PARTS[part](on):
                    wrong += reported(scenario, store, say)
    return wrong


def _on_a_cluster(given: argparse.Namespace) -> list[str]:
    """Run the cluster suite as a scenario, and print its progress. Return what it found wrong."""
    began = time.monotonic()
    if given.logs is not None:
        given.logs.mkdir(parents=True, exist_ok=True)
    scenario = Cluster(
        given.faults,
        given.seed,
        lambda text: say(f"{time.monotonic() - began:6.0f} s  {text}"),
        kinds=kinds(given.kinds),
        scene=chosen(scale=given.scaling, domain=given.domain),
        quiet_seconds=given.quiet_seconds,
        wheel=given.wheel,
        out=given.logs,
    )
    wrong = reported(scenario, CLUSTER, say)
    kept = [f"{one.name}: {one.detail}" for one in results(scenario.report, wrong) if not one.ok and one.name in BY_NAME]
    for text in kept:
        say(f"    WRONG {text}")
    return wrong + kept


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise SystemExit at SIGTERM, so that the running scenario ends its servers and processes."""
    raise SystemExit(128 + number)
