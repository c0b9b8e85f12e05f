"""Copies of a folder, backups and restores."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path

from conformance.surface.bench import Bench
from conformance.surface.common import attempt
from conformance.surface.model import Fault, Model
from conformance.surface.operations import PICK, Args, one_of, operation
from conformance.surface.world import SETTINGS, World
from metadata.backup import backup_file
from metadata.backup.restore import restore as restore_backup
from metadata.common.errors import BackupUnsettled, ConfigurationError, RestoreRefused, TxnSegmentError

APART = 1_000_000
"""The number of the next new row is raised by a multiple of this value when a cluster is copied or restored. So two clusters never
write rows with the same number.
"""


@operation(0.7, p=PICK)
def copy_folder(bench: Bench, a: Args) -> object:
    """Copy the folder of an embedded cluster, as `cp -r` does. Later operations use the original, and also the copy unless the
    product refuses it.
    """
    world = bench.world(a["w"])
    home = Path(world.url.removeprefix("file://"))
    if bench.hosts is not None or len(bench.worlds) >= 3 or world.holding or world.root != home / "ledgers":
        return False
    name = f"c{len(bench.worlds)}"
    world.process(a["p"])
    shutil.copytree(home, bench.folder / name)
    made = bench.add(name, copy.deepcopy(world.model))
    made.copied, made.next_row = True, world.next_row + APART * len(bench.worlds)
    with attempt(bench, ConfigurationError) as tried:
        made.open()
    if tried.failed:
        bench.met["copy refused"] += 1
        made.usable = False
    return None


@dataclass
class Taken:
    """A backup in the file `file`. `at_ms`: its time. `model`, `next_row`: copies of these fields of the `World` at this time."""

    file: Path
    model: Model
    at_ms: int
    next_row: int


@operation(1, p=PICK)
def backup(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    if len(world.backups) >= 2:
        return False
    file = bench.folder / f"backup-{world.name}-{world.model.step}"
    with attempt(bench, BackupUnsettled) as tried:
        world.process(a["p"]).cluster.backup(file)
    if not tried.failed:
        world.backups.append(Taken(file, copy.deepcopy(world.model), world.clock.true_ms(), world.next_row))
    return None


@operation(0.7, b=PICK)
def restore(bench: Bench, a: Args) -> object:
    """Restore a backup into an empty store over the same ledger root. After that, the old cluster can no longer be opened."""
    world = bench.world(a["w"])
    taken: Taken | None = one_of(world.backups, a["b"])
    if taken is None or world.holding or len(bench.worlds) >= 4 or bench.clock.leap_ms:
        return False
    made = bench.add(f"r{len(bench.worlds)}", copy.deepcopy(taken.model), root=world.root)
    made.model.step = world.model.step
    made.copied, made.next_row = True, world.next_row + APART * len(bench.worlds)
    with attempt(bench, RestoreRefused) as tried:
        restore_backup(backup_file.read(taken.file), made.url, clock=None if bench.hosts else bench.clock)
    if tried.failed:
        bench.worlds.remove(made)
        if world.clock.true_ms() - taken.at_ms < SETTINGS.grace_period_ms:
            raise Fault("restore", f"a backup that is younger than the grace period was refused: {tried.error}")
        return None
    for consumer in world.consumers:
        consumer.close()
    for query in world.queries:
        query.stop()
    for group in (world.consumers, world.queries, world.transactions, world.producers, world.chains, world.ranges, world.backups):
        group.clear()
    world.usable = False
    check_retired(bench, world, a["b"])
    made.open()
    return None


def check_retired(bench: Bench, world: World, pick: int) -> None:
    """Check that the old cluster cannot be opened, and that its sweepers delete nothing."""
    before = files(world.root)
    try:
        world.open()
    except TxnSegmentError as error:
        bench.met[f"retired: {type(error).__name__}"] += 1
    else:
        raise Fault("retired", "a cluster whose ledger root a restore has taken over can still be opened")
    with attempt(bench, TxnSegmentError):
        world.process(pick).cluster.sweep()
    lost = before - files(world.root)
    if lost:
        raise Fault("retired", f"a cluster whose ledger root a restore has taken over has deleted {sorted(lost)}")


def files(root: Path) -> set[str]:
    return {str(file) for file in root.rglob("*.parquet")}
