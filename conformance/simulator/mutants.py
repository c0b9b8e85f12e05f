"""Deliberate faults in the real code, one at a time: each must be caught by the simulator's checks, or a check is missing."""

from __future__ import annotations
import __future__ as future

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule
from metadata import transitions
from metadata.coordinator import Coordinator
from metadata.log import LiveLog
from metadata.sweeper import Sweeper
from metadata.transaction_buffer import TransactionBuffer


@dataclass(frozen=True)
class Mutant:
    """`old` in the source of `owner.function` becomes `new`."""

    name: str
    why: str
    owner: Any
    function: str
    change: Callable[[str], str]


def _swap(old: str, new: str) -> Callable[[str], str]:
    def change(source: str) -> str:
        assert old in source, f"{old!r} is no longer in the source: write the mutant anew"
        return source.replace(old, new)

    return change


def _snapshots_first(source: str) -> str:
    log = [line for line in source.splitlines() if "listing = self.log.list" in line or "verdicts = self.verdicts" in line]
    assert len(log) == 2
    rest = [line for line in source.splitlines() if line not in log]
    after = next(i for i, line in enumerate(rest) if "marks = view.get_many" in line)
    return "\n".join([*rest[: after + 1], *log, *rest[after + 1 :]])


MUTANTS = [
    Mutant(
        "abort-predecessor",
        "section 5, step 2: an OPEN predecessor is aborted before a new attempt opens",
        transitions,
        "opening",
        _swap("return Opening.ABORT_PREDECESSOR, app", "return Opening.OPEN, app"),
    ),
    Mutant(
        "reread-gone",
        "section 6: a gone header counts only if the registration is still not settled when read again (A27)",
        TransactionBuffer,
        "_by_headers",
        _swap("gone.append(entry)", "found[entry.number] = Verdict.FILTERED"),
    ),
    Mutant(
        "log-before-snapshot",
        "section 6: the live log is read before watermarks and snapshots (A28)",
        TransactionBuffer,
        "_read",
        _snapshots_first,
    ),
    Mutant(
        "raise-before-forget",
        "section 7: lastCommitted is raised before a committed header is deleted",
        Sweeper,
        "forget",
        _swap("self._release_application(view, txn, header) and ", ""),
    ),
    Mutant(
        "settle-before-forget",
        "section 7: a header is forgotten only after its registration is settled (A10)",
        Sweeper,
        "forget",
        _swap("txn in unsettled or ", ""),
    ),
    Mutant(
        "settle-all-committed",
        "section 7: what no header names is VOID",
        transitions,
        "settled",
        _swap("if verdict is Verdict.VISIBLE else Settled.VOID", ""),
    ),
    Mutant(
        "fold-stops", "section 7: folding never passes an unsettled registration", transitions, "fold", _swap("break", "continue")
    ),
    Mutant(
        "named-by-header",
        "section 2: only the registration that the deciding CAS names counts (A26)",
        transitions,
        "resolve",
        _swap("and header.commit == number", ""),
    ),
    Mutant(
        "seal-check",
        "section 5: the owner looks for a seal below its registration",
        Coordinator,
        "commit",
        _swap("if sealed:", "if False:"),
    ),
    Mutant(
        "keep-tail",
        "section 7: the newest record of the log stays",
        transitions,
        "may_drop",
        _swap("number >= end_of_log or ", ""),
    ),
    Mutant(
        "cut",
        "section 6: nothing undecided lies at or below the cut",
        transitions,
        "cut",
        _swap("min(first - 1, end_of_log)", "end_of_log"),
    ),
    Mutant(
        "late-abort",
        "section 5: a late abort ends only its own attempt (A36)",
        transitions,
        "may_abort",
        _swap(" and header.attempt == claim.attempt", ""),
    ),
    Mutant(
        "empty-batch",
        "section 5: an empty batch moves lastCommitted by the same CAS (A34)",
        Coordinator,
        "_commit_empty",
        _swap("work.random and record is None", "True"),
    ),
    Mutant(
        "low-version",
        "section 5: a token that is too low must not drop the write without a word (A20)",
        transitions,
        "opening",
        _swap("(not claim.replays or claim.by == app.by)", "True"),
    ),
    Mutant(
        "watermark-by-version",
        "section 7: the watermark moves by CAS and never back (A5)",
        Sweeper,
        "_fold_segment",
        _swap("expect=ABSENT if mark is None else mark", "expect=None"),
    ),
    Mutant(
        "lost-reply-is-success",
        "section 5: a lost reply to the deciding CAS is answered by reading",
        Coordinator,
        "_decide",
        _swap("now = decide(self.cluster.store, lambda view: view.get(key))", "break"),
    ),
    Mutant(
        "application-by-version",
        "section 5, step 3: the application record is CASed",
        Coordinator,
        "_begin",
        _swap("expect=ABSENT if record is None else record", "expect=None"),
    ),
    Mutant(
        "older-listing",
        "a thread with an older listing takes entries out of another's (found in review)",
        LiveLog,
        "list",
        lambda source: _swap("known = {", "self._entries = {n: e for n, e in self._entries.items() if n in numbers}; known = {")(
            _swap("[known[n] for n in numbers if n in known]", "[self._entries[n] for n in numbers if n in self._entries]")(
                _swap("in known.values():", "in [known[n] for n in wanted if n in known]:")(source)
            )
        ),
    ),
]


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    original = inspect.getattr_static(mutant.owner, mutant.function)
    source = mutant.change(textwrap.dedent(inspect.getsource(original)))
    module = sys.modules[original.__module__]
    made: dict[str, Any] = {}
    code = compile(source, f"<mutant {mutant.name}>", "exec", flags=future.annotations.compiler_flag)
    exec(code, module.__dict__, made)
    setattr(mutant.owner, mutant.function, made[mutant.function])
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.function, original)


def caught(mutant: Mutant, limit: int, seed: int = 0) -> tuple[int, str] | None:
    """After how many schedules the checks saw the mutant, and what they said; None if they did not within `limit`."""
    with quiet(), planted(mutant):
        for i in range(limit):
            try:
                outcome = schedule(seed + i)
            except Exception as error:
                return i + 1, f"{type(error).__name__}: {error}"
            if outcome.violations:
                return i + 1, outcome.violations[0]
    return None
