"""Where a metadata store is, so that a copy of it can be told from the store itself. The mark of a ledger root has one of these."""

from __future__ import annotations

import os
import re
import socket
from ipaddress import ip_address
from pathlib import Path

from ledgers.storage import LedgerStorage
from metadata.common.errors import ConfigurationError
from metadata.common.service import ServiceUrl
from metadata.records.json_records import JsonRecord

DATABASE = "metadata.db"
_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+|\[::1\]):[0-9]+", re.IGNORECASE)


class Place(JsonRecord):
    """Where a store is.

    within              the way from the ledger root to the folder of the store, if the root lies in that folder (`..`): both are
                        copied and moved together
    path, inode, device SQLite: the real path of the database file, and the file itself
    hosts, chroot       ZooKeeper: `host:port` of each server as the service URL names them
    url                 any other store: its service URL
    machine             the machine's id, where it has one: paths and `localhost` mean another thing on another machine
    """

    within: str | None = None
    path: str | None = None
    inode: int | None = None
    device: int | None = None
    hosts: tuple[str, ...] | None = None
    chroot: str | None = None
    url: str | None = None
    machine: str | None = None

    def shown(self, root: str) -> str:
        """For an error. `root`: the URI of the ledger root that has the mark."""
        if self.path is not None:
            return self.path + (f" (machine {self.machine[:8]})" if self.machine else "")
        if self.hosts is not None:
            return f"zk://{','.join(self.hosts)}{self.chroot or ''}" + (f" (machine {self.machine[:8]})" if self.machine else "")
        return f"the folder {self.within} of {root}" if self.within is not None else str(self.url)

    def in_mark(self) -> Place:
        """What the mark keeps of it: of a store whose root lies in its folder, nothing that a copy of the folder would not have."""
        return Place(within=self.within) if self.within is not None else self

    def equals(self, other: Place) -> bool:
        """Whether two places say the same. (The order of servers says nothing.)"""
        hosts = {"hosts": tuple(sorted(self.hosts))} if self.hosts else {}
        others = {"hosts": tuple(sorted(other.hosts))} if other.hosts else {}
        return self.model_copy(update=hosts) == other.model_copy(update=others)

    def is_file(self, other: Place) -> bool:
        """Whether two places of SQLite stores are the same file at the same path."""
        return (self.path, self.inode, self.device) == (other.path, other.inode, other.device)


def place_of(service: ServiceUrl, storage: LedgerStorage) -> Place:
    """Where the store of a service URL is now, as seen from this machine. Raises ConfigurationError: its file is gone."""
    machine = machine_id()
    if service.scheme == "zk":
        local = any(_LOOPBACK.fullmatch(host) for host in service.hosts)
        return Place(hosts=service.hosts, chroot=service.path, machine=machine if local else None)
    if service.scheme != "file":
        return Place(url=service.text)
    folder = os.path.realpath(service.path)
    path = f"{folder}/{DATABASE}"
    try:
        found = Path(path).stat()
    except OSError as error:
        raise ConfigurationError(
            f"The metadata store {path} cannot be looked at: {error.strerror}.", advice="Was its folder moved while it was in use?"
        ) from error
    root = real_root(storage)
    within = os.path.relpath(folder, root) if root is not None and lies_in(root, folder) else None
    return Place(within=within, path=path, inode=found.st_ino, device=found.st_dev, machine=machine)


def same_place(marked: Place, ours: Place) -> bool:
    """Whether the store that the mark names is the one at our place.

    A SQLite file was moved if it is the same file and nothing is where it was. (The number of a device may change when a machine
    starts again; then the path tells.) Of ZooKeeper one server in common is enough, by its name or its address.
    """
    if marked.within is not None:
        return marked.within == ours.within
    if marked.path is not None:
        if ours.path is None or marked.inode != ours.inode or not _same_machine(marked, ours):
            return False
        return marked.path == ours.path or (marked.device == ours.device and not os.path.lexists(marked.path))
    if marked.hosts is not None:
        if ours.hosts is None or (marked.chroot or "") != (ours.chroot or ""):
            return False
        here = _same_machine(marked, ours)
        if any(here or not _LOOPBACK.fullmatch(host) for host in set(marked.hosts) & set(ours.hosts)):
            return True
        both = _addresses(marked.hosts) & _addresses(ours.hosts)
        return any(here or not ip_address(address.partition("%")[0]).is_loopback for address, _ in both)
    return marked.url is not None and marked.url == ours.url


def _same_machine(one: Place, other: Place) -> bool:
    return not one.machine or not other.machine or one.machine == other.machine


def _addresses(hosts: tuple[str, ...]) -> set[tuple[str, int]]:
    """IP address and port of each server whose name can be resolved."""
    found = set()
    for host in hosts:
        name, _, port = host.rpartition(":")
        try:
            resolved = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError:
            continue  # a name that is not known here: it cannot be shown to be the same server
        found |= {(str(address[0]), int(address[1])) for *_, address in resolved}
    return found


def machine_id() -> str | None:
    """The id that this machine was given when it was installed. Containers often have none."""
    for file in _MACHINE_FILES:
        try:
            text = Path(file).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if re.fullmatch(r"[0-9a-f]{32}", text):
            return text
    return None


def real_root(storage: LedgerStorage) -> str | None:
    """The real path of a local ledger root. None: it is not local."""
    return None if storage.folder is None else os.path.realpath(storage.folder)


def lies_in(path: str, folder: str) -> bool:
    """Whether a real path lies in a folder (or in one of its subfolders)."""
    return path.startswith(folder.rstrip("/") + "/")
