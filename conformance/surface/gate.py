"""A real metadata store under watch: what registers is noted, and a commit can be held between two of its steps.

A commit that is held is a process that pauses (a long garbage collection, a suspended machine). It runs in a thread of its own and
goes on when it is told to; one that never goes on is a process that died.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from metadata.common.errors import Unavailable
from metadata.records import paths
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import Append, MetadataStore, Put, Record, View, Watch, Write

BEFORE, AFTER = "before its registration", "registered and not decided"
WRITE = "before a write"
PATIENCE = 60.0
OLDER_LOGS = "/persistent/logs/"
Hear = Callable[[Append, int], None]
"""Told of each append, and of the number that it got."""


class Held:
    """A call in a thread of its own that stops once at a point of its commit. `done`: it has come to its end."""

    def __init__(self, call: Callable[[], object], point: str, *, writes: int = 0) -> None:
        """`writes`: so many are let pass, if the point is before a write."""
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
        """Run to the point, or to the end; whether it is held."""
        self.thread.start()
        return self._wait() and self.thread.is_alive() and self.passed

    def _wait(self) -> bool:
        if not self._parked.wait(PATIENCE):
            raise AssertionError("a held commit neither came to its point nor ended")
        if not self.passed:
            self.thread.join(PATIENCE)
        return True

    def park(self) -> None:
        """Called by the thread itself at its point."""
        self.passed = True
        self._parked.set()
        self._go.wait()

    def finish(self) -> None:
        """Let it go on to its end."""
        self._go.set()
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            raise AssertionError("a commit that was let go did not end")


class Gate(MetadataStore):
    """The store of one process. `number`: of the last registration that it appended. `dead`: the process has ended."""

    def __init__(self, inner: MetadataStore, ahead_ms: Callable[[], int], hear: Hear) -> None:
        self.inner, self._ahead_ms, self._hear = inner, ahead_ms, hear
        self.number: int | None = None
        self.held: Held | None = None
        self.dead = False

    def _alive(self) -> None:
        if self.dead:
            raise Unavailable("This process has ended.")

    def view(self) -> View:
        self._alive()
        return _View(self.inner.view(), self)

    def write(self, *writes: Write) -> list[Record | None]:
        self._alive()
        self._stop(WRITE)
        registers = any(isinstance(one, Append) and (one.prefix == paths.LOG or older_data(one)) for one in writes)
        if registers:
            self._stop(BEFORE)
        done = self.inner.write(*writes)
        if registers:
            for one, record in zip(writes, done, strict=True):
                if isinstance(one, Append) and one.prefix == paths.LOG and record is not None:
                    self.number = paths.sequence_number(record.key.path)
        for one, record in zip(writes, done, strict=True):
            if isinstance(one, Append) and record is not None:
                self._hear(one, paths.sequence_number(record.key.path))
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

    def skip(self, prefix: Prefix, to: int) -> None:
        self.inner.skip(prefix, to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        self._alive()
        return self.inner.watch(target, wake)

    def close(self) -> None:
        self.inner.close()


def older_data(one: Append) -> bool:
    """Whether it appends rows to the log of a persistent topic."""
    return one.prefix.path.startswith(OLDER_LOGS) and b'"kind":"DATA"' in one.value


class _View(View):
    def __init__(self, inner: View, gate: Gate) -> None:
        self._inner, self._gate = inner, gate

    def get(self, key: Key) -> Record | None:
        self._gate._alive()
        return self._inner.get(key)

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        self._gate._alive()
        return self._inner.get_many(keys)

    def keys(self, within: KeyRange) -> list[str]:
        self._gate._alive()
        return self._inner.keys(within)

    def scan(self, within: KeyRange) -> list[Record]:
        self._gate._alive()
        return self._inner.scan(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        self._gate._alive()
        return self._inner.scan_index(index, first, last)

    def now_ms(self) -> int:
        return self._inner.now_ms() + self._gate._ahead_ms()


__all__ = ["AFTER", "BEFORE", "WRITE", "Gate", "Held", "Put"]
