"""The place of a metadata store, by which the store differs from its copies. The mark of a ledger root has the owner's place."""

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
    """The place of a store.

    within              relative path from the ledger root to the store's folder, if the root lies in that folder (`..`). Then
                        the root and the store are copied and moved together
    path, inode, device SQLite: the real path of the database file, and the two numbers by which the file system identifies it
    hosts, chroot       ZooKeeper: `host:port` of each server, as in the service URL
    url                 any other store: its service URL
    machine             the machine's id, if it has one, because a path or `localhost` names different things on different machines
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
        """Return the place as text for an error message. `root`: the URI of the ledger root; `within` is relative to it."""
        if self.path is not None:
            return self.path + (f" (machine {self.machine[:8]})" if self.machine else "")
        if self.hosts is not None:
            return f"zk://{','.join(self.hosts)}{self.chroot or ''}" + (f" (machine {self.machine[:8]})" if self.machine else "")
        return f"the folder {self.within} of {root}" if self.within is not None else str(self.url)

    def in_mark(self) -> Place:
        """Return the place as the mark stores it. If the root lies in the store's folder, the mark has only the relative path,
        because it must also fit a copy of the folder.
        """
        return Place(within=self.within) if self.within is not None else self

    def equals(self, other: Place) -> bool:
        """Return whether two places are equal, without regard to the order of servers."""
        hosts = {"hosts": tuple(sorted(self.hosts))} if self.hosts else {}
        others = {"hosts": tuple(sorted(other.hosts))} if other.hosts else {}
        return self.model_copy(update=hosts) == other.model_copy(update=others)

    def is_file(self, other: Place) -> bool:
        """Return whether two places of SQLite stores are the same file at the same path."""
        return (self.path, self.inode, self.device) == (other.path, other.inode, other.device)


def place_of(service: ServiceUrl, storage: LedgerStorage) -> Place:
    """Return the current place of a service URL's store, as seen from this machine. Raises ConfigurationError if the database file
    cannot be read.
    """
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
            f"The metadata store {path} cannot be read: {error.strerror}.",
            advice="Check whether its folder was moved while it was in use.",
        ) from error
    root = real_root(storage)
    within = os.path.relpath(folder, root) if root is not None and lies_in(root, folder) else None
    return Place(within=within, path=path, inode=found.st_ino, device=found.st_dev, machine=machine)


def same_place(marked: Place, ours: Place) -> bool:
    """Return whether the mark names this process's store. `marked`: the place in the mark. `ours`: the place of the store.

    If the mark has a relative path (`within`), only this path is compared. Otherwise the mark names a SQLite store if the path and
    the inode of the database file are those of the mark. The device is not compared then, because a device number may change at a
    reboot. The mark also names a SQLite store that was moved: the inode and the device are those of the mark, and nothing is at the
    old path. For a ZooKeeper store the chroot must be that of the mark, and the mark must have at least one of the store's servers,
    by name or address.
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
    """Return IP address and port of each server whose name can be resolved."""
    found = set()
    for host in hosts:
        name, _, port = host.rpartition(":")
        try:
            resolved = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError:
            continue  # the name is unknown on this machine, so it cannot prove a common server
        found |= {(str(address[0]), int(address[1])) for *_, address in resolved}
    return found


def machine_id() -> str | None:
    """Return the id that this machine got at its installation; None if it has none, which is frequent in containers."""
    for file in _MACHINE_FILES:
        try:
            text = Path(file).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if re.fullmatch(r"[0-9a-f]{32}", text):
            return text
    return None


def real_root(storage: LedgerStorage) -> str | None:
    """Return the real path of a local ledger root; None for a remote one."""
    return None if storage.folder is None else os.path.realpath(storage.folder)


def lies_in(path: str, folder: str) -> bool:
    """Return whether a real path lies in a folder or its subfolders."""
    return path.startswith(folder.rstrip("/") + "/")
