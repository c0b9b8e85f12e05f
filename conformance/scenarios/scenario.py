"""The base of all scenarios. A scenario sets up a system, starts it, strikes it with faults while it works, and checks its results.

The design follows FoundationDB's workloads. `run` calls the phases of a scenario in order.
"""

# ruff: noqa: B027 - a scenario overrides only the phases that it needs

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

SHOWN = 20
"""The maximum number of errors of one scenario that are printed."""
Say = Callable[[str], None]


class Failed(Exception):
    """A scenario cannot continue. The message says why."""


@dataclass(frozen=True)
class Ran:
    """The result of a scenario. `wrong`: one text for each thing that is wrong. `figures`: a text with counts of the work and of
    the faults.
    """

    wrong: list[str]
    figures: str


class Scenario(ABC):
    """One system under faults. A scenario is a context manager: at its end, all processes that it started end."""

    name: str
    """The name of the scenario in the printed results."""

    def setup(self) -> None:
        """Create the cluster and its topics. No work runs yet."""

    def start(self) -> None:
        """Start the work. Return after all parties have begun."""

    def faults(self) -> None:
        """Strike the system while it works. Return after all faults are over."""

    @abstractmethod
    def check(self) -> list[str]:
        """Let the work end. Return one text for each thing that is wrong. A planned fault that did not happen is wrong, too, and so
        is work that was not done.
        """

    @abstractmethod
    def figures(self) -> str:
        """Return a text with counts of the work and of the faults."""

    def close(self) -> None:
        """End all processes that still run, also after an error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def run(scenario: Scenario) -> Ran:
    """Run all phases of one scenario. Return its result. If a phase raises Failed, the text of that error is what is wrong."""
    try:
        with scenario:
            scenario.setup()
            scenario.start()
            scenario.faults()
            return Ran(scenario.check(), scenario.figures())
    except Failed as failed:
        return Ran([str(failed)], "it did not come to its end")


def reported(scenario: Scenario, where: str, say: Say) -> list[str]:
    """Run a scenario, and print its result with `say`. Return what is wrong. `where`: the name of the store, for printing."""
    began = time.monotonic()
    ran = run(scenario)
    say(f"{where}: {scenario.name}: {ran.figures}; {len(ran.wrong)} wrong ({time.monotonic() - began:.0f} s)")
    for text in ran.wrong[:SHOWN]:
        say(f"    WRONG {text}")
    return ran.wrong
