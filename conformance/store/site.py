"""The store under test and the part of it that a run may write. That part lies below a unique name and is removed afterwards.

The URLs `file:///folder`, `zk://hosts/chroot` and `memory://name` are extended for each case. So each case has a store that is
empty in every respect (its folders, its sequences, its clock). With any other URL, each case gets its own prefix for keys.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from conformance.store.prefixed import PrefixedStore, delete_all
from metadata.store import folder_of, open_store
from metadata.store.contract import MetadataStore
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root

Opener = Callable[[str], MetadataStore]
"""A function that opens a session by URL. Other processes import it by name, so it must be a function of a module."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The optional abilities of a backend. `processes`: several processes can open the store. `groups`: a group of writes is
    atomic. SQLite and ZooKeeper have both abilities. The memory store has only `groups`, because no other process can open it.
    """

    processes: bool = True
    groups: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """An empty part of the store. It consists of plain values, so that other processes can also open it."""

    url: str
    prefix: str

    def open(self, opener: Opener) -> MetadataStore:
        store = opener(self.url)
        return PrefixedStore(store, self.prefix) if self.prefix else store


@dataclass
class Site:
    """The store under test. A context manager: its exit removes everything that the run created in the store."""

    url: str
    traits: Traits = Traits()
    opener: Opener = open_store
    elsewhere: Opener | None = None
    """The opener for other processes, if they need another than `opener`."""
    _run: str = field(default_factory=lambda: f"conformance-{uuid.uuid4().hex[:12]}")
    _places: int = 0

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    def place(self) -> Place:
        """Return a part of the store that was never used."""
        self._places += 1
        below = f"{self._run}/{self._places}"
        if self.scheme in ("file", "zk", "memory"):
            return Place(f"{self.url if self.url.endswith('://') else self.url.rstrip('/')}/{below}".replace(":////", ":///"), "")
        return Place(self.url, f"/{below}")

    def __enter__(self) -> Self:
        if self.scheme == "file":
            self._made = _missing(Path(folder_of(self.url)))
        elif self.scheme == "zk":
            hosts, root = hosts_and_root(self.url)
            with _zookeeper(hosts) as client:
                parts = root.split("/")[1:]
                chroots = ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
                self._chroots = [path for path in chroots if not client.exists(path)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the records and folders that the run created. Folders that existed before stay."""
        if not self._places:
            return
        if self.scheme == "file":
            folder = Path(folder_of(self.url))
            if (folder / self._run).exists():
                shutil.rmtree(folder / self._run)
            for made in self._made:
                if made.is_dir() and not any(made.iterdir()):
                    made.rmdir()
        elif self.scheme == "zk":
            hosts, root = hosts_and_root(self.url)
            with _zookeeper(hosts) as client:
                _delete_below(client, f"{root}/{self._run}")
                for path in reversed(self._chroots):
                    if client.exists(path) and not client.get_children(path):
                        client.delete(path)
        elif self.scheme != "memory":
            with self.opener(self.url) as store:
                delete_all(store, f"/{self._run}")


def _missing(folder: Path) -> list[Path]:
    """Return the folder and its parents as far as they do not exist, the deepest first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


@contextmanager
def _zookeeper(hosts: str) -> Iterator[KazooClient]:
    """Yield the ZooKeeper client of a store on these servers. With it, `Site` sees whether a chroot exists. The interface of a
    store cannot tell this.
    """
    with ZooKeeperStore(hosts, create=False) as store:
        yield store._session.client()


def _delete_below(client: KazooClient, path: str) -> None:
    """Delete a znode and everything below it. Requests for znodes of one parent are sent together, 1000 at a time."""
    try:
        names = client.get_children(path)
    except NoNodeError:
        return
    below = [f"{path}/{name}" for name in names]
    for start in range(0, len(below), 1000):
        some = below[start : start + 1000]
        answers = [client.exists_async(child) for child in some]
        for child, answer in zip(some, answers, strict=True):
            state = answer.get()
            if state is not None and state.numChildren:
                _delete_below(client, child)
        for deleted in [client.delete_async(child) for child in some]:
            try:
                deleted.get()
            except NoNodeError:
                continue  # the znode was already deleted with its content, or was ephemeral and its session ended
    client.delete(path)
