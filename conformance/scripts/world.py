"""The world of a script: one store, one disk, one clock that the script moves, and processes. A script can stop the work of a
process before any call to the store or the disk.

The real code of `metadata` runs here. Each command runs in a greenlet, which is suspended at the calls that the script names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import greenlet

from conformance.scripts.calls import WORDS, word
from conformance.scripts.parsing import ScriptError
from conformance.simulator.store.faults import Crashed, Fate, GatedStore
from conformance.simulator.store.storage import Disk, GatedStorage
from metadata.backup.backup_file import Backup
from metadata.client.client import client
from metadata.cluster.cluster import Cluster
from metadata.common.errors import TxnSegmentError
from metadata.records.cluster_records import Lost, Settings
from metadata.store.memory import MemoryState

BEGIN_MS = 1_700_000_000_000
"""The time at which every script starts. A time such as `+30s` in a script counts from here."""

SETTINGS = Settings(txn_id_block=10)
"""The protocol's default settings, with one exception: a process takes transaction ids in blocks of ten. So the id of a transaction
shows which process began it.
"""

URL = "memory://script"


_DEADLY = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.SPLIT_CRASH)


class HandClock:
    """A clock that the script moves. When the product sleeps, this counts as a call, at which the script can stop the work. Then
    the clock moves on by the length of the sleep.
    """

    def __init__(self) -> None:
        self.now = BEGIN_MS
        self.pausing: Callable[[str, str], Fate] = lambda kind, what: Fate.GO

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.pausing("sleep", "")
        self.now += int(seconds * 1000)


@dataclass
class Fault:
    """A planned fault. `line`: the script's line. `word`: the name of the call that it strikes. `fate`: the fate of the call; None:
    the process sleeps before the call. `after`: how many calls of this name pass before the fault strikes.
    """

    line: str
    word: str
    fate: Fate | None
    after: int = 0


class Process:
    """A process, by its name in the script. It has its own session of the store, its own client, and its own planned faults."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.alive = world, name, True
        self.faults: list[Fault] = []
        self.asleep: list[Work] = []
        self.calls: list[str] = []
        self.behind: list[Callable[[], object]] = []
        """The background work of the process's commits (`metadata.write.background`). It is done when the script says `tell`."""
        self.lags = False
        """Whether a replica answers the reads of this process. The replica is as stale as the store contract allows."""
        self.store = GatedStore(world.state, world.clock, self.gate, late=world.late.append, lags=lambda: self.lags)
        storage = GatedStorage(world.disk, self.gate)
        cluster = Cluster(URL, self.store, storage, world.settings, world.clock, world.unique, owner=name, restored=world.restored)
        self.cluster, self.client = cluster, client(cluster, self.behind.append)

    def gate(self, kind: str, what: str) -> Fate:
        work = self.world.running
        if work is None:
            return Fate.GO  # a call of the script itself
        if not self.alive:
            raise Crashed
        called = word(kind, what, self.world.state)
        self.calls.append(called)
        if work.stop is not None and work.stop(called):
            work.stop = None
            self.world.hub.switch(called)
        for fault in [f for f in self.faults if f.word == called]:
            if fault.after:
                fault.after -= 1
                continue
            self.faults.remove(fault)
            if fault.fate is not None:
                self.alive = fault.fate not in _DEADLY  # a dead process makes no more calls, also not for its cleanup
                return fault.fate
            self.asleep.append(work)
            self.world.hub.switch(called)
        if not self.alive:
            raise Crashed
        return Fate.GO

    def arm(self, fault: Fault) -> None:
        if fault.word not in WORDS:
            raise ScriptError(f"{fault.line!r}: there is no call {fault.word}; there are {', '.join(sorted(WORDS))}")
        self.faults.append(fault)


@dataclass
class Work:
    """One running command. `run`: does the command. `answer`: makes the lines of the answer from the result of `run`. `stop`: gets
    the name of the next call, and returns whether the work stops before this call; None: it never stops.
    """

    process: Process
    run: Callable[[], Any]
    answer: Callable[[Any], list[str]]
    stop: Callable[[str], bool] | None = None
    reached: Callable[[], list[str]] = list
    """A function that makes the lines of the answer when the work reaches its stop."""
    attempt: str = ""
    txn: str = ""
    begin: Callable[[], None] = lambda: None
    """A function that is called whenever the work starts or continues."""
    greenlet: Any = None
    done: bool = False


@dataclass
class World:
    """The state on which the commands of a script act."""

    settings: Settings = SETTINGS
    clock: HandClock = field(default_factory=HandClock)
    state: MemoryState = field(default_factory=MemoryState)
    processes: dict[str, Process] = field(default_factory=dict)
    late: list[Callable[[], None]] = field(default_factory=list)
    """The effects of requests that are delayed and have not yet arrived."""
    running: Work | None = None
    backup: Backup | None = None
    """The last backup."""
    restored: tuple[Lost, ...] = ()
    """The ranges of numbers that restores of this world's cluster have lost."""

    def __post_init__(self) -> None:
        self.disk = Disk(self.clock)
        self.hub = greenlet.getcurrent()
        self._names = self.written = self.attempts = 0
        self.works: list[Work] = []
        """All work that was started and did not crash. The greenlets are kept here, because Python ends a greenlet that nothing
        refers to, and the cleanup of its code would then change the store.
        """
        self.limits: list[tuple[Any, str, int]] = []
        """The limits in modules of the product that the script has changed, as (module, name, original value)."""
        self.opened: dict[str, Work] = {}
        self.streams: dict[str, Any] = {}
        self.written_in: dict[tuple[str, int, int], str] = {}
        """(segment, ledger, entry) -> the file from which a read took the entry before it was compacted."""
        self.staged: dict[str, tuple[dict[str, Any], int]] = {}
        self.together: dict[str, Any] = {}
        """Name of a process -> its transaction over several writes (`conformance.scripts.together`)."""
        self.runs: dict[str, dict[str, tuple[int, int, dict[str, Any] | None]]] = {}
        """The writes of Spark that have begun: token -> name of the write -> (order, time, parts). `order`: the place of the write
        in the transaction. `time`, `parts`: the staging time and the parts that its next manifest will have; `parts` None: new
        parts are staged first.
        """

    def unique(self) -> str:
        self._names += 1
        return f"u{self._names}"

    def process(self, name: str) -> Process:
        """Return the process of this name. If there is none, or if it has crashed, start a new one. Raises ScriptError if the
        crashed process has a fault that struck no call.
        """
        found = self.processes.get(name)
        if found is None or not found.alive:
            if found is not None and found.faults:  # the fault was planned for the crashed process, so it can never strike
                raise ScriptError(f"{name} crashed before it met {found.faults[0].line!r}")
            found = self.processes[name] = Process(self, name)
            self.clock.pausing = self._pausing
        return found

    def _pausing(self, kind: str, what: str) -> Fate:
        return Fate.GO if self.running is None else self.running.process.gate(kind, what)

    def drive(self, work: Work) -> list[str]:
        """Run a piece of work until it is done, crashes, sleeps or reaches its stop. Return the lines of its answer."""
        process = work.process
        if work.greenlet is None:
            process.calls.clear()
            work.greenlet = greenlet.greenlet(work.run, self.hub)
            self.works.append(work)
        work.begin()
        self.running = work
        stopped: Any = None
        try:
            answer = work.greenlet.switch()
            stopped = None if work.greenlet.dead else answer
        except Crashed:
            self.running = None
            self.crash(process)
            return [f"{process.name} crashed"]
        except TxnSegmentError as error:
            work.done = True
            return [f"{type(error).__name__}: {error.message}"]
        finally:
            self.running = None
        if stopped is not None:
            return [f"{process.name} sleeps before {stopped}"] if work in process.asleep else work.reached()
        work.done = True
        return work.answer(answer)

    def crash(self, process: Process) -> None:
        """Kill the process as SIGKILL does. Its session ends, and its work ends without further calls."""
        process.alive = False
        process.behind.clear()
        process.asleep.clear()
        doomed = [work for work in self.works if work.process is process]
        self.works = [work for work in self.works if work.process is not process]
        for work in doomed:
            if work.greenlet and not work.greenlet.dead:
                self.running = work
                try:
                    work.greenlet.throw(Crashed)
                except Crashed:
                    continue
                finally:
                    work.done = True
                    self.running = None
        self.state.end_session(process.store.session)

    def replace(self, state: MemoryState, restored: tuple[Lost, ...]) -> None:
        """Replace the store of the cluster, as a restore does. Crash all processes first, because they use the old store."""
        for process in self.processes.values():
            if process.alive:
                self.crash(process)
        self.state, self.restored = state, restored

    def end(self) -> None:
        """Check that everything the script plans has happened. Raises ScriptError if a fault of a live process struck no call, or
        if a delayed request never arrived. Such a script would test less than it says.
        """
        for process in self.processes.values():
            if process.alive and process.faults:
                raise ScriptError(f"nobody met {process.faults[0].line!r}")
        if self.late:
            raise ScriptError("a request that was delayed never arrived: the script needs `arrive`")

    def close(self) -> None:
        """Crash all processes of the script, and set changed limits (`limits`) back to their original values."""
        for process in self.processes.values():
            if process.alive:
                self.crash(process)
        for module, name, before in reversed(self.limits):
            setattr(module, name, before)
