"""Maven, which downloads what PyPI does not have: the jars of Pulsar for tests, and those of Kafka and Delta for benchmarks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from metadata.common.errors import ConfigurationError

_SECONDS: Final = 1800


def find_maven(what: str) -> Path:
    """Return the path of Maven's program, `mvn`. `what`: what Maven should download. Raises ConfigurationError if `mvn` is not on
    PATH.
    """
    found = shutil.which("mvn")
    if found is None:
        raise ConfigurationError(
            f"Maven was not found: there is no mvn on PATH. It downloads {what}.",
            advice="Install Maven (for example: apt install maven).",
        )
    return Path(found)


def run_maven(goal: Sequence[str], done: Callable[[], bool], what: str) -> None:
    """Run Maven. `done`: tells whether Maven has written what it should write. `what`: what it downloads. Raises ConfigurationError
    if Maven is not found, fails, takes too long, or is not `done` at its end.
    """
    command = [str(find_maven(what)), "-q", "-B", *goal]
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
        ended, failed = f"ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}", ran.returncode != 0
    except subprocess.TimeoutExpired:
        ended, failed = f"did not end within {_SECONDS} s", True
    if failed or not done():
        raise ConfigurationError(
            f"{' '.join(command)} {ended}",
            advice=f"Maven downloads {what} from Maven Central or a mirror (~/.m2/settings.xml): check the network.",
        )
