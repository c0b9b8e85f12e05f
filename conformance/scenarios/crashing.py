"""Crash points: a process kills or stops itself before or after a certain call to its metadata store, or the call fails."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from conformance.harness.faulty_store import READS, Call
from conformance.scenarios.faults import Fault
from metadata.common.errors import Unavailable, UnknownOutcome

CALLS = READS | {"write", "skip"}
"""The kinds of store calls that have crash points."""


class When(Enum):
    """BEFORE: the call is never sent. AFTER: the call is done, but its reply is lost."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class Crash:
    """A fault before or after call number `call`. Only the calls whose names begin with `of` are counted, from 1.

    With KILL and STOP, the process sends the signal to itself. With FAIL, the call raises an error. If `when` is BEFORE, the error
    is `Unavailable`. If it is AFTER, the error is that of a lost reply: `UnknownOutcome` for a write, `Unavailable` for a read.
    """

    call: int
    when: When
    fault: Fault = Fault.KILL
    of: str = ""

    def __str__(self) -> str:
        return f"{self.fault} {self.when.value} store call {self.call}"


class Crashing:
    """The policy of a `FaultyStore`. It counts the store calls and strikes at one of them. `calls`: the calls so far, as texts."""

    def __init__(self, crash: Crash | None) -> None:
        self._crash = crash
        self._guard = threading.Lock()
        self.calls: list[str] = []

    def __call__(self, call: Call, go: Callable[[], Any]) -> Any:
        if call.kind not in CALLS:
            return go()
        with self._guard:
            self.calls.append(str(call))
            number = len(self.calls)
        self._reach(number, When.BEFORE)
        try:
            return go()
        finally:
            self._reach(number, When.AFTER)

    def _reach(self, call: int, when: When) -> None:
        if self._crash is None or self._crash.when is not when or not self.calls[call - 1].startswith(self._crash.of):
            return
        if self._crash.call != sum(name.startswith(self._crash.of) for name in self.calls[:call]):
            return
        match self._crash.fault:
            case Fault.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Fault.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Fault.FAIL if when is When.AFTER and self.calls[call - 1].startswith("write"):
                raise UnknownOutcome(f"The reply to store call {call} was lost.")
            case Fault.FAIL:
                raise Unavailable(f"Store call {call} was not answered.")
