"""Persistent topics migrate under load, three in each round. Meanwhile the processes of the workload and the migrating process are
killed and stopped at random.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from conformance.history.files import read
from conformance.history.format import Commit, Poll, Read, Told, Written
from conformance.scenarios import migration_workload as parties
from conformance.scenarios.dangling_transactions import die_registered, wait_for_deadlines
from conformance.scenarios.driver import Place, make
from conformance.scenarios.forks import Child, Died, Forks, Killed, Storm, Struck
from conformance.scenarios.history import now
from conformance.scenarios.migration_checker import Cast
from conformance.scenarios.migration_workload import ROWS, Scene
from conformance.scenarios.migrations import LAST_SECONDS, SETTINGS, WAIT_SECONDS, die_midway, judge, prepare
from conformance.scenarios.scenario import Scenario

KILLS_A_ROUND = 6
WRITING = ("writer", "spanning", "sender")
"""The parties that write rows of their own."""
BETWEEN_SECONDS = (0.05, 0.5)


class MigrationStorm(Scenario):
    """The scenario. In each round, three topics in two namespaces migrate while the processes of the workload and the migrating
    process are killed and stopped.

    The first kill of each round strikes the migrating process while the second topic migrates. After a round with an error there
    are no more rounds.
    """

    name = "migrations, random kills"

    def __init__(self, forks: Forks, place: Place, folder: Path, kills: int, rng: random.Random) -> None:
        self._forks, self._place, self._folder, self._kills, self._rng = forks, place, folder, kills, rng
        self._wrong: list[str] = []
        self.count: Counter[str] = Counter()
        """Counts of the work and of the faults, by name. `slowest_ms` is the time that the slowest migration took."""

    def setup(self) -> None:
        self._forks.call(make, self._place, SETTINGS)

    def faults(self) -> None:
        while self.count["kills"] < self._kills and not self._wrong:
            number, kills = self.count["rounds"], min(KILLS_A_ROUND, self._kills - self.count["kills"])
            one = _Round(self._forks, self._place, self._folder / f"round{number}", number, self._rng)
            with closing(one):
                one.begin()
                one.strike(kills)
                self._wrong += [f"round {number}: {what}" for what in one.end()]
            self.count.update(one.count)
            self.count["rounds"] += 1
            took = [int(ms) for file in one.scene.folder.glob("*-ms") for ms in file.read_text().split()]
            self.count["slowest_ms"] = max([self.count["slowest_ms"], *took])

    def check(self) -> list[str]:
        return self._wrong

    def figures(self) -> str:
        count = self.count
        return (
            f"{3 * count['rounds']} topics migrated under {count['transactions']} transactions ({count['again']} run again), "
            f"{count['rows']} rows, {count['micro-batches']} micro-batches, {count['looks']} looks; {count['kills']} kills, "
            f"{count['stops']} stops, {count['migrators']} of the migrating process; "
            f"the slowest migration took {count['slowest_ms']} ms"
        )


def _cast(number: int) -> Cast:
    a, b, c = (f"persistent://acme/{where}{number}" for where in ("north/a", "south/b", "south/c"))
    return Cast(
        {name: name.replace("persistent://", "topic://") for name in (a, b, c)},
        writers={"writer": [a], "spanning": [a, b]},
        senders={"sender": b},
        consumers={"consumer": [a, b]},
        movers={"mover": (a, c)},
        streams={"stream": [a, b], "limited": [a]},
        lookers={"looker": [a, b]},
    )


class _Round:
    """One round: three topics migrate, one after the other, under load."""

    def __init__(self, forks: Forks, place: Place, folder: Path, number: int, rng: random.Random) -> None:
        self._forks, self._place, self._number, self._rng = forks, place, number, rng
        self._cast, self.scene = _cast(number), Scene(place.url, folder)
        self._storm = Storm()
        self._wrong: list[str] = []
        self.count: Counter[str] = Counter()

    def begin(self) -> None:
        """Start all parties and wait until each has done some work."""
        self.scene.begin()
        self._forks.call(prepare, self._place.url, list(self._cast.successors), ["consumer", "mover"])
        cast = self._cast
        for name in ("writer", "spanning"):
            self._begin(name, parties.write_on, cast.writers[name])
        self._begin("sender", parties.send_on, cast.senders["sender"])
        self._begin("consumer", parties.acknowledge_on, cast.consumers["consumer"])
        self._begin("mover", parties.move_on, *cast.movers["mover"])
        self._begin("stream", parties.stream_on, cast.streams["stream"])
        self._begin("limited", parties.stream_on, cast.streams["limited"], 2 * ROWS)
        self._begin("looker", parties.look_on, cast.lookers["looker"])
        self.scene.wait_for_work(self._storm.running, self._storm.running.values())

    def _begin(self, name: str, party: Callable[..., None], *arguments: object) -> None:
        self._storm.start(name, partial(self._forks.start, party, self.scene, name, *arguments))

    def strike(self, kills: int) -> None:
        """Kill the migrating process while the second topic migrates. Then strike processes at random, `kills` - 1 times. Then
        wait until all topics have migrated.
        """
        storm, rng = self._storm, self._rng
        hows = [rng.choice((None, WAIT_SECONDS)) for _ in self._cast.successors]
        migrates = (list(self._cast.successors.items()), 1 + self._number % 3, hows)
        time.sleep(rng.uniform(0.0, 1.0))
        victim = self._forks.start(die_midway, self.scene, "migrator", *migrates)
        self.count["migrators"] += expect_kill(victim, "the process that migrates, in its second topic,", self._wrong)
        self.count["kills"] += self.count["migrators"]
        self._begin("migrator", parties.migrate_on, *migrates)
        for _ in range(kills - 1):
            time.sleep(rng.uniform(*BETWEEN_SECONDS))
            others = [name for name in storm.running if name != "migrator"]
            name = "migrator" if rng.random() < 0.5 and not storm.running["migrator"].ended(0) else rng.choice(others)
            hit = storm.strike(name, rng)
            self.count["migrators"] += name == "migrator" and hit is not Struck.MISSED
        storm.end(["migrator"], LAST_SECONDS)

    def end(self) -> list[str]:
        """Let the writers do more work, then let all parties end. Return what is wrong."""
        storm, place = self._storm, self._place
        self.scene.wait_for_work([*WRITING, *self._cast.movers], storm.running.values(), more=2)
        nobody = self.scene.history("nobody")  # a party that opens one transaction and never decides it
        rows = tuple(Written("nobody.0", "nobody", topic) for topic in self._cast.successors)
        nobody.add(Commit(now(), "nobody", "nobody", "nobody", "", 0, rows))
        registered = self._forks.start(die_registered, place.url, list(self._cast.successors))
        self.count["kills"] += expect_kill(registered, "the process that registered a transaction", self._wrong)
        self.scene.end_work()
        storm.end(WRITING, LAST_SECONDS)
        # Readers must not end before all transactions have ended. Otherwise they would stop below an OPEN transaction and miss the
        # rows above it.
        self._wrong += self._forks.call(wait_for_deadlines, place.url)
        nobody.add(Told(now(), "nobody", "failed"))
        nobody.close()
        self.scene.end_reading()
        storm.end(list(storm.running), LAST_SECONDS)
        self._wrong += self._forks.call(judge, place, self.scene.folder, self._cast)
        self.count.update(kills=storm.kills, stops=storm.stops)
        self.count.update(_done(self.scene.folder))
        return self._wrong

    def close(self) -> None:
        self._storm.close()


def expect_kill(child: Child, who: str, wrong: list[str]) -> bool:
    """Wait for a process that should kill itself. Return whether it was killed. If not, add a text about its end to `wrong`."""
    try:
        child.result()
        wrong.append(f"{who} was not killed and came to its end")
    except Killed:
        return True
    except Died as died:
        wrong.append(f"{who} was not killed: {died}")
    return False


def _done(folder: Path) -> Counter[str]:
    """Return the counts of transactions, rows, micro-batches and reads that the parties recorded."""
    count: Counter[str] = Counter()
    for file in folder.glob("*.jsonl"):
        history = read(file)
        rows = {event.call: len(event.rows) for event in history if isinstance(event, Commit)}
        for event in history:
            if isinstance(event, Told) and file.stem in WRITING:
                done = event.said == "committed"
                count["transactions"] += done and rows[event.call] == ROWS
                count["rows"] += rows[event.call] if done else 0
                count["again"] += event.said == "unknown"
            count["micro-batches"] += isinstance(event, Poll) and event.subscription is None
            count["looks"] += isinstance(event, Read)
    return count
