"""One process of `conformance.scenarios.clocks`. `--name` selects its work: a writer, the stream, the consumer, or a sweeper. The
clock of the process is wrong by `--off` seconds.

`FOLDER/NAME.json` has one line of JSON for each piece of work. The line of the stream or the consumer has the rows that it got. The
line of a writer has the number of its tries, and the line of a sweeper has a 1. After an error of this product the process tries
again, as Spark and the sweeper daemon do. Such errors are expected on SQLite, where a process whose clock is ahead ends the
sessions of other processes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from conformance.scenarios.clocks import ROWS, SUBSCRIPTION
from conformance.scenarios.cluster.clock_shim import install, set_shift
from conformance.scenarios.reading import Following
from metadata.client.passes import delete_orphans
from metadata.client.upkeep import upkeep
from metadata.common.clock import SystemClock
from metadata.common.errors import SessionLost, TxnSegmentError, Unavailable
from txnsegment import Cluster, Message, connect
from txnsegment.consumer import Consumer

T = TypeVar("T")
Note = Callable[[list[Any]], None]
TRIES = 2_000
_CLOCK = SystemClock()
"""This module calls the `sleep` of this clock, which waits for a `threading.Event`. It does not call `time.sleep`, because that
does not work under libfaketime if the monotonic clock is not shifted.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance.scenarios.clock_party")
    for name in ("url", "topic", "name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--count", required=True, type=int)
    parser.add_argument("--off", required=True, type=float)
    given = parser.parse_args()
    if given.off:
        file = given.folder / f"{given.name}.clock"
        set_shift(file, given.off)
        install(str(file))
    stop: Path = given.folder / "stop"
    with (given.folder / f"{given.name}.json").open("w") as file_of_notes:

        def note(what: list[Any]) -> None:
            file_of_notes.write(json.dumps(what) + "\n")

        if given.name == "stream":
            _stream(given.url, given.topic, stop, note)
            return
        with connect(given.url) as cluster:
            if given.name == "consumer":
                _consume(cluster, given.topic, stop, note)
            elif given.name.startswith("sweeper"):
                _sweep(cluster, stop, note)
            else:
                _write(cluster, given.topic, given.name, given.count, note)


def _write(cluster: Cluster, topic: str, name: str, count: int, note: Note) -> None:
    """Commit `count` versions. Try each version until it is committed, since a process whose clock is ahead may abort its
    transaction too early. Record how many tries each version needed.
    """
    for version in range(count):
        rows = [{"key": f"{name}-{row}", "seq": row, "batch": version, "of": ROWS} for row in range(ROWS)]
        for tries in range(1, TRIES + 1):
            try:
                with cluster.begin(app=name, version=version) as txn:
                    txn.append(topic, pa.Table.from_pylist(rows, schema=_SCHEMA))
                    txn.commit()
            except TxnSegmentError:
                if tries == TRIES:
                    raise
                continue
            note([tries])
            break


def _again(work: Callable[[], T]) -> T:
    for _ in range(TRIES):
        try:
            return work()
        except (Unavailable, SessionLost):
            continue
    return work()


_SCHEMA = pa.schema([("key", pa.string()), ("seq", pa.int64()), ("batch", pa.int64()), ("of", pa.int32())])


def _stream(url: str, topic: str, stop: Path, note: Note) -> None:
    following = _again(lambda: Following(url, topic))
    while True:
        last = stop.exists()
        rows = _again(following.next)
        if rows:
            note([[row.key.partition("-")[0], row.batch, row.seq] for row in rows])
        elif last:
            return
        else:
            _CLOCK.sleep(0.02)


def _consume(cluster: Cluster, topic: str, stop: Path, note: Note) -> None:
    with cluster.consumer(topic, SUBSCRIPTION) as consumer:
        while True:
            last = stop.exists()
            got = _again(lambda: _messages(consumer))
            if got:
                _again(partial(consumer.ack, got))
                note([[m.value["key"].partition("-")[0], m.value["batch"], m.value["seq"]] for m in got])
            elif last:
                return


def _messages(consumer: Consumer) -> list[Message]:
    try:
        return list(consumer.messages(timeout=0.1))
    except TxnSegmentError:
        consumer.rewind()  # the consumer will return again the rows that it returned before the error
        raise


def _sweep(cluster: Cluster, stop: Path, note: Note) -> None:
    """Do all work of a sweeper again and again. When `stop` exists, do it once more; all rows are written by then."""
    while True:
        last = stop.exists()
        for work in (cluster.sweep, lambda: upkeep(cluster.client), lambda: delete_orphans(cluster.client.cluster)):
            _again(work)
        note([1])
        if last:
            return
        _CLOCK.sleep(0.1)


if __name__ == "__main__":
    main()
