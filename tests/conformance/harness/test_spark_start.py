"""The start of the suites' Spark processes: one archive of classes for all processes, and the compiled pyspark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from conformance.harness.spark_start import WORKERS, class_archive, spark_environment

HOME = Path(pyspark.__file__).parent


def test_a_process_with_the_options_of_the_archive_uses_the_same_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java repeats the options beside its version. They are no part of the archive's name: a driver would make another archive."""
    archive = class_archive()
    class_archive.cache_clear()
    monkeypatch.setenv("JDK_JAVA_OPTIONS", spark_environment()["JDK_JAVA_OPTIONS"])
    class_archive.cache_clear()
    assert class_archive() == archive


def test_spark_s_python_processes_import_the_installed_pyspark(tmp_path: Path) -> None:
    """Spark puts its archives first on PYTHONPATH. The archives of a job stay on it."""
    spark, job = sorted((HOME / "python" / "lib").glob("*.zip")), tmp_path / "job.zip"
    assert [one.name.split("-")[0] for one in spark] == ["py4j", "pyspark.zip"]
    told = subprocess.run(
        [sys.executable, "-c", "import py4j, pyspark, sys; print(pyspark.__file__, py4j.__file__, *sys.path, sep='\\n')"],
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
