"""The bench of one run: everything that the operations of the run share."""

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
    """The clusters of one run (`worlds`), their common clock, and the folder with their files. `hosts`: the ZooKeeper server; None
    if the metadata store of each cluster is SQLite in its folder.
    """

    folder: Path
    hosts: str | None = None
    clock: ByHand = field(default_factory=ByHand)
    worlds: list[World] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    """How often each permitted error of the product occurred, and how often each special case, by name."""
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
