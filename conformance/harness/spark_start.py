"""Start Spark drivers and executors in less processor time, for suites that start many of them.

A Spark process that lives only for seconds uses half of its processor time to load classes. Java's class data sharing (CDS) keeps
loaded and verified classes in one file, the archive, which later processes map into memory. The first start on a machine runs a
small job to make the archive. It lies in the virtual environment, or, without a virtual environment, in the user's cache. Every
later start uses it. A process with another class path ignores it.

The Python processes of a job import the modules that they need once, not once for each task. They import the installed pyspark, not
Spark's archive of its sources (`workers/sitecustomize`, `workers/warm`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from conformance.class_archive import IN_PLACE, archive_folder, fingerprint, keep
from conformance.harness.spark_classes import CLASS_PATH
from metadata.common.errors import ConfigurationError

SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
"""Java options for processes that live only for seconds: the simple compiler, and one thread for garbage collection. Java starts a
program directly, not by a helper program: Spark starts `readlink` and `chmod` thirty times for each micro-batch.
"""

SILENT = "-Xlog:disable -Xlog:all=error:stderr"
"""Java options that silence a warning. Java prints it if a process has another class path, so that it cannot use the archive."""


FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Spark's settings for queries over a few rows: they end before Java code that Spark compiles for the whole query would pay off.
Spark's default class for the files of a checkpoint starts the program `readlink` for each file: 0.05 s of processor time for each
micro-batch. Unix domain sockets carry rows between Java and Python in less processor time than TCP. The quick start, the tour of
README.md, the examples and the cluster suite run with Spark's defaults.
"""

WORKERS = Path(__file__).parent / "workers"
"""A folder for PYTHONPATH. Every Python that has it on its path runs the module `sitecustomize` of this folder at its start."""

_PYTHON = """\
#!/bin/sh
case $PYTHONPATH in
*"$SPARK_HOME/python/lib/pyspark.zip":*"$SPARK_HOME"/jars/spark-core_*.jar:*)
  PYTHONPATH=${PYTHONPATH%%"$SPARK_HOME/python/lib/pyspark.zip":*}${PYTHONPATH#*"$SPARK_HOME"/jars/spark-core_*.jar:}
esac
exec "$TXNSEGMENT_PYTHON" "$@"
"""


def python_environment(python: Path | str = sys.executable) -> dict[str, str]:
    """Return the environment variables with which Spark's processes run this Python.

    A script runs it, after it has removed Spark's archives of its Python code from PYTHONPATH. Otherwise each Python process would
    read the lists of files of these archives while it starts, for 0.04 s, before `workers/sitecustomize` removes them.
    """
    script = archive_folder("spark-classes") / "python"
    if not script.exists() or script.read_text(encoding="utf-8") != _PYTHON:
        script.parent.mkdir(parents=True, exist_ok=True)
        made = script.with_name(f"python-{os.getpid()}")
        made.write_text(_PYTHON, encoding="utf-8")
        made.chmod(0o755)
        made.rename(script)
    return {"PYSPARK_PYTHON": str(script), "PYSPARK_DRIVER_PYTHON": str(script), "TXNSEGMENT_PYTHON": str(python)}


def spark_environment(*, warm: bool = False, tasks: bool = True) -> dict[str, str]:
    """Return the environment variables for a small driver, its executors and their child processes. Raises as `class_archive`.

    `warm`: one process imports the modules of the job's Python processes, and forks these processes (`workers/warm`). The forked
    processes are no descendants of Spark's JVM. So a suite that kills the processes which plan and commit cannot use this. `tasks`:
    whether the daemon that forks the workers of tasks is such a process, too. A suite that looks for the workers of tasks among the
    JVM's descendants passes False.
    """
    archive = class_archive()
    paths = [str(WORKERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **({"TXNSEGMENT_WARM_PYTHON": "all" if tasks else "all but tasks"} if warm else {}),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(_configuration(archive)),
        "JDK_JAVA_OPTIONS": f"{SMALL_JVM} {SILENT} {' '.join(IN_PLACE)} -XX:SharedArchiveFile={archive}",
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",  # numpy's linear algebra would start a thread for each core in each Python process
    }


def spark_class_path() -> str:
    """Return the class path for which the archive was made, which is the one of Spark's start scripts. Masters and workers that are
    started without these scripts need it. Raises as `class_archive`.
    """
    return _class_path(class_archive()).read_text(encoding="utf-8")


@cache
def class_archive() -> Path:
    """Return the path of the archive of Spark's classes, for this Java and this pyspark. The first call on a machine makes the
    archive, which takes some 20 s of processor time. Raises ConfigurationError if the archive cannot be made.
    """
    import pyspark

    jars = list((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    archive = archive_folder("spark-classes") / f"{fingerprint(jars)}.jsa"
    keep(archive, lambda made: _make(archive, made))
    return archive


def _configuration(archive: Path) -> Path:
    """Return the path of an empty folder for Spark's settings. This folder is the first entry of the class path. Java uses the
    archive only with the class path that it was made with, so the path of the folder must be the same each time.
    """
    return archive.parent / "conf"


def _class_path(archive: Path) -> Path:
    return archive.with_suffix(".classpath")


def _make(archive: Path, made: Path) -> None:
    """Run the job `conformance.harness.spark_classes` and store the classes that it loads in the file `made`, and their class path
    beside the archive. Raises ConfigurationError.
    """
    _configuration(archive).mkdir(exist_ok=True)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_", "TXNSEGMENT_"))},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(_configuration(archive)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": f"{SMALL_JVM} -XX:ArchiveClassesAtExit={made}",
    }
    command = [sys.executable, "-m", "conformance.harness.spark_classes", str(made.parent)]
    ran = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    if ran.returncode != 0 or not made.exists():
        raise ConfigurationError(
            f"{' '.join(command)} left no archive of Spark's classes: {ran.stdout[-2000:]}{ran.stderr[-2000:]}",
            advice="Run it by hand; it needs Java 17 or newer.",
        )
    _class_path(archive).write_bytes((made.parent / CLASS_PATH).read_bytes())
