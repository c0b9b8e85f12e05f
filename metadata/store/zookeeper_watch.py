"""Wake-ups on ZooKeeper.

A watch on a server fires once and ends with the connection. So when a watch has fired, this module sets a new watch before it calls
the callback. The callback's reads follow on the same connection, so they see every change that was made before the new watch was
set. On each new connection this module sets all watches again and calls all callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import EventType

from metadata.records.paths import Key, Prefix
from metadata.store.contract import Watch
from metadata.store.zookeeper_paths import folder, is_era, znode
from metadata.store.zookeeper_session import Session


class Watches:
    """All watches of one store. No method blocks, because kazoo's threads call some of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._guard = threading.Lock()
        self._all: list[_Watch] = []
        session.on_connect(self._connected)

    def add(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        client = self._session.client()
        watch = _Watch(self, target, wake, self._session.root)
        with self._guard:
            self._all.append(watch)
        watch.arm(client)
        return watch

    def remove(self, watch: _Watch) -> None:
        with self._guard:
            if watch in self._all:
                self._all.remove(watch)

    def _connected(self, client: KazooClient) -> None:
        with self._guard:
            watches = list(self._all)
        for watch in watches:
            watch.arm(client)
            client.handler.spawn(watch.wake)


class _Watch(Watch):
    """A watch on a key watches its znode. A watch on a prefix watches the folder that has the eras of the sequence, and the highest
    era in it.
    """

    def __init__(self, watches: Watches, target: Key | Prefix, wake: Callable[[], None], root: str) -> None:
        self._watches, self.wake = watches, wake
        self._closed = False
        self._sequence = isinstance(target, Prefix)
        self._path = root + (folder(target.path.rpartition("/")[0]) if isinstance(target, Prefix) else znode(target.path))
        self._guard = threading.Lock()
        self._armed: set[str] = set()

    def arm(self, client: KazooClient) -> None:
        """Set the watch on the server. A failure is ignored, because the contract allows lost wake-ups, and the next connection
        sets the watch again.
        """
        with self._guard:
            self._armed.clear()
        self._set(client, self._path)

    def _set(self, client: KazooClient, path: str) -> None:
        with self._guard:
            if self._closed or path in self._armed:
                return
            self._armed.add(path)

        def fired(event: Any) -> None:
            with self._guard:
                self._armed.discard(path)
            if self._closed or event.type == EventType.NONE:
                return  # the connection is lost: `_connected` sets the watch again
            self._set(client, path)
            self._wake_if_open()

        if not self._sequence:
            client.exists_async(path, watch=fired)
            return

        def listed(answer: Any) -> None:
            if isinstance(answer.exception, NoNodeError):
                client.exists_async(path, watch=fired).rawlink(exists)
            elif isinstance(answer.exception, KazooException):
                with self._guard:
                    self._armed.discard(path)
            elif path != self._path:
                self._wake_if_open()  # the watch on the era begins now, so earlier appends to the era have woken no caller
            elif eras := [name for name in answer.value if is_era(name)]:
                self._set(client, f"{path}/{max(eras)}")

        def exists(answer: Any) -> None:
            if answer.exception is None and answer.value is not None:  # the folder was created after `listed` found none
                client.get_children_async(path, watch=fired).rawlink(listed)

        client.get_children_async(path, watch=fired).rawlink(listed)

    def _wake_if_open(self) -> None:
        if not self._closed:
            self.wake()

    def close(self) -> None:
        self._closed = True
        self._watches.remove(self)
