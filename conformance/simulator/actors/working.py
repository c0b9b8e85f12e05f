"""The base of all actors of a simulated world. Actors work in rounds, and record the errors that no fault of the world explains."""

from __future__ import annotations

from collections.abc import Callable

from conformance.simulator.world.scheduler import Actor, Process, World
from ledgers.errors import CorruptSnapshot, MissingFile
from metadata.common.errors import CorruptRecord, DataLoss, OffsetOutOfRange, StorageError, SweepIncomplete, TxnSegmentError

GONE = (CorruptSnapshot, CorruptRecord, MissingFile)
Judge = Callable[[World, str, TxnSegmentError], bool]
"""A function that returns whether an error ends the actor's work. It records the error if no fault of the world explains it."""


def broken(world: World, name: str, error: TxnSegmentError) -> bool:
    """Judge an error of an actor that is no reader. Return whether the error says that a file or record is damaged or gone. Record
    such an error, since no fault of the world explains it. For a SweepIncomplete, judge its causes.
    """
    causes = error.causes if isinstance(error, SweepIncomplete) else (error,)
    found = any(isinstance(one, (*GONE, StorageError)) for one in causes)
    if found:
        world.history.bad(f"{name}: {error}", 5)
    return found


def missed(world: World, name: str, error: TxnSegmentError) -> bool:
    """Judge an error of a reader. Return whether the error says, wrongly, that rows, files or records are gone. Record such an
    error. A DataLoss may be correct if rows have been trimmed, so it then does not count.
    """
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
    """Start a thread that runs `work` `rounds` times and rests for `pause` seconds after each successful round. The thread begins
    after `after` steps and fewer than `within` more. If a round raises an error, for example because it lost a race or the store
    does not answer, `judge` decides whether the thread ends. Otherwise the next round begins.
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
