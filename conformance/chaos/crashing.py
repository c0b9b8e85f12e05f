"""A metadata store that stops its own process before or after its k-th call: the crash points of protocol.md section 5."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType

from metadata.common.errors import Unavailable, UnknownOutcome
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import Append, MetadataStore, Record, View, Watch, Write


class When(Enum):
    """BEFORE: the call is never sent. AFTER: it is done, but nobody learns its answer."""

    BEFORE = "before"
    AFTER = "after"


class Fate(Enum):
    """DIE: SIGKILL to ourselves. SLEEP: SIGSTOP to ourselves, until somebody sends SIGCONT. FAIL: the call raises; `Unavailable`
    before it, and after it what a lost reply gives: `UnknownOutcome` for a write, `Unavailable` for a read.
    """

    DIE = auto()
    SLEEP = auto()
    FAIL = auto()


@dataclass(frozen=True)
class Crash:
    """What happens before or after call number `call`, counted from 1, of those whose names begin with `of`."""

    call: int
    when: When
    fate: Fate = Fate.DIE
    of: str = ""


class CrashingStore(MetadataStore):
    """Passes every call on to a real store and counts them. `calls` names them in order."""

    def __init__(self, inner: MetadataStore, crash: Crash | None) -> None:
        self._inner = inner
        self._crash = crash
        self._guard = threading.Lock()
        self.calls: list[str] = []

    def view(self) -> View:
        return _CrashingView(self, self._inner.view())

    def write(self, *writes: Write) -> list[Record | None]:
        with _Call(self, f"write {' '.join(map(_name, writes))}"):
            return self._inner.write(*writes)

    def skip(self, prefix: Prefix, to: int) -> None:
        with _Call(self, f"write skip {prefix.path}"):
            self._inner.skip(prefix, to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self._inner.watch(target, wake)

    def close(self) -> None:
        self._inner.close()

    def count(self, name: str) -> int:
        with self._guard:
            self.calls.append(name)
            return len(self.calls)

    def reach(self, call: int, when: When) -> None:
        if self._crash is None or self._crash.when is not when or not self.calls[call - 1].startswith(self._crash.of):
            return
        if self._crash.call != sum(name.startswith(self._crash.of) for name in self.calls[:call]):
            return
        match self._crash.fate:
            case Fate.DIE:
                os.kill(os.getpid(), signal.SIGKILL)
            case Fate.SLEEP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Fate.FAIL if when is When.AFTER and self.calls[call - 1].startswith("write"):
                raise UnknownOutcome(f"The reply to store call {call} was lost.")
            case Fate.FAIL:
                raise Unavailable(f"Store call {call} was not answered.")


def _name(write: Write) -> str:
    return f"Append {write.prefix.path}" if isinstance(write, Append) else type(write).__name__


class _Call:
    """One call: counted, with a crash point on either side."""

    def __init__(self, store: CrashingStore, name: str) -> None:
        self._store, self._name = store, name

    def __enter__(self) -> None:
        self._number = self._store.count(self._name)
        self._store.reach(self._number, When.BEFORE)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._store.reach(self._number, When.AFTER)


class _CrashingView(View):
    def __init__(self, store: CrashingStore, inner: View) -> None:
        self._store, self._inner = store, inner

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        with _Call(self._store, f"get {' '.join(k.path for k in keys)}"):
            return self._inner.get_many(keys)

    def keys(self, within: KeyRange) -> list[str]:
        with _Call(self._store, f"keys {within.first}"):
            return self._inner.keys(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        with _Call(self._store, f"index {index}"):
            return self._inner.scan_index(index, first, last)

    def now_ms(self) -> int:
        return self._inner.now_ms()
