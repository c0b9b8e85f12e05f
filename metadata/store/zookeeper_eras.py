"""The eras of sequences on ZooKeeper (protocol.md section 3).

ZooKeeper numbers the sequential znodes of a folder by a 32-bit counter, which is too small for a log. So the numbers of a sequence
are divided into eras. Each era has a folder of its own, and an era record names the open era. An append checks the era record in
the same multi, so a process that was suspended cannot append to an older era. The next era opens long before the counter of the
open one is full.

`Eras.reach` advances a sequence to a number. If the number is near, `reach` uses up numbers of the open era. Otherwise it opens
another era. `reach` does not always open an era, because an era is never removed, and each era adds a folder to every list of the
sequence.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import ZnodeStat

from metadata.common.errors import CorruptRecord
from metadata.store.zookeeper_paths import ERA_SIZE, era_folder, era_record
from metadata.store.zookeeper_session import Session, change, get, stat

ERA_FULL = 1_000_000_000
"""The next era opens when this many znodes were created in the folder of the open era. The folder's `cversion`, a signed 32-bit
number, counts creations and deletions. Each znode is deleted at most once, so `cversion` stays positive up to 2^30 creations.
"""
NEAR = 10_000
"""`reach` uses up at most this many numbers. That takes ten multis and five round trips of reads."""
STEP = 1_000
"""One multi uses up at most this many numbers. Each number takes a create and a delete, together some 250 bytes. So a multi stays
far below its size limit.
"""


@dataclass(slots=True)
class _Open:
    era: int
    version: int
    created: int


class Eras:
    """The open era of each folder that has sequences, as this process last read it. If another process has opened a newer era, the
    multi of the next append fails, and the writer reads the era again.
    """

    def __init__(self, session: Session, *, full: int = ERA_FULL) -> None:
        self._session = session
        self._full = full
        self._guard = threading.Lock()
        self._open: dict[str, _Open] = {}

    def open(self, parent: str) -> tuple[int, int]:
        """Return the open era of the folder `parent`, and the version of the era record. If the open era is full, open the next era
        first.
        """
        while True:
            known = self._open.get(parent)
            if known is None:
                known = self._load(parent)
            if known.created < self._full:
                return known.era, known.version
            self.move_on(parent)

    def saw(self, parent: str, era: int, number: int) -> None:
        """Note that an append got the number `number` within this era."""
        with self._guard:
            known = self._open.get(parent)
            if known is not None and known.era == era:
                known.created = max(known.created, number + 1)

    def forget(self, parent: str) -> None:
        with self._guard:
            self._open.pop(parent, None)

    def move_on(self, parent: str) -> None:
        """Open the next era, unless another process has opened it. Raises Unavailable or UnknownOutcome; the call may be repeated
        after both.
        """
        known = self._open.get(parent) or self._load(parent)
        self._move(parent, known, known.era + 1)

    def reach(self, parent: str, to: int) -> None:
        """Advance the sequence so that its next number is at least `to`. Raises Unavailable or UnknownOutcome; the call may be
        repeated after both.
        """
        while (ahead := to - (known := self._load(parent)).era * ERA_SIZE - known.created) > 0:
            if ahead <= NEAR and known.created + ahead < self._full:
                self._count_on(parent, known, known.created + ahead)
            else:
                self._move(parent, known, max(known.era + 1, -(-to // ERA_SIZE)))

    def _count_on(self, parent: str, known: _Open, to: int) -> None:
        """Use up the numbers of the open era below `to`. To do so, create znodes, and delete each of them in the same multi, so
        that no reader sees them. Stop if another process has opened a newer era.
        """
        place = era_folder(parent, known.era)
        guard, house = self._session.root + era_record(parent), self._session.root + place
        self._session.make_folders(place + "/0")

        def fill(numbers: int, transaction: Any) -> None:
            transaction.check(guard, known.version)
            for _ in range(numbers):
                transaction.create(house + "/0", b"", self._session.acl)
                transaction.delete(house + "/0")
            transaction.set_data(house, b"")  # the reply has the folder's counter, which other processes may also have advanced

        created = known.created
        while created < to:
            results = self._session.multi(partial(fill, min(to - created, STEP)))
            if any(isinstance(result, KazooException) for result in results):
                return  # another era was opened
            created = _created(results[-1])

    def _move(self, parent: str, known: _Open, era: int) -> None:
        guard, place = self._session.root + era_record(parent), era_folder(parent, era)

        def fill(transaction: Any) -> None:
            transaction.set_data(guard, b"%d" % era, known.version)

        results = self._session.multi(fill)
        self.forget(parent)
        if not any(isinstance(result, KazooException) for result in results):
            self._session.make_folders(place + "/0")

    def _load(self, parent: str) -> _Open:
        path = self._session.root + era_record(parent)
        while True:
            (outcome,) = self._session.fresh([get(path)])
            if not isinstance(outcome, NoNodeError) and outcome[0]:
                break
            self._begin(parent, None if isinstance(outcome, NoNodeError) else outcome[1].version)
        data, known_stat = outcome
        if not data.isdigit():
            raise CorruptRecord(f"{path} does not name an era: {data[:50]!r}.", advice="Restore that znode from a backup.")
        era = int(data)
        house = self._session.root + era_folder(parent, era)
        (state,) = self._session.flight([stat(house)])
        created = 0 if state is None else _created(state)
        with self._guard:
            known = self._open[parent] = _Open(era, known_stat.version, created)
        return known

    def _begin(self, parent: str, folder_version: int | None) -> None:
        """Create the era record of a parent. The record's znode may exist already as an empty folder."""
        place = era_record(parent)
        path = self._session.root + place
        self._session.make_folders(place)
        self._session.make_folders(era_folder(parent, 0) + "/0")
        begin = self._session.create(path, b"0") if folder_version is None else change(path, b"0", folder_version)
        self._session.flight([begin])


def _created(folder: ZnodeStat) -> int:
    """Return how many znodes were ever created in a folder. The server's `cversion` is creations * 2 - children."""
    made: int = ((folder.cversion + folder.numChildren) & 0xFFFFFFFF) // 2
    return made
