"""Rounds of persistent topics that migrate under load, while all parties, and who migrates, are killed and stopped at random."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from conformance.chaos import migration_workload as parties
from conformance.chaos.driver import Place, make
from conformance.chaos.forks import Child, Died, Forks, Killed, Struck, strike
from conformance.chaos.left_open import die_registered, wait_for_deadlines
from conformance.chaos.migration_checker import Cast
from conformance.chaos.migration_workload import ROWS, Scene
from conformance.chaos.migrations import LAST_SECONDS, SETTINGS, WAIT_SECONDS, die_midway, judge, prepare
from conformance.history.files import read
from conformance.history.format import Commit, Poll, Read, Told

KILLS_A_ROUND = 6
WRITING = ("writer", "spanning", "sender")
"""Who writes rows of its own."""
BETWEEN_SECONDS = (0.05, 0.5)


@dataclass
class Stormed:
    """What came of random kills. `migrators`: how many kills and stops were of who migrates; `slowest_ms`: of a migration."""

    rounds: int = 0
    kills: int = 0
    stops: int = 0
    migrators: int = 0
    rows: int = 0
    transactions: int = 0
    again: int = 0
    micro_batches: int = 0
    looks: int = 0
    slowest_ms: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{3 * self.rounds} topics migrated under {self.transactions} transactions ({self.again} run again), {self.rows} rows, "
            f"{self.micro_batches} micro-batches, {self.looks} looks; {self.kills} kills, {self.stops} stops, {self.migrators} of "
            f"who migrates; the slowest migration took {self.slowest_ms} ms"
        )


def storm(forks: Forks, place: Place, folder: Path, kills: int, rng: random.Random) -> Stormed:
    """Rounds of three topics in two namespaces, which migrate while all parties, and who migrates, are killed and stopped.

    The first kill of each round is of who migrates, between the first of its topics and the last. A round with anything wrong is
    the last one.
    """
    forks.call(make, place, SETTINGS)
    report = Stormed()
    if not kills:
        return report
    while report.kills < kills and not report.wrong:
        _round(forks, place, folder / f"round{report.rounds}", max(1, min(KILLS_A_ROUND, kills - report.kills)), rng, report)
        report.rounds += 1
    return report


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


def _round(forks: Forks, place: Place, folder: Path, kills: int, rng: random.Random, report: Stormed) -> None:
    cast, scene = _cast(report.rounds), Scene(place.url, folder)
    scene.begin()
    forks.call(prepare, place.url, list(cast.successors), ["consumer", "mover"])
    hows = [rng.choice((None, WAIT_SECONDS)) for _ in cast.successors]
    migrates = (scene, "migrator", list(cast.successors.items()), 1 + report.rounds % 3, hows)
    starts: dict[str, Callable[[], Child]] = {
        "writer": lambda: forks.start(parties.write_on, scene, "writer", cast.writers["writer"]),
        "spanning": lambda: forks.start(parties.write_on, scene, "spanning", cast.writers["spanning"]),
        "sender": lambda: forks.start(parties.send_on, scene, "sender", cast.senders["sender"]),
        "consumer": lambda: forks.start(parties.acknowledge_on, scene, "consumer", cast.consumers["consumer"]),
        "mover": lambda: forks.start(parties.move_on, scene, "mover", *cast.movers["mover"]),
        "stream": lambda: forks.start(parties.stream_on, scene, "stream", cast.streams["stream"]),
        "limited": lambda: forks.start(parties.stream_on, scene, "limited", cast.streams["limited"], 2 * ROWS),
        "looker": lambda: forks.start(parties.look_on, scene, "looker", cast.lookers["looker"]),
        "migrator": lambda: forks.start(parties.migrate_on, *migrates),
    }
    running = {name: start() for name, start in starts.items() if name != "migrator"}
    try:
        scene.wait_for_work(running, running.values())
        time.sleep(rng.uniform(0.0, 1.0))
        killed = expect_kill(forks.start(die_midway, *migrates), "who migrates, in its second topic", report)
        report.kills, report.migrators = report.kills + killed, report.migrators + killed
        running["migrator"] = starts["migrator"]()
        for _ in range(kills - 1):
            time.sleep(rng.uniform(*BETWEEN_SECONDS))
            others = [name for name in running if name != "migrator"]
            name = "migrator" if rng.random() < 0.5 and not running["migrator"].ended(0) else rng.choice(others)
            hit = strike(name, starts, running, rng)
            report.kills += hit is Struck.KILLED
            report.stops += hit is Struck.STOPPED
            report.migrators += name == "migrator" and hit is not Struck.MISSED
        running.pop("migrator").result(LAST_SECONDS)
        writing = list(WRITING)
        scene.wait_for_work([*writing, *cast.movers], running.values(), more=2)
        expect_kill(forks.start(die_registered, place.url, list(cast.successors)), "who registered a transaction", report)
        scene.end_work()
        for name in writing:
            running.pop(name).result(LAST_SECONDS)
        wrong = forks.call(wait_for_deadlines, place.url)  # else who reads takes the row before what is open for the last
        scene.end_reading()
        for name in list(running):
            running.pop(name).result(LAST_SECONDS)
    finally:
        for child in running.values():
            child.stop()
    wrong += forks.call(judge, place, folder, cast)
    report.wrong += [f"round {report.rounds}: {what}" for what in wrong]
    _count(folder, report)


def expect_kill(child: Child, who: str, report: Stormed) -> bool:
    """Wait for one that is to kill itself; whether it did. What it came to instead is wrong."""
    try:
        child.result()
        report.wrong.append(f"{who} came to its end and was not killed")
    except Killed:
        return True
    except Died as died:
        report.wrong.append(f"{who} was not killed: {died}")
    return False


def _count(folder: Path, report: Stormed) -> None:
    for file in folder.glob("*.jsonl"):
        rows = {event.call: len(event.rows) for event in read(file) if isinstance(event, Commit)}
        for event in read(file):
            if isinstance(event, Told) and file.stem in WRITING:
                done = event.said == "committed"
                report.transactions += done and rows[event.call] == ROWS
                report.rows += rows[event.call] if done else 0
                report.again += event.said == "unknown"
            report.micro_batches += isinstance(event, Poll) and event.subscription is None
            report.looks += isinstance(event, Read)
    took = [int(line) for file in folder.glob("*-ms") for line in file.read_text().split()]
    report.slowest_ms = max([report.slowest_ms, *took])
