"""The policy of the `FaultyStore` of one process: the function that runs every call to the metadata store. It reports each append,
and can pause a commit or a migration between two of its store calls.

A paused call simulates a paused process, such as one in a long garbage collection or on a suspended machine. The call runs in a
thread of its own and continues on command. If the process is marked as dead, the call fails when it continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from conformance.harness.faulty_store import Call
from metadata.common.errors import Unavailable
from metadata.records import paths
from metadata.store.contract import Append, Record, Write

BEFORE, AFTER = "before its registration", "registered and not decided"
WRITE = "before a write"
PATIENCE = 60.0
PERSISTENT_LOGS = "/persistent/logs/"
Hear = Callable[[Append, int], None]
"""A function that is called after each append, with the append and the number that it got."""


class Held:
    """A commit or migration that runs in a thread of its own and pauses once, at `point` (BEFORE, AFTER or WRITE). `passed`:
    whether it has reached this point. `result`, `error`: what it returned or raised.
    """

    def __init__(self, call: Callable[[], object], point: str, *, writes: int = 0) -> None:
        """`writes`: the number of writes that pass before the call pauses. It matters only if the point is WRITE."""
        self.point, self.passed, self.writes = point, False, writes
        self.result: object = None
        self.error: BaseException | None = None
        self._parked, self._go = threading.Event(), threading.Event()
        self._call = call
        self.thread = threading.Thread(target=self._run, name="surface-held", daemon=True)

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            self._parked.set()

    def start(self) -> bool:
        """Start the call, and wait until it pauses or ends. Return whether it is paused."""
        self.thread.start()
        return self._wait() and self.thread.is_alive() and self.passed

    def _wait(self) -> bool:
        if not self._parked.wait(PATIENCE):
            raise AssertionError("a held commit neither came to its point nor ended")
        if not self.passed:
            self.thread.join(PATIENCE)
        return True

    def park(self) -> None:
        """Pause the current thread until `finish` is called. The gate calls this in the thread of the call, at `point`."""
        self.passed = True
        self._parked.set()
        self._go.wait()

    def finish(self) -> None:
        """Let a paused call continue, and wait for its end."""
        self._go.set()
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            raise AssertionError("a commit that was let go did not end")


class Gate:
    """The policy of the store of one process. Each store call goes through `__call__`. `number`: the number of the last entry that
    the process appended to the cluster's log. `held`: the paused call of the process. `dead`: whether the process counts as dead.
    Its store calls then fail.
    """

    def __init__(self, ahead_ms: Callable[[], int], hear: Hear) -> None:
        self._ahead_ms, self._hear = ahead_ms, hear
        self.number: int | None = None
        self.held: Held | None = None
        self.dead = False

    def __call__(self, call: Call, go: Callable[[], Any]) -> Any:
        if call.kind == "time":
            return go() + self._ahead_ms()
        self._alive()
        return self._write(call.writes, go) if call.kind == "write" else go()

    def _alive(self) -> None:
        if self.dead:
            raise Unavailable("This process has ended.")

    def _write(self, writes: Sequence[Write], go: Callable[[], list[Record | None]]) -> list[Record | None]:
        self._stop(WRITE)
        registers = any(isinstance(one, Append) and (one.prefix == paths.LOG or persistent_data(one)) for one in writes)
        if registers:
            self._stop(BEFORE)
        done = go()
        for one, record in zip(writes, done, strict=True):
            if isinstance(one, Append) and record is not None:
                number = paths.sequence_number(record.key.path)
                if one.prefix == paths.LOG:
                    self.number = number
                self._hear(one, number)
        if registers:
            self._stop(AFTER)
        return done

    def _stop(self, point: str) -> None:
        held = self.held
        if held is not None and threading.current_thread() is held.thread and held.point == point and not held.passed:
            if held.writes:
                held.writes -= 1
                return
            held.park()
            self._alive()


def persistent_data(one: Append) -> bool:
    """Return whether the append adds rows to the log of a persistent topic."""
    return one.prefix.path.startswith(PERSISTENT_LOGS) and b'"kind":"DATA"' in one.value
