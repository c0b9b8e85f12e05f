"""Writers, a stream, a consumer and sweepers in processes whose clocks are hours apart: nothing lost, doubled, torn, trimmed early.

Each party is a process of its own. Its clock is shifted by `conformance.cluster.clock_shim` (Python's `time`), which needs nothing
that pip does not install; or, with `library`, by libfaketime, which shifts the wall clock of the libc.
On SQLite the store's time is each process's own, so parties disagree about it: transactions are aborted that others take for late,
and their writers try again. On ZooKeeper all go by the leader's clock.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from conformance.chaos.driver import Place
from conformance.chaos.reading import read_all
from conformance.chaos.sessions import launched
from conformance.processes import Session
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import ConfigurationError
from metadata.records.cluster_records import Settings
from txnsegment import connect

HOUR = 3600
WRITERS = {"w1": -HOUR, "w2": HOUR, "w3": 0}
OTHERS = {"stream": HOUR, "consumer": -HOUR, "sweeper1": HOUR, "sweeper2": -HOUR}
KEEP = timedelta(minutes=30)
"""Less than any two clocks are apart: by a wrong clock every row is older than this at once."""
SETTINGS = Settings(max_txn_timeout_ms=60_000, orphan_age_ms=1_200_000, grace_period_ms=1_200_000, header_retention_ms=60_000)
ROWS = 4
SUBSCRIPTION = "s"
SECONDS = 240.0


@dataclass
class Found:
    """What came of it. `wrong`: in words."""

    wrong: list[str] = field(default_factory=list)
    tries: int = 0
    sweeps: int = 0

    def __str__(self) -> str:
        return f"{self.tries} tries for each to be committed, {self.sweeps} sweeps"


def faketime() -> Path:
    """The library. Raises ConfigurationError where it is not installed."""
    for folder in ("/usr/lib", "/usr/local/lib", "/opt/homebrew/lib"):
        for found in sorted(Path(folder).glob("**/libfaketime.so.1")):
            return found
    raise ConfigurationError(
        "libfaketime is not installed.", advice="Debian, Ubuntu: apt-get install faketime; or leave --faketime out."
    )


def clocks(place: Place, folder: Path, transactions: int, *, library: Path | None = None) -> Found:
    """So many transactions of each writer. `library`: shift the clocks by it."""
    open_cluster(place.url, ledgers=place.ledgers, settings=SETTINGS).close()
    with connect(place.url) as cluster:
        cluster.topics.create(place.topic, segments=2, key="key", schema="key string, seq bigint, batch bigint, of int")
        cluster.subscriptions.create(place.topic, SUBSCRIPTION)
        cluster.retention.set(place.topic, keep=KEEP, despite_subscriptions=True)
    found = Found()
    with ExitStack() as stack:
        parties = {
            name: stack.enter_context(_party(place, folder, name, off, transactions, library))
            for name, off in {**OTHERS, **WRITERS}.items()
        }
        deadline = time.monotonic() + SECONDS
        for name in WRITERS:
            _ended(parties[name], name, deadline, found)
        (folder / "stop").touch()
        for name in OTHERS:
            _ended(parties[name], name, deadline, found)
    if not found.wrong:
        _judge(place, folder, transactions, found)
    return found


def _party(place: Place, folder: Path, name: str, off: int, transactions: int, library: Path | None) -> Session:
    words = ["--url", place.url, "--topic", place.topic, "--folder", str(folder), "--name", name, "--count", str(transactions)]
    if library is None:
        return launched("conformance.chaos.clock_party", [*words, "--off", str(off)], folder / f"{name}.log")
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{off:+d}s",
        "NO_FAKE_STAT": "1",
        # The monotonic clock stays as it is. Without the third of these, the library takes the times until which the libc's threads
        # wait, which are of that clock, for times of the wall clock: Python's threads, which take turns so, come to a crawl.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }
    return launched("conformance.chaos.clock_party", [*words, "--off", "0"], folder / f"{name}.log", environment)


def _ended(party: Session, name: str, deadline: float, found: Found) -> None:
    code = party.wait(max(0.0, deadline - time.monotonic()))
    if code != 0:
        found.wrong.append(f"{name} {'did not end' if code is None else f'ended with {code}'}: ...{party.tail(1500)}")


def _judge(place: Place, folder: Path, transactions: int, found: Found) -> None:
    wanted = Counter((name, batch, row) for name in WRITERS for batch in range(transactions) for row in range(ROWS))
    batch = Counter((row.key.partition("-")[0], row.batch, row.seq) for row in read_all(place.url, place.topic))
    found.wrong += _differences("a batch read", batch, wanted)
    for name in ("stream", "consumer"):
        lines = list(_lines(folder / f"{name}.json"))
        found.wrong += _differences(f"the {name}", Counter(tuple(row) for line in lines for row in line), wanted)
        if name == "stream":
            torn = [line for line in lines for one, count in Counter((r[0], r[1]) for r in line).items() if count % ROWS]
            found.wrong += [f"{len(torn)} micro-batches of the stream held a part of a transaction"] * bool(torn)
    for name in WRITERS:
        found.tries += sum(sum(line) for line in _lines(folder / f"{name}.json"))
    found.sweeps = sum(sum(line) for name in OTHERS if name.startswith("sweeper") for line in _lines(folder / f"{name}.json"))
    if not found.sweeps:
        found.wrong.append("nobody swept")


def _lines(file: Path) -> Iterator[list]:  # type: ignore[type-arg]
    for line in file.read_text().splitlines():
        yield json.loads(line)


def _differences(who: str, got: Counter[tuple[str, int, int]], wanted: Counter[tuple[str, int, int]]) -> list[str]:
    missing, more = wanted - got, got - wanted
    found = [f"{who} lacks {missing.total()} rows, e.g. {next(iter(missing))}"] if missing else []
    return found + ([f"{who} has {more.total()} rows too many, e.g. {next(iter(more))}"] if more else [])
