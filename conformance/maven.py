"""Maven, which downloads what PyPI does not have: the jars of Pulsar for tests, and those of Kafka and Delta for benchmarks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
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


def kept_classpath(pom: Path, folder: Path, what: str) -> str:
    """Return the class path of a project file that is kept in this folder. If there is none, or if one of its jars is gone, ask
    Maven for it. `what`: what Maven downloads. Raises ConfigurationError if there is no Maven, or if Maven fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}.classpath"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept.exists() and _complete(kept.read_text(encoding="utf-8"))):
            partial = kept.with_suffix(".partial")
            goal = ["dependency:build-classpath", f"-Dmdep.outputFile={partial}", "-f", str(pom)]
            run_maven(goal, lambda: partial.exists() and _complete(partial.read_text(encoding="utf-8")), what)
            partial.rename(kept)
    return kept.read_text(encoding="utf-8")


def _complete(classpath: str) -> bool:
    """Return whether every jar still exists. Maven's repository may have been cleaned since."""
    return bool(classpath) and all(Path(jar).exists() for jar in classpath.split(os.pathsep))


def kept_in(name: str) -> Path:
    """Return the folder of a class path: in the virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txnsegment" / name
