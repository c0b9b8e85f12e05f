"""Sessions of the chaos suite: small Spark drivers and writers that run for seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.processes import Session

NICE = 5


def launched(
    module: str, arguments: Sequence[str], output: Path, environment: Mapping[str, str] | None = None, *, nice: int = NICE
) -> Session:
    """Run `python -m MODULE ARGUMENTS` in a session of its own. `environment` is added to this process's environment. The output
    goes to the file `output`.
    """
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return Session(
        [sys.executable, "-m", module, *arguments],
        output,
        environment={**os.environ, **python, **(environment or {})},
        nice=nice,
    )
