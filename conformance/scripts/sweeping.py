"""Commands of sweepers (protocol.md section 7). The answer shows what changed in the store and on the disk.

sweep [PART ..]                      do these parts of a sweep. `all` (the default) does all parts except `orphans`
d1: share                            do the share of a sweep that a committer does

The parts:

    timeouts    abort expired transactions
    seals       complete seals that the layouts do not show yet
    settle      settle the registrations of decided transactions
    fold        fold all segments
    ops         delete op records that were written after their transaction was settled
    aborted     delete records of aborted transactions that a slow sweeper wrote after the watermark had passed them
    forget      delete headers that are older than the header retention
    remains     delete records of deleted topics and of segments that have left their layout
    orphans     delete the files that no record and no snapshot has named for the grace period
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.scripts import answers
from conformance.scripts.parsing import Command, ScriptError
from conformance.scripts.world import Process, World
from metadata.client.passes import delete_orphans
from metadata.maintenance import remains
from metadata.maintenance.folding import Folding
from metadata.maintenance.sweeper import FORGET_LIMIT, SweepReport


def _fold(process: Process) -> None:
    """Fold all segments. Raises the error of the first segment that could not be folded."""
    for error in process.client.sweeper.fold(SweepReport()).values():
        raise error


_PARTS: dict[str, Callable[[Process], object]] = {
    "timeouts": lambda p: p.client.sweeper.timeouts(),
    "seals": lambda p: p.client.topics.finish_seals(),
    "settle": lambda p: p.client.sweeper.settle(SweepReport()),
    "fold": _fold,
    "ops": lambda p: p.client.sweeper.collect_ops(),
    "aborted": lambda p: Folding(p.cluster, p.client.buffer).collect_aborted(),
    "remains": lambda p: remains.collect_remains(p.cluster.store, p.cluster.settings.grace_period_ms),
    "forget": lambda p: p.client.sweeper.forget(SweepReport(), limit=FORGET_LIMIT),
    "orphans": lambda p: delete_orphans(p.cluster),
    "all": lambda p: p.client.sweeper.sweep(),
}


def sweep(world: World, cmd: Command) -> list[str]:
    process, wanted = world.process(cmd.who("w1")), cmd.words or ["all"]
    unknown = [w for w in wanted if w not in _PARTS]
    if unknown:
        raise ScriptError(f"{cmd.line!r}: there is {', '.join(_PARTS)}")

    def run() -> None:
        for name in wanted:
            _PARTS[name](process)

    return world.drive(answers.changing(world, process, run))


def share(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("d1"))
    return world.drive(answers.changing(world, process, process.client.sweeper.share))


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {"sweep": sweep, "share": share}
