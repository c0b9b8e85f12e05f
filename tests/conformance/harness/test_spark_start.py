"""The start of the suites' Spark processes: all of them use one archive of classes, and Python workers import the installed
pyspark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from conformance.harness.spark_start import WORKERS, class_archive, python_environment, spark_class_path, spark_environment
from txnsegment.java import find_java

HOME = Path(pyspark.__file__).parent


def test_a_process_with_the_options_of_the_archive_uses_the_same_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the archive depends on the output of `java -version`, which also shows the options in JDK_JAVA_OPTIONS. These
    options do not change the name: otherwise a driver, which has them, would make another archive.
    """
    archive = class_archive()
    class_archive.cache_clear()
    monkeypatch.setenv("JDK_JAVA_OPTIONS", spark_environment()["JDK_JAVA_OPTIONS"])
    class_archive.cache_clear()
    assert class_archive() == archive


def test_java_maps_the_archive_without_writing_to_it() -> None:
    """Java logs a relocation when it maps an archive at another address and then rewrites the addresses in it."""
    environment = {**os.environ, **spark_environment()}
    environment["JDK_JAVA_OPTIONS"] += " -Xlog:cds=info:stderr"
    command = [str(find_java()), "-cp", spark_class_path(), "-version"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    assert "Mapped dynamic region #0" in told
    assert "alternative address" not in told


def test_spark_s_python_processes_import_the_installed_pyspark(tmp_path: Path) -> None:
    """Spark puts its archives of pyspark and py4j first on PYTHONPATH. The workers import the installed packages instead. An
    archive that a job adds stays on the path. Python does not remember Spark's archives: it would read them before each task.
    """
    spark, job = sorted((HOME / "python" / "lib").glob("*.zip")), tmp_path / "job.zip"
    assert [one.name.split("-")[0] for one in spark] == ["py4j", "pyspark.zip"]
    program = "import py4j, pyspark, sys; print(pyspark.__file__, py4j.__file__, *sys.path, *sys.path_importer_cache, sep='\\n')"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SPARK_HOME": str(HOME), "PYTHONPATH": os.pathsep.join(map(str, [*spark, WORKERS, job]))},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout.splitlines()
    assert told[0] == pyspark.__file__
    assert told[1] == str(HOME.parent / "py4j" / "__init__.py")
    assert str(job) in told
    assert not {str(one) for one in spark} & set(told)


def test_spark_s_python_starts_without_spark_s_archives_on_its_path(tmp_path: Path) -> None:
    """The script that starts Python removes the archives from PYTHONPATH, and leaves what a job adds before and after them."""
    spark = [*sorted((HOME / "python" / "lib").glob("*.zip"), reverse=True), *(HOME / "jars").glob("spark-core_*.jar")]
    assert [one.name.split("-")[0] for one in spark] == ["pyspark.zip", "py4j", "spark"]
    before, after = tmp_path / "before.zip", tmp_path / "after.zip"
    environment = {**os.environ, **python_environment(), "SPARK_HOME": str(HOME)}
    command = [
        environment["PYSPARK_PYTHON"],
        "-c",
        "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, *sys.argv)",
        "a b",
    ]

    def told(*path: Path) -> str:
        given = {**environment, "PYTHONPATH": os.pathsep.join(map(str, path))}
        return subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout

    rest = f"{sys.executable} -c a b\n"
    assert told(before, *spark, WORKERS, after) == f"{before}:{WORKERS}:{after} {rest}"
    assert told(*spark, WORKERS) == f"{WORKERS} {rest}"
    assert told(before, WORKERS) == f"{before}:{WORKERS} {rest}"
