"""Writers, a stream, a consumer and sweepers run in processes whose clocks are hours apart. No row may be lost, doubled, torn or
trimmed too early.

Each process has a clock of its own. `cluster.clock_shim` shifts Python's `time`, and needs no further package. If `library` is
given, libfaketime shifts the wall clock of the libc instead. On SQLite, each process uses its own clock as the store's time. So a
process whose clock is ahead may abort transactions of other processes too early, and their writers write them again. On ZooKeeper,
all processes use the leader's clock as the store's time.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from conformance.processes import Session
from conformance.scenarios.driver import Place
from conformance.scenarios.reading import read_all
from conformance.scenarios.scenario import Scenario
from conformance.scenarios.sessions import launched
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import ConfigurationError
from metadata.records.cluster_records import Settings
from txnsegment import connect

HOUR = 3600
WRITERS = {"w1": -HOUR, "w2": HOUR, "w3": 0}
OTHERS = {"stream": HOUR, "consumer": -HOUR, "sweeper1": HOUR, "sweeper2": -HOUR}
KEEP = timedelta(minutes=30)
"""The retention limit. It is less than the difference between any two clocks, so a trim that relied on one wrong clock would remove
all rows at once.
"""
SETTINGS = Settings(max_txn_timeout_ms=60_000, orphan_age_ms=1_200_000, grace_period_ms=1_200_000, header_retention_ms=60_000)
ROWS = 4
SUBSCRIPTION = "s"
SECONDS = 240.0
LIBFAKETIME = {
    "NO_FAKE_STAT": "1",
    # The monotonic clock is not shifted. Without FAKETIME_FORCE_MONOTONIC_FIX, libfaketime would take the deadlines of waiting
    # threads for times of the wall clock, although they are times of the monotonic clock. Python's threads would then hardly ever
    # run.
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",
    "FAKETIME_FORCE_MONOTONIC_FIX": "0",
}


def faketime() -> Path:
    """Return the path of libfaketime. Raises ConfigurationError where it is not installed."""
    for folder in ("/usr/lib", "/usr/local/lib", "/opt/homebrew/lib"):
        for found in sorted(Path(folder).glob("**/libfaketime.so.1")):
            return found
    raise ConfigurationError(
        "libfaketime is not installed.", advice="Debian, Ubuntu: apt-get install faketime; or leave --faketime out."
    )


class Clocks(Scenario):
    """The scenario of this module. Each writer commits `transactions` transactions. `library`: the path of libfaketime, which then
    shifts the clocks; None: `cluster.clock_shim` shifts them.
    """

    def __init__(self, place: Place, folder: Path, transactions: int, *, library: Path | None = None) -> None:
        self.name = f"clocks hours apart, shifted by {'Python' if library is None else 'libfaketime'}"
        self._place, self._folder, self._transactions, self._library = place, folder, transactions, library
        self._parties: dict[str, Session] = {}
        self.tries = self.sweeps = 0

    def setup(self) -> None:
        place = self._place
        open_cluster(place.url, ledgers=place.ledgers, settings=SETTINGS).close()
        with connect(place.url) as cluster:
            cluster.topics.create(place.topic, segments=2, key="key", schema="key string, seq bigint, batch bigint, of int")
            cluster.subscriptions.create(place.topic, SUBSCRIPTION)
            cluster.retention.set(place.topic, keep=KEEP, despite_subscriptions=True)

    def start(self) -> None:
        for name, off in {**OTHERS, **WRITERS}.items():
            self._parties[name] = self._party(name, off)

    def _party(self, name: str, off: int) -> Session:
        place, given = self._place, {"folder": self._folder, "name": name, "count": self._transactions}
        given |= {"url": place.url, "topic": place.topic, "off": off if self._library is None else 0}
        words = [word for flag, value in given.items() for word in (f"--{flag}", str(value))]
        environment = None if self._library is None else {**LIBFAKETIME, "LD_PRELOAD": str(self._library), "FAKETIME": f"{off:+d}s"}
        return launched("conformance.scenarios.clock_party", words, self._folder / f"{name}.log", environment)

    def check(self) -> list[str]:
        deadline = time.monotonic() + SECONDS
        wrong = [what for name in WRITERS for what in self._ended(name, deadline)]
        (self._folder / "stop").touch()
        wrong += [what for name in OTHERS for what in self._ended(name, deadline)]
        return wrong or self._judged()

    def _ended(self, name: str, deadline: float) -> list[str]:
        party = self._parties[name]
        code = party.wait(max(0.0, deadline - time.monotonic()))
        how = "did not end" if code is None else f"ended with {code}"
        return [] if code == 0 else [f"{name} {how}: ...{party.tail(1500)}"]

    def _judged(self) -> list[str]:
        wanted = Counter((name, batch, row) for name in WRITERS for batch in range(self._transactions) for row in range(ROWS))
        read = read_all(self._place.url, self._place.topic)
        wrong = _differences("a batch read", Counter((row.key.partition("-")[0], row.batch, row.seq) for row in read), wanted)
        for name in ("stream", "consumer"):
            lines = list(_lines(self._folder / f"{name}.json"))
            wrong += _differences(f"the {name}", Counter(tuple(row) for line in lines for row in line), wanted)
            if name == "stream":
                torn = [line for line in lines for one, count in Counter((r[0], r[1]) for r in line).items() if count % ROWS]
                wrong += [f"{len(torn)} micro-batches of the stream held a part of a transaction"] * bool(torn)
        self.tries = sum(sum(line) for name in WRITERS for line in _lines(self._folder / f"{name}.json"))
        sweepers = [name for name in OTHERS if name.startswith("sweeper")]
        self.sweeps = sum(sum(line) for name in sweepers for line in _lines(self._folder / f"{name}.json"))
        return wrong + ["nobody swept"] * (not self.sweeps)

    def figures(self) -> str:
        return f"{self.tries} tries for each to be committed, {self.sweeps} sweeps"

    def close(self) -> None:
        for party in self._parties.values():
            party.kill()


def _lines(file: Path) -> Iterator[list]:  # type: ignore[type-arg]
    for line in file.read_text().splitlines():
        yield json.loads(line)


def _differences(who: str, got: Counter[tuple[str, int, int]], wanted: Counter[tuple[str, int, int]]) -> list[str]:
    missing, more = wanted - got, got - wanted
    found = [f"{who} lacks {missing.total()} rows, e.g. {next(iter(missing))}"] if missing else []
    return found + ([f"{who} has {more.total()} rows too many, e.g. {next(iter(more))}"] if more else [])
