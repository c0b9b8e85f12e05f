"""The jars of a Pulsar 5 broker and of its Java clients, from Maven's registry, and the configuration of their log.

Maven downloads the jars into its own repository (230 MB, some two minutes) and prints their class path. The class path is kept in
the virtual environment, or, without a virtual environment, in the user's cache. Later calls read it from there.

    python -m conformance.pulsar_jars       # download them now; the exit code is 1 if Maven fails
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from conformance.maven import kept_classpath, kept_in, run_maven
from metadata.common.errors import ConfigurationError
from txnsegment.java import find_java

DATA: Final = Path(__file__).parent / "pulsar"
"""The folder of pom.xml and of the Java programs of the tests."""
POM: Final = DATA / "pom.xml"
VERSION: Final = re.findall(r"<pulsar\.version>(.*)</pulsar\.version>", POM.read_text(encoding="utf-8"))[0]
"""The version of Pulsar."""

LOG: Final = """<Configuration status="WARN">
  <Appenders>
    <Console name="all" target="SYSTEM_ERR"><PatternLayout pattern="%d{ISO8601} %-5p %c{1} - %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="{level}"><AppenderRef ref="all"/></Root></Loggers>
</Configuration>
"""


@cache
def pulsar_classpath() -> str:
    """Return the class path of the broker and of the Java clients. The first call on a machine asks Maven, which downloads the
    jars. Raises ConfigurationError if there is no Maven, or if Maven fails.
    """
    return classpath_in(_folder())


def classpath_in(folder: Path) -> str:
    """Return the class path that is kept in this folder. If there is none, or if one of its jars is gone, ask Maven for it. Raises
    ConfigurationError if there is no Maven, or if Maven fails.
    """
    return kept_classpath(POM, folder, f"Pulsar {VERSION}")


def broker_jar(version: str) -> Path:
    """Return the path of the jar of another version of the broker, without the jars on which it depends. The first call asks Maven,
    which downloads the jar. Raises ConfigurationError if there is no Maven, or if Maven fails.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"pulsar-broker-{version}.jar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            goal = ["dependency:copy", f"-Dartifact=org.apache.pulsar:pulsar-broker:{version}", f"-DoutputDirectory={folder}"]
            run_maven(goal, kept.exists, f"Pulsar {version}")
    return kept


def _folder() -> Path:
    return kept_in("pulsar")


def java_command(
    main: str, folder: Path, *, classpath: Sequence[Path] = (), options: Sequence[str] = (), level: str = "WARN"
) -> list[str]:
    """Return the command that runs a Java class with Pulsar's jars. `folder`: the folder into which this function writes the
    configuration of the log. `level`: the level of the log. `classpath`: folders to search before the jars. `options`: further
    options of Java. Raises ConfigurationError.
    """
    log = folder / "log4j2.xml"
    log.write_text(LOG.replace("{level}", level), encoding="utf-8")
    return [
        *(str(find_java()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_opened(), *options),
        *(f"-Dlog4j2.configurationFile={log}", "-Dlog4j2.disable.jmx=true", "-Dio.netty.leakDetectionLevel=disabled"),
        *("-Dio.netty.tryReflectionSetAccessible=true", "-Dpulsar.allocator.exit_on_oom=false"),
        *("-cp", os.pathsep.join([*map(str, classpath), pulsar_classpath()]), main),
    ]


def _opened() -> list[str]:
    """Return the options of Java that let Pulsar and Netty use internals of Java. Without these options, newer versions of Java
    forbid this use or warn of it.
    """
    packages = ("java.lang", "java.nio", "java.io", "java.util.zip", "sun.net", "jdk.internal.misc")
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in packages]
    return [
        *opened,
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
    ]


def main() -> None:
    try:
        jars = pulsar_classpath().count(os.pathsep) + 1
    except ConfigurationError as error:
        sys.exit(str(error))
    sys.stdout.write(f"Pulsar {VERSION}: {jars} jars\n")


if __name__ == "__main__":
    main()
