"""Starts Python programs of the chaos suite, such as small Spark drivers, each in an operating-system session of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.harness.spark_start import python_environment
from conformance.processes import Session

NICE = 5


def launched(
    module: str, arguments: Sequence[str], output: Path, environment: Mapping[str, str] | None = None, *, nice: int = NICE
) -> Session:
    """Start `python -m MODULE ARGUMENTS` in an operating-system session of its own, and return the session. `environment`:
    variables that are added to those of this process. `output`: the file that gets the program's output. `nice`: the amount added
    to the niceness of this process.
    """
    return Session(
        [sys.executable, "-m", module, *arguments],
        output,
        environment={**os.environ, **python_environment(), **(environment or {})},
        nice=nice,
    )
