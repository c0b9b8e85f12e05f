"""Actors that sweep, and actors that delete topics, in a simulated world."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from conformance.simulator.actors.working import start_rounds
from conformance.simulator.world.scheduler import Actor, Process, World
from ledgers.errors import CorruptSnapshot, MissingFile
from metadata.client.passes import delete_orphans
from metadata.common.errors import StorageError, SweepIncomplete, TxnSegmentError
from metadata.maintenance.sweeper import FORGET_LIMIT, Sweeper, SweepReport, complain
from metadata.records.names import topic_name
from metadata.topics.topics import Topics

WHOLE = 0.4
"""The share of complete sweeps in a world with `World.brief`. The other sweeps run only the steps of `_move_on`."""


def start_sweeper(
    world: World, name: str, rounds: int, *, orphans: bool = False, share: bool = True, after: int = 0, within: int = 120
) -> Actor:
    process = Process(world, name)
    shares = process.sweeper.share

    def run() -> None:
        for i in range(rounds):
            whole = not world.brief or world.rng.random() < WHOLE
            work: list[Callable[[], object]] = [process.sweeper.sweep if whole else partial(_move_on, process.sweeper)]
            if share and i % 2 == 0:
                work.append(shares)
            for each in work:
                began, now_ms, falls = world.history.now(), world.clock.now, len(world.clock.falls)
                try:
                    each()
                except (CorruptSnapshot, MissingFile, StorageError, SweepIncomplete) as error:
                    world.history.bad(f"{name}: {error}", 5)
                    return
                except TxnSegmentError:
                    continue
                if each is not shares:
                    world.history.swept(name, began, min(now_ms, *world.clock.falls[falls:], now_ms))
            if orphans:
                try:
                    delete_orphans(process.cluster)
                except (CorruptSnapshot, MissingFile, StorageError) as error:
                    world.history.bad(f"{name}: {error}")
                    return
                except TxnSegmentError:
                    continue

    return world.spawn(process, name, run, delay=after + world.rng.randrange(within))


def _move_on(sweeper: Sweeper) -> None:
    """Run an incomplete sweep: abort timed-out transactions, settle, fold, and expire headers. The steps that rarely have work are
    left out.
    """
    report = SweepReport()
    sweeper.timeouts()
    sweeper.settle(report)
    unfolded = sweeper.fold(report)
    sweeper.forget(report, limit=FORGET_LIMIT)
    complain(unfolded)


def start_deleter(world: World, name: str, topic: str, *, recreate: bool, within: int = 250) -> None:
    def delete(process: Process) -> None:
        topics = Topics(process.cluster)
        topics.delete(topic_name(topic))
        if recreate:
            topics.create(topic_name(topic), segments=1)

    start_rounds(world, name, 1, delete, within=within)
