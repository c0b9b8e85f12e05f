"""Finds Java, which Spark and the development ZooKeeper need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from metadata.common.errors import ConfigurationError

_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
_SECONDS = 30


def find_java(minimum: int = 17) -> Path:
    """Return the `java` program of JAVA_HOME, or else of PATH.

    `minimum`: the lowest major version that is accepted. Raises ConfigurationError if Java is missing, does not run, or is older.
    The advice of the error says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"Install Java {minimum} or newer (for example: apt install openjdk-{minimum}-jre-headless) and set JAVA_HOME to it."
    if found is None:
        raise ConfigurationError("Java was not found: JAVA_HOME is not set and there is no java on PATH.", advice=advice)
    where = f"{found} (from {'JAVA_HOME' if home else 'PATH'})"
    try:
        version = _version_of(found)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigurationError(f"Java does not run: {where}: {error}.", advice=advice) from error
    if version < minimum:
        raise ConfigurationError(f"Java {version} is too old: {where}.", advice=advice)
    return Path(found)


@cache
def _version_of(program: str) -> int:
    """Return the major version: 8 for "1.8.0_392", 17 for "17.0.15". Raises OSError, SubprocessError, ValueError."""
    done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=True)
    found = _VERSION.search(done.stderr + done.stdout)
    if not found:
        raise ValueError(f"`java -version` prints no version: {(done.stderr + done.stdout)[:200]!r}")
    return int(found[1])
