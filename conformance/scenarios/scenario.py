"""What all scenarios have in common: a system is set up and started, faults strike it while it works, and what it left is checked.

FoundationDB's workloads are the model. `run` takes a scenario through its phases; a scenario says nothing of how it is run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from conformance.scenarios.faults import Fault

SHOWN = 20
"""Of what was wrong with one scenario."""
Say = Callable[[str], None]


class Failed(Exception):
    """A scenario cannot go on; says why."""


@dataclass(frozen=True)
class Ran:
    """What came of a scenario: what is wrong, and how much was done and met, in words."""

    wrong: list[str]
    figures: str


class Scenario:
    """One system under faults. A context manager: whatever it started ends with it."""

    name: str
    """In a few words, for whoever reads the outcome."""
    meets: ClassVar[frozenset[Fault]] = frozenset()

    def setup(self) -> None:
        """Make the cluster and its topics. Nothing runs yet."""

    def start(self) -> None:
        """Begin the work; return once everybody is at it."""

    def faults(self) -> None:
        """Strike while they work; return once all faults are over."""

    def check(self) -> list[str]:
        """Let the work come to its end; what is wrong with what it left, in words. Also: faults and work that never were."""
        raise NotImplementedError

    def figures(self) -> str:
        """How much was done and met, in words."""
        raise NotImplementedError

    def close(self) -> None:
        """End what still runs, after an error too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def run(scenario: Scenario) -> Ran:
    """All phases of one scenario."""
    try:
        with scenario:
            scenario.setup()
            scenario.start()
            scenario.faults()
            return Ran(scenario.check(), scenario.figures())
    except Failed as failed:
        return Ran([str(failed)], "it did not come to its end")


def reported(scenario: Scenario, where: str, say: Say) -> list[str]:
    """`run`, and say what came of it: what is wrong. `where`: on which store."""
    began = time.monotonic()
    ran = run(scenario)
    say(f"{where}: {scenario.name}: {ran.figures}; {len(ran.wrong)} wrong ({time.monotonic() - began:.0f} s)")
    for text in ran.wrong[:SHOWN]:
        say(f"    WRONG {text}")
    return ran.wrong
