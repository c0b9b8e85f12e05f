"""Archives of loaded Java classes, which let a later Java process start in less processor time.

Java's class data sharing (CDS) keeps loaded and verified classes in one file, the archive, which later processes map into memory.
An archive lies in the virtual environment, or, without a virtual environment, in the user's cache. Java uses an archive only with
the version of Java and the class path that made it, and otherwise starts without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from txnsegment.java import find_java

IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Java options to map the archive at the address that is stored in it. Otherwise Java chooses an address at random and writes new
addresses into all of the archive at each start, which takes 0.1 s of processor time for the archive of Spark's classes.
"""


def archive_folder(name: str) -> Path:
    """Return the folder of archives: in the virtual environment, else in the user's cache. Other users can write to neither."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txnsegment" / name


def fingerprint(jars: Sequence[Path]) -> str:
    """Return a digest of Java's version and of pyspark's jars. Java refuses an archive of another version or from other jars."""
    import pyspark

    found = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars)
    return hashlib.sha256(repr((_version(find_java()), pyspark.__file__, found)).encode()).hexdigest()[:16]


@cache
def _version(java: Path) -> str:
    plain = {k: v for k, v in os.environ.items() if k != "JDK_JAVA_OPTIONS"}  # `java -version` would print these options, too
    return subprocess.run([str(java), "-version"], env=plain, capture_output=True, text=True, check=True).stderr


def keep(archive: Path, make: Callable[[Path], None]) -> None:
    """Make the archive if it does not exist. `make(path)` makes it at another path, in a temporary folder of its own. If several
    processes call this function at the same time, one of them makes the archive, and the others wait.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    if archive.exists():
        return
    with (archive.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(prefix=f"txnsegment-{archive.parent.name}-") as folder:
            made = Path(folder) / archive.name
            make(made)
            partial = archive.with_suffix(".partial")
            with partial.open("wb") as file:
                file.write(made.read_bytes())
                file.flush()
                os.fsync(file.fileno())  # Java crashes on an archive whose end is missing, as after a loss of power
            partial.rename(archive)
