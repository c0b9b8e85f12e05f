"""The store on ZooKeeper 3.6 or newer, for many machines: `zk://host:port,host:port/chroot`.

A view is synced in the same round trip as its first reads, and ends with its session. A write group is sent as one multi (a
ZooKeeper request that does several operations atomically). `zookeeper_paths` maps keys and records to znodes. `zookeeper_write`
handles failed multis.

Limitation: if a put with `ephemeral=False` expects a Record that is ephemeral, the record stays ephemeral.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from kazoo.exceptions import NoNodeError

from ledgers.credentials import shown
from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import ConfigurationError
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import IndexEntry, MetadataStore, Record, View, Watch, Write
from metadata.store.limits import check_writes
from metadata.store.zookeeper_eras import ERA_FULL, Eras
from metadata.store.zookeeper_multiread import GETS, get_all
from metadata.store.zookeeper_paths import (
    CLOCK,
    ERA_SIZE,
    RESERVED,
    era_folder,
    folder,
    index_folder,
    index_name,
    is_era,
    numbered,
    numbered_key,
    unescape,
    znode,
)
from metadata.store.zookeeper_same import is_served_by
from metadata.store.zookeeper_session import Outcome, Request, Session, children, session_lost, stat
from metadata.store.zookeeper_time import ServerTime
from metadata.store.zookeeper_watch import Watches
from metadata.store.zookeeper_write import Writer, to_record

FLIGHT = 2_000
"""Maximum number of requests in one flight, i.e. sent at once. A longer list is sent in several flights, so that no reply waits
behind megabytes of requests.
"""

_URL = re.compile(r"zk://([^/?#\s]+)((?:/[^/?#\s]+)*)/?")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:,\[\]]+):([0-9]{1,5})")


class ZooKeeperStore(MetadataStore):
    """A session with a ZooKeeper ensemble."""

    def __init__(
        self,
        hosts: str,
        root: str = "",
        *,
        clock: Clock | None = None,
        create: bool = True,
        connect_seconds: float = 10.0,
        session_seconds: float = 10.0,
        era_full: int = ERA_FULL,
    ) -> None:
        """Open a session.

        `hosts`: `host:port,host:port`. `root`: the chroot, e.g. `/txnsegment` (empty: none), created if `create`.
        `connect_seconds`: how long a call waits for a server. `session_seconds`: how long ephemeral records outlive a killed
        process. `era_full`: the number of creations in an era's folder after which the next era opens (tests lower it). Raises
        Unavailable, ConfigurationError.
        """
        self._session = Session(
            hosts, root, clock=clock or SystemClock(), connect_seconds=connect_seconds, session_seconds=session_seconds
        )
        try:
            self._open(create)
        except BaseException:
            self._session.close()
            raise
        self._eras = Eras(self._session, full=era_full)
        self._listed: dict[str, list[int]] = {}
        self._writer = Writer(self._session, self._eras)
        self._watches = Watches(self._session)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None, create: bool = True) -> ZooKeeperStore:
        """Open the store of a URL. Raises ConfigurationError unless the URL is `zk://host:port[,host:port...][/chroot]`."""
        hosts, root = hosts_and_root(url)
        return cls(hosts, root, clock=clock, create=create)

    def _open(self, create: bool) -> None:
        root = self._session.root
        (found,) = self._session.flight([stat(root or "/")])
        if found is None and not create:
            raise ConfigurationError(
                f"There is no {root} on ZooKeeper at {self._session.hosts}.",
                advice=f"Check the chroot, or run: txnsegment init zk://{self._session.hosts}{root} --ledgers URI",
            )
        if found is None:
            self._session.make_root()
            self._session.flight([self._session.create(root + CLOCK)])

    def view(self) -> View:
        return ZooKeeperView(self._session, self._listed)

    def write(self, *writes: Write) -> list[Record | None]:
        check_writes(writes)
        return self._writer.write(writes) if writes else []

    def skip(self, prefix: Prefix, to: int) -> None:
        """Advance all sequences in the folder of `prefix`. If `to` is near, this call uses up the numbers of the open era below
        `to`. Otherwise it opens an era whose first number is at least `to`.
        """
        self._eras.reach(prefix.path.rpartition("/")[0], to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self._watches.add(target, wake)

    def is_served_by(self, hosts: Sequence[str]) -> bool:
        return is_served_by(self._session, hosts)

    def close(self) -> None:
        self._session.close()


class ZooKeeperView(View):
    """A view of a ZooKeeperStore. `listed`: the eras of each sequence folder, as this process last listed them."""

    def __init__(self, session: Session, listed: dict[str, list[int]]) -> None:
        self._session = session
        self._listed = listed
        self._id = session.begin()
        self._synced = False
        self._time: ServerTime | None = None

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        places = [self._session.root + znode(key.path) for key in keys]
        lists = self._fly([get_all(places[start : start + GETS]) for start in range(0, len(places), GETS)])
        outcomes = [self._session.checked(outcome) for found in lists for outcome in found]
        return [_found(key, outcome) for key, outcome in zip(keys, outcomes, strict=True)]

    def keys(self, within: KeyRange) -> list[str]:
        if within.first > within.last:
            return []
        place, end = numbered(within.first), numbered(within.last)
        if place and end and place[:2] == end[:2]:
            found = self._sequence(place.parent, place.number // ERA_SIZE, end.number // ERA_SIZE)
            return sorted(path for path in found if within.first <= path <= within.last)
        return sorted(self._walk(within))

    def scan(self, within: KeyRange) -> list[Record]:
        paths = self.keys(within)
        found = self.get_many([Key(path, within.partition) for path in paths])
        return [record for record in found if record is not None]

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        (names,) = self._fly([children(self._session.root + index_folder(index))])
        if isinstance(names, NoNodeError):
            return []
        entries = sorted(entry for entry in map(index_name, names) if first <= entry[0] <= last)
        found = self.get_many([Key(path, "") for _, path in entries])
        # A record that was replaced between list and get may no longer have the index entry.
        return [
            record
            for (key, _), record in zip(entries, found, strict=True)
            if record is not None and IndexEntry(index, key) in record.indexes
        ]

    def now_ms(self) -> int:
        """Return the servers' time. The whole view uses one measurement, so a change of a server's clock does not matter."""
        if self._time is None:
            self._time = self._session.time(self._id)
        elif self._session.id != self._id:
            raise session_lost()
        return self._time.now_ms(self._session.clock.monotonic())

    # --- listing ---

    def _sequence(self, parent: str, first_era: int, last_era: int) -> list[str]:
        """Return the keys of all sequences in the folder `parent`, in the eras from `first_era` to `last_era`.

        The records are listed era by era, from the highest era to the lowest. An era is closed before the next era opens. So if a
        record is in the list of an era, the lists of the lower eras, which are made afterwards, have all records that were appended
        before it and still exist. The call takes one round trip, or two if an era was opened since this process last listed the
        folder.
        """
        root = self._session.root
        eras = [era for era in self._listed.get(parent, [0]) if first_era <= era <= last_era]
        names, *lists = self._fly([children(root + folder(parent)), *(children(root + era_folder(parent, e)) for e in eras)])
        if isinstance(names, NoNodeError):
            return []
        every = sorted((int(name) for name in names if is_era(name)), reverse=True)
        there = [era for era in every if first_era <= era <= last_era]
        self._listed[parent] = every
        if there != eras:
            eras = there
            lists = self._fly([children(root + era_folder(parent, era)) for era in eras])
        return [numbered_key(parent, era, name) for era, found in zip(eras, lists, strict=True) for name in _names(found)]

    def _walk(self, within: KeyRange) -> Iterable[str]:
        """Yield the keys in a range, one level of folders after the other. The walk begins at the deepest folder that both ends of
        the range share, because all keys in the range lie below it.
        """
        root = self._session.root
        common = _common(within.first, within.last)
        level = [common.rpartition("/")[0]]
        while level:
            lists = self._fly([children(root + folder(path)) for path in level])
            eras = [(path, int(name)) for path, names in zip(level, lists, strict=True) for name in _names(names) if is_era(name)]
            eras.sort(key=lambda era: -era[1])  # the highest era first, as in `_sequence`
            for (path, era), names in zip(
                eras, self._fly([children(root + era_folder(path, era)) for path, era in eras]), strict=True
            ):
                found = [numbered_key(path, era, name) for name in _names(names)]
                yield from (key for key in found if within.first <= key <= within.last)
            below = [
                f"{path}/{unescape(name)}"
                for path, names in zip(level, lists, strict=True)
                for name in _names(names)
                if not is_era(name) and (path or name not in RESERVED)
            ]
            below = [path for path in below if _may_hold(path, within)]
            states = self._fly([stat(root + folder(path)) for path in below])
            level = []
            for path, state in zip(below, states, strict=True):
                if state is None:
                    continue
                if state.dataLength and within.first <= path <= within.last:
                    yield path
                if state.numChildren:
                    level.append(path)

    def _fly(self, requests: Sequence[Request]) -> list[Outcome]:
        """Send requests in flights. The first flight of the view is synced. Later flights of the same session read this state or a
        newer one.
        """
        outcomes: list[Outcome] = []
        for start in range(0, len(requests), FLIGHT):
            part = requests[start : start + FLIGHT]
            if self._synced:
                outcomes += self._session.flight(part, self._id)
            else:
                outcomes += self._session.fresh(part, self._id)
                self._synced = True
        return outcomes


def _found(key: Key, outcome: Outcome) -> Record | None:
    if isinstance(outcome, NoNodeError):
        return None
    data, state = outcome
    return to_record(key, data, state.version)


def _names(outcome: Outcome) -> list[str]:
    """Return the names in a listed folder. Return no names if the folder was deleted before it was listed."""
    return [] if isinstance(outcome, NoNodeError) else outcome


def _common(first: str, last: str) -> str:
    for length, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return first[:length]
    return min(first, last, key=len)


def _may_hold(path: str, within: KeyRange) -> bool:
    """Return whether the key `path`, or a key below it, can lie in the range. (`0` is the next character after `/`.)"""
    return within.first <= path <= within.last or (path + "/" <= within.last and within.first < path + "0")


def hosts_and_root(url: str) -> tuple[str, str]:
    """Return the hosts and the chroot (empty or `/a/b`) of a zk:// URL. Raises ConfigurationError."""
    found = _URL.fullmatch(url)
    hosts = found[1] if found else ""
    parsed = [_HOST.fullmatch(host) for host in hosts.split(",")]
    if not found or "@" in hosts or not all(host and 0 < int(host[2]) < 65536 for host in parsed):
        raise ConfigurationError(
            "The service URL does not name ZooKeeper servers as zk://host:port,host:port/chroot."
            if "@" in url
            else f"{shown(url)} does not name ZooKeeper servers.",
            advice="Write zk://host:port,host:port/chroot; credentials come from the environment, never from the URL.",
        )
    parts = found[2].split("/")[1:]
    if any(part in (".", "..") for part in parts) or parts[:1] == ["zookeeper"]:
        raise ConfigurationError(f"{found[2]} cannot be a chroot.", advice="Name one like /txnsegment.")
    return hosts, found[2]
