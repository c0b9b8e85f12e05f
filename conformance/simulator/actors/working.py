"""The base of all actors of a simulated world: rounds of work, and the errors that no fault of the world explains."""

from __future__ import annotations

from collections.abc import Callable

from conformance.simulator.world.scheduler import Actor, Process, World
from ledgers.errors import CorruptSnapshot, MissingFile
from metadata.common.errors import CorruptRecord, DataLoss, OffsetOutOfRange, StorageError, SweepIncomplete, TxnSegmentError

GONE = (CorruptSnapshot, CorruptRecord, MissingFile)
Judge = Callable[[World, str, TxnSegmentError], bool]
"""Whether an error that this actor met ends its work: it notes in the history what no fault of a world explains."""


def broken(world: World, name: str, error: TxnSegmentError) -> bool:
    """Of actors that write, sweep or move: files and records are never damaged or gone. Of an incomplete sweep its causes count."""
    causes = error.causes if isinstance(error, SweepIncomplete) else (error,)
    found = any(isinstance(one, (*GONE, StorageError)) for one in causes)
    if found:
        world.history.bad(f"{name}: {error}", 5)
    return found


def missed(world: World, name: str, error: TxnSegmentError) -> bool:
    """The check for readers: the rows that they need exist, unless retention has removed them."""
    found = isinstance(error, (*GONE, OffsetOutOfRange)) or (isinstance(error, DataLoss) and not world.history.trimmed)
    if found:
        world.history.missed(name, error)
    return found


def start_rounds(
    world: World,
    name: str,
    rounds: int,
    work: Callable[[Process], object],
    *,
    process: Process | None = None,
    pause: float = 0.0,
    within: int,
    after: int = 0,
    judge: Judge = broken,
) -> Actor:
    """Start a thread that runs `work` this many times and rests for `pause` seconds after each successful round. It begins within
    `within` steps. A failed round (a lost race, a store that does not answer) is over, and the next one begins.
    """
    mine = process or Process(world, name)

    def run() -> None:
        for _ in range(rounds):
            try:
                work(mine)
            except TxnSegmentError as error:
                if judge(world, name, error):
                    return
                continue
            if pause:
                mine.cluster.clock.sleep(pause)

    return world.spawn(mine, name, run, delay=after + world.rng.randrange(within))
