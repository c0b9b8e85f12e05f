"""The bench of one run: a folder or a ZooKeeper server, the clusters, and the clock."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from conformance.surface.disk import DiskByHand
from conformance.surface.model import Model
from conformance.surface.world import ByHand, World
from ledgers.disk import in_place_of_the_disk


@dataclass
class Bench:
    """The clusters of one run, and their folder. `hosts`: the ZooKeeper server; None if each cluster is SQLite in a folder."""

    folder: Path
    hosts: str | None = None
    clock: ByHand = field(default_factory=ByHand)
    worlds: list[World] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    """The number of times that each permitted product error and each special path occurred, by name."""
    _closing: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def begin(cls, hosts: str | None, base: str | None) -> Bench:
        made = cls(Path(tempfile.mkdtemp(prefix="surface-", dir=base)), hosts)
        made._closing.enter_context(in_place_of_the_disk(DiskByHand(made.clock)))
        made.add("c0", Model())
        return made

    def add(self, name: str, model: Model, *, root: Path | None = None, url: str | None = None) -> World:
        home = self.folder / name
        if url is None:
            url = f"file://{home}" if self.hosts is None else f"zk://{self.hosts}/{self.folder.name}-{uuid4().hex[:6]}-{name}"
        if root is None:
            root = home / "ledgers"
        world = World(name, url, root, self.clock, model)
        self.worlds.append(world)
        return world

    def world(self, pick: int) -> World:
        usable = [world for world in self.worlds if world.usable]
        return usable[pick % len(usable)]

    def end(self) -> None:
        try:
            for world in self.worlds:
                world.end()
        finally:
            self._closing.close()
            shutil.rmtree(self.folder, ignore_errors=True)
