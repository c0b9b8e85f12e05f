"""What a suite found, as plain values that any reporter can render: one `Result` for each thing that was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """`NOT_APPLICABLE`: what was to be shown cannot be shown here (`detail` says why). It is never a pass."""

    OK = "ok"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of a history, for a timeline. Times of one clock (`Result.clock`); `ended` None: its answer never came.

    `wrong`: the history can be explained up to here, but not with this one.
    """

    actor: str
    label: str
    began: float
    ended: float | None
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One value over time, for a chart: (time, value), in the order of time, on the clock of the result's `history`.

    `unit`: of the values. `dots`: each point stands for itself (a latency), else they are joined (a rate).
    """

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """`section`: the rule of protocol.md that is shown. `says`: the rule in one sentence. `detail`: what was found instead, or why
    it is not applicable; empty if all is well. `figures`: measured numbers by name, with their unit in the name.
    `seed`: makes the same run again. `history`: what happened, where a timeline helps to see it. `series`: what was measured over
    time. `clock`: the unit of the times in both. `note`: what else is worth a line. `again`: the arguments of
    `python -m conformance` that do exactly this again; the command fills it in.
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
        """Whether it did not fail. Something that was not applicable has not failed, and has shown nothing."""
        return self.outcome is not Outcome.FAILED


def exit_code(results: Sequence[Result]) -> int:
    """0: something was shown and nothing failed. 1: something failed. 2: nothing at all was shown."""
    if not all(result.ok for result in results):
        return 1
    return 0 if any(result.outcome is Outcome.OK for result in results) else 2
