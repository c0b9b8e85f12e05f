"""The data of a report: one run of `python -m conformance`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from conformance.results import Result

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Report:
    """A run of `python -m conformance`. `command`: its arguments. `started_ms`: its start in ms since 1970. `exit_code`: the result
    of `conformance.results.exit_code`. `version`, `python`: the versions of txnsegment and Python. `machine`: system and processor.
    """

    command: tuple[str, ...]
    seed: int
    started_ms: int
    seconds: float
    results: tuple[Result, ...]
    exit_code: int
    version: str
    python: str
    machine: str
    format: int = FORMAT

    @property
    def started(self) -> str:
        """The start as text, in UTC, to the second."""
        return datetime.fromtimestamp(self.started_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
