"""A metadata store in which each atomic step passes a gate, and the gate decides the step's fate.

Golden scripts use the store with a gate that injects the faults of the script. The simulator uses it with the scheduler's gate,
which also chooses the next actor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from typing import Protocol

from metadata.common.clock import Clock
from metadata.common.errors import BadVersion, SessionLost, Unavailable, UnknownOutcome
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import Append, MetadataStore, Record, View, Watch, Write
from metadata.store.limits import check_writes
from metadata.store.memory import MemoryState


class Fate(Enum):
    """The fate of one step."""

    GO = auto()
    CRASH_BEFORE = auto()
    """The caller dies, and the step never happens."""
    CRASH_AFTER = auto()
    """The step happens, and the caller dies before the reply."""
    LOSE_REPLY = auto()
    """The caller gets UnknownOutcome, and the step happens."""
    LOSE_REQUEST = auto()
    """The caller gets UnknownOutcome, and the step does not happen."""
    LATE = auto()
    """The caller gets UnknownOutcome, and the step happens some steps later."""
    SPLIT = auto()
    """The caller gets UnknownOutcome. Of a group of writes only the first half happens, as on a backend without groups. A single
    write happens.
    """
    SPLIT_CRASH = auto()
    """The caller dies. Of a group of writes only the first half happens. A single write happens."""
    UNAVAILABLE = auto()
    """The caller gets Unavailable, which says that the step does not happen."""
    SESSION_LOST = auto()
    """The session ends, and the step does not happen. A read raises SessionLost, as do all later reads of views that were opened in
    this session. A write raises Unavailable.
    """


class Crashed(BaseException):
    """The process is dead. This class is no Exception, so that no code of the process catches it and continues."""


Gate = Callable[[str, str], Fate]
"""A function that is called before each step. It gets the kind of the step (`get`, `keys`, `index`, `write`, `publish`, ...) and
what the step touches. It returns the step's fate.
"""


def always(kind: str, what: str) -> Fate:
    return Fate.GO


class Wakes(Protocol):
    """An object that wakes the watches of a world. A watch is woken in time, late, twice or never."""

    @property
    def open(self) -> Collection[Watch]:
        """The open watches."""
        ...

    def add(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch: ...

    def changed(self, key: Key) -> None: ...


class Observer:
    """Receives each write that happens, with the record before and after it. The default does nothing."""

    def wrote(self, key: Key, before: bytes | None, after: bytes | None) -> None:
        """`before` None: the write created the record. `after` None: the write deleted it."""


class GatedStore(MetadataStore):
    """A session on a `MemoryState`. It is as unreliable as the store contract allows.

    torn     called for each record of a list after the first: returns whether reading this record is a step of its own
    late     runs a request some steps later (for the fate LATE); None: such a request takes effect at once
    slow     returns whether a reply is delayed, so that other actors may take steps before the caller gets it
    lags     returns whether a replica answers a read. The replica may lack new writes of other sessions. It always has what existed
             when the session last opened a view, read from the store itself, or wrote
    wakes    wakes the watches; None: all wake-ups are lost
    dumb     returns whether a call for the store's time fails. A failing call is a step; a successful one is not
    """

    def __init__(
        self,
        state: MemoryState,
        clock: Clock,
        gate: Gate = always,
        *,
        observer: Observer | None = None,
        torn: Callable[[], bool] | None = None,
        late: Callable[[Callable[[], None]], None] | None = None,
        slow: Callable[[], bool] | None = None,
        lags: Callable[[], bool] | None = None,
        wakes: Wakes | None = None,
        dumb: Callable[[], bool] | None = None,
    ) -> None:
        self.state, self.clock, self.gate, self.torn, self.slow = state, clock, gate, torn, slow
        self.observer = observer or Observer()
        self.session = state.begin_session()
        self._late, self.lagging, self._wakes = late, lags, wakes
        self._replica, self.dumb = state, dumb

    def view(self) -> View:
        if self.lagging is not None:
            self._replica = self.state.snapshot()
        return GatedView(self)

    def read(self) -> MemoryState:
        """Return the state that answers a read now: the current one, or that of the replica."""
        if self.lagging is None or self.lagging():
            return self._replica
        self._replica = self.state.snapshot()
        return self._replica

    def write(self, *writes: Write) -> list[Record | None]:
        check_writes(writes)
        fate = self.gate("write", _what(writes[0]))
        records = self._apply(writes) if fate is Fate.GO else self._befalls(fate, writes)
        if self.slow is not None and self.slow():
            self.reply()
        return records

    def _befalls(self, fate: Fate, writes: Sequence[Write]) -> list[Record | None]:
        if fate is Fate.CRASH_BEFORE:
            raise Crashed
        if fate is Fate.UNAVAILABLE:
            raise Unavailable("The simulated store refused.")
        if fate is Fate.SESSION_LOST:
            self.lose_session()
            raise Unavailable("The simulated session was lost before the write was sent.")
        if fate is Fate.LOSE_REQUEST:
            raise UnknownOutcome("The simulated reply was lost.")
        if fate in (Fate.SPLIT, Fate.SPLIT_CRASH) and len(writes) > 1:
            self._apply(writes[: len(writes) // 2])
            if fate is Fate.SPLIT_CRASH:
                raise Crashed
            raise UnknownOutcome("The simulated reply was lost within a group.")
        if fate is Fate.LATE and self._late is not None:
            self._late(lambda: self._attempt(writes))
            raise UnknownOutcome("The simulated reply was lost.")
        records = self._apply(writes)
        if fate in (Fate.CRASH_AFTER, Fate.SPLIT_CRASH):
            raise Crashed
        if fate in (Fate.LOSE_REPLY, Fate.SPLIT, Fate.LATE):
            raise UnknownOutcome("The simulated reply was lost.")
        return records

    def reply(self) -> None:
        """Delay a reply: let other actors take steps before the caller gets it."""
        if self.gate("reply", "") is not Fate.GO:
            raise Crashed

    def _attempt(self, writes: Sequence[Write]) -> None:
        """Run a request that arrives late. Its sender gets no reply, so a BadVersion is ignored."""
        try:
            self._apply(writes)
        except BadVersion:
            return

    def _apply(self, writes: Sequence[Write]) -> list[Record | None]:
        state, wakes = self.state, self._wakes
        before = [None if isinstance(write, Append) else state.records.get(write.key) for write in writes]
        records = state.apply(writes, self.session)
        for write, old, record in zip(writes, before, records, strict=True):
            if record is None:
                assert not isinstance(write, Append)
                key, after = write.key, None
            else:
                key, after = record.key, record.value
            self.observer.wrote(key, None if old is None else old.value, after)
            if wakes is not None and wakes.open:
                wakes.changed(key)
        if self.lagging is not None:
            self._replica = self.state.snapshot()
        return records

    def skip(self, prefix: Prefix, to: int) -> None:
        fate = self.gate("write", f"Skip {prefix.path}")
        if fate is Fate.CRASH_BEFORE:
            raise Crashed
        if fate in (Fate.UNAVAILABLE, Fate.SESSION_LOST):
            raise Unavailable("The simulated store refused.")
        self.state.skip(prefix, to)
        if fate in (Fate.CRASH_AFTER, Fate.SPLIT_CRASH):
            raise Crashed
        if fate is not Fate.GO:
            raise UnknownOutcome("The simulated reply was lost.")

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return _Silent() if self._wakes is None else self._wakes.add(target, wake)

    def lose_session(self) -> None:
        self.state.end_session(self.session)
        self.session = self.state.begin_session()

    def close(self) -> None:
        self.lose_session()


class _Silent(Watch):
    """A watch that is never woken. The contract allows wake-ups to be lost."""

    def close(self) -> None:
        return


class GatedView(View):
    __slots__ = ("_session", "_store")

    def __init__(self, store: GatedStore) -> None:
        self._store = store
        self._session = store.session

    def _pass(self, kind: str, what: str) -> MemoryState:
        store = self._store
        fate = store.gate(kind, what)
        if fate is not Fate.GO:
            if fate is Fate.UNAVAILABLE:
                raise Unavailable("The simulated store refused to answer.")
            if fate is Fate.SESSION_LOST:
                store.lose_session()
            elif fate in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.SPLIT_CRASH):
                raise Crashed
        if store.session != self._session:
            raise SessionLost("The simulated session has ended.")
        return store.state if store.lagging is None else store.read()

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        store = self._store
        state = self._pass("get", keys[0].path if keys else "")
        if store.torn is None or len(keys) < 2:
            found = list(map(state.records.get, keys))
        else:
            found = [state.get(keys[0])]
            for key in keys[1:]:
                if store.torn():
                    state = self._pass("get", key.path)
                found.append(state.get(key))
        if store.slow is not None and store.slow():
            store.reply()
        return found

    def keys(self, within: KeyRange) -> list[str]:
        store = self._store
        found = [key.path for key in self._pass("keys", within.first).keys(within)]
        if store.slow is not None and store.slow():
            store.reply()
        return found

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        found = self._pass("index", index).scan_index(index, first, last)
        if not found or self._store.torn is None or not self._store.torn():
            return found
        again = self.get_many([record.key for record in found])  # a record that was replaced meanwhile may have left the index
        return [now for now in again if now is not None and any(e.name == index and first <= e.key <= last for e in now.indexes)]

    def now_ms(self) -> int:
        store = self._store
        if store.dumb is not None and store.dumb():
            self._pass("time", "")
            raise Unavailable("The simulated store did not tell the time.")
        if store.session != self._session:
            raise SessionLost("The simulated session has ended.")
        return store.clock.now_ms()


def _what(write: Write) -> str:
    path = write.prefix.path if isinstance(write, Append) else write.key.path
    return f"{type(write).__name__} {path}"
