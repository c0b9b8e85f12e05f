"""Wake-ups on ZooKeeper.

A watch on a server fires once and ends with the connection. So when a watch has fired, this module sets a new watch before it calls
the callback. The callback's reads follow on the same connection, so they see every change that was made before the new watch was
set. On each new connection this module sets all watches again and calls all callbacks.

The records of many sequences are in one folder, such as the events of all segments. ZooKeeper can watch a folder only as a
whole. So all watches of a process on sequences of one folder share one watch on the server (`_Folder`). The request that sets
it again lists the folder, and the list tells which sequences have new records. Only the callbacks of these sequences are
called. A folder is listed at most once in `LIST_SECONDS`: in a busy cluster each commit changes the folder of the events, and
the watches of all readers fire.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import EventType

from metadata.records.paths import Key, Prefix
from metadata.store.contract import Watch
from metadata.store.zookeeper_paths import escape, folder, is_era, znode
from metadata.store.zookeeper_session import Session

LIST_SECONDS = 0.05
"""How long the watch on a folder stays unset after the folder was listed, so that not every change makes every reader list it."""


class Watches:
    """All watches of one store. No method blocks, because kazoo's threads call some of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._guard = threading.Lock()
        self._keys: list[_KeyWatch] = []
        self._folders: dict[str, _Folder] = {}
        """The folders with open watches, by path."""
        session.on_connect(self._connected)

    def add(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        self._session.client()  # raises if no server answers
        if isinstance(target, Key):
            watch = _KeyWatch(self, self._session, self._session.root + znode(target.path), wake)
            with self._guard:
                self._keys.append(watch)
            watch.arm()
            return watch
        parent, _, base = target.path.rpartition("/")
        path = self._session.root + folder(parent)
        with self._guard:
            found = self._folders.get(path)
            if found is None:
                found = self._folders[path] = _Folder(path, self._session)
            sequence = _SequenceWatch(self, found, escape(base), wake)
            first = found.add(sequence)
        if first:
            found.arm()
        return sequence

    def remove(self, watch: _KeyWatch | _SequenceWatch) -> None:
        with self._guard:
            if isinstance(watch, _KeyWatch):
                if watch in self._keys:
                    self._keys.remove(watch)
            elif watch.folder.remove(watch) and self._folders.get(watch.folder.path) is watch.folder:
                del self._folders[watch.folder.path]

    def _connected(self, client: KazooClient) -> None:
        with self._guard:
            keys, folders = list(self._keys), list(self._folders.values())
        for key in keys:
            key.arm()
            client.handler.spawn(key.wake_if_open)
        for one in folders:
            one.arm()
            client.handler.spawn(one.wake_all)


class _Armed(ABC):
    """Sets watches on the server for some paths: at most one for each path at a time.

    Each request goes to the client that is connected when the request is sent. If there is none, no request is sent. The next
    connection sets all watches (`arm`). So a client that was replaced is never asked.
    """

    def __init__(self, session: Session) -> None:
        self.closed = False
        self._session = session
        self._guard = threading.Lock()
        self._armed: set[str] = set()

    def _begin(self, path: str) -> None:
        """Set the watches anew, for a new connection, beginning with that of `path`. A failure is ignored, because the contract
        allows lost wake-ups, and the next connection sets the watches again.
        """
        with self._guard:
            self._armed.clear()
        self._set(path)

    def _set(self, path: str) -> None:
        client = self._session.connected()
        if client is None:
            return
        with self._guard:
            if self.closed or path in self._armed:
                return
            self._armed.add(path)

        def fired(event: Any) -> None:
            self._disarm(path)
            if not self.closed and event.type != EventType.NONE:  # NONE: the connection is lost, and the next one sets the watch
                self._fired(path)

        self._send(client, path, fired)

    def _disarm(self, path: str) -> None:
        with self._guard:
            self._armed.discard(path)

    @abstractmethod
    def _send(self, client: KazooClient, path: str, fired: Callable[[Any], None]) -> None:
        """Send the request that sets the watch."""

    @abstractmethod
    def _fired(self, path: str) -> None:
        """Set the watch of a path again, which has fired."""


class _KeyWatch(_Armed, Watch):
    """A watch on a key, which watches the znode of the key."""

    def __init__(self, watches: Watches, session: Session, path: str, wake: Callable[[], None]) -> None:
        super().__init__(session)
        self._watches, self._path, self._wake = watches, path, wake

    def arm(self) -> None:
        self._begin(self._path)

    def _send(self, client: KazooClient, path: str, fired: Callable[[Any], None]) -> None:
        client.exists_async(path, watch=fired)

    def _fired(self, path: str) -> None:
        self._set(path)
        self.wake_if_open()

    def wake_if_open(self) -> None:
        if not self.closed:
            self._wake()

    def close(self) -> None:
        self.closed = True
        self._watches.remove(self)


class _SequenceWatch(Watch):
    """A watch on a prefix. `base`: the names of the sequence's znodes begin with it."""

    def __init__(self, watches: Watches, folder: _Folder, base: str, wake: Callable[[], None]) -> None:
        self._watches, self.folder, self.base, self._wake = watches, folder, base, wake
        self._closed = False
        self.newest = ""
        """The era and the number of the newest record of the sequence that a list has shown."""

    def wake_if_open(self) -> None:
        if not self._closed:
            self._wake()

    def close(self) -> None:
        self._closed = True
        self._watches.remove(self)


class _Folder(_Armed):
    """The folder of some sequences. It watches the folder that has the eras, and the highest era in it."""

    def __init__(self, path: str, session: Session) -> None:
        super().__init__(session)
        self.path, self._clock = path, session.clock
        self._listed: dict[str, float] = {}
        """When the request was sent that last listed a path."""
        self._sequences: dict[str, list[_SequenceWatch]] = {}
        self._newest: dict[str, str] = {}
        """The era and the number of the newest record of each sequence, as the last list of an era shows them."""

    def add(self, watch: _SequenceWatch) -> bool:
        """Add a watch. Return whether it is the first one."""
        with self._guard:
            first = not self._sequences
            watch.newest = self._newest.get(watch.base, "")
            self._sequences.setdefault(watch.base, []).append(watch)
            return first

    def remove(self, watch: _SequenceWatch) -> bool:
        """Remove a watch. Return whether no watch is left. The folder is then closed."""
        with self._guard:
            same = self._sequences.get(watch.base, [])
            if watch in same:
                same.remove(watch)
            if not same:
                self._sequences.pop(watch.base, None)
            self.closed = not self._sequences
            return self.closed

    def arm(self) -> None:
        self._begin(self.path)

    def _fired(self, path: str) -> None:
        left = self._listed.get(path, 0.0) + LIST_SECONDS - self._clock.monotonic()
        if left <= 0:
            self._set(path)
            return
        timer = threading.Timer(left, lambda: self._set(path))
        timer.daemon = True
        timer.start()

    def wake_all(self) -> None:
        with self._guard:
            watches = [watch for same in self._sequences.values() for watch in same]
        for watch in watches:
            watch.wake_if_open()

    def _send(self, client: KazooClient, path: str, fired: Callable[[Any], None]) -> None:
        def listed(answer: Any) -> None:
            if isinstance(answer.exception, NoNodeError):
                client.exists_async(path, watch=fired).rawlink(exists)
            elif isinstance(answer.exception, KazooException):
                self._disarm(path)
            elif path != self.path:
                self._seen(path[-10:], answer.value)
            elif eras := [name for name in answer.value if is_era(name)]:
                self._set(f"{path}/{max(eras)}")

        def exists(answer: Any) -> None:
            if answer.exception is None and answer.value is not None:  # the folder was created after `listed` found none
                client.get_children_async(path, watch=fired).rawlink(listed)

        self._listed[path] = self._clock.monotonic()
        client.get_children_async(path, watch=fired).rawlink(listed)

    def _seen(self, era: str, names: list[str]) -> None:
        """Call the callbacks of the sequences that have newer records in this list of an era than in any earlier list. The first
        list with a record of a sequence wakes its watches, because earlier appends may have woken no caller.
        """
        newest: dict[str, str] = {}
        for name in names:
            base, number = name[:-11], era + name[-10:]
            if newest.get(base, "") < number:
                newest[base] = number
        with self._guard:
            self._newest = newest
            woken = []
            for base, same in self._sequences.items():
                number = newest.get(base, "")
                for watch in same:
                    if watch.newest < number:
                        watch.newest = number
                        woken.append(watch)
        for watch in woken:
            watch.wake_if_open()
