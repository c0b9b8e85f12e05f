"""The results of a suite as plain values, which any reporter can render. Each check of a suite gives one `Result`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """`NOT_APPLICABLE`: the check cannot run here; `Result.detail` says why. Such a check has not passed."""

    OK = "ok"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of a history, for a timeline. `began`, `ended`: times in the unit of `Result.clock`; `ended` is None if the
    operation got no answer. `wrong`: True if no correct execution explains the history up to this operation.
    """

    actor: str
    label: str
    began: float
    ended: float | None
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One value over time, for a chart. `points`: pairs (time, value), ascending. The times have the unit `Result.clock`.

    `unit`: the unit of the values. `dots`: True for separate points (latencies), False for a line through the points (a rate).
    """

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check.

    `section`: the section of protocol.md with the checked rule. `says`: the rule in one sentence. `detail`: the violation, or the
    reason why the check is not applicable; empty after a success. `seed`: the seed with which the check can be repeated. `figures`:
    measured numbers by name; the name contains the unit. `history`: the operations for a timeline; empty if a timeline does not
    help. `series`: measured values over time. `clock`: the unit of the times in `history` and `series`. `note`: a further remark of
    one line. `again`: the arguments of `python -m conformance` that repeat the check; the command sets them.
    """

    suite: str
    name: str
    section: str
    says: str
    outcome: Outcome
    seconds: float
    seed: int
    detail: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    history: tuple[Span, ...] = ()
    series: tuple[Series, ...] = ()
    clock: str = "s"
    note: str = ""
    again: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether the check did not fail. A check that was not applicable has not failed."""
        return self.outcome is not Outcome.FAILED


def exit_code(results: Sequence[Result]) -> int:
    """Return the exit code. 0: at least one check passed and none failed. 1: a check failed. 2: no check passed or failed."""
    if not all(result.ok for result in results):
        return 1
    return 0 if any(result.outcome is Outcome.OK for result in results) else 2
