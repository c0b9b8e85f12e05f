"""The wheel contains the program and no other file. Spark finds the format in the wheel without registration and without a jar."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from conformance.harness.spark_start import spark_environment

PACKAGES = {"txnsegment", "spark_txn_source", "spark_txn_sink", "metadata", "ledgers", "pulsar_protocol", "conformance"}


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment with the wheel. A path entry gives it our dependencies, but not this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(command, check=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def test_the_wheel_contains_every_module_of_the_packages(wheel: Path, source: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert tops == {*PACKAGES, "pyspark_txnsegment.py"}
    here = {str(path.relative_to(source)) for package in PACKAGES for path in (source / package).rglob("*.py")}
    assert here <= set(names), "a module is missing"
    assert "conformance/pulsar/pom.xml" in names, "without it, Maven cannot download a Pulsar broker"
    pages = {
        str(path.relative_to(source))
        for path in (source / "txnsegment" / "ui").rglob("*.*")
        if path.suffix in (".html", ".css", ".js", ".svg")
    }
    assert len(pages) > 8
    assert pages <= set(names), "without its templates and style, txnsegment ui shows no page"
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names), "without py.typed, a type checker treats our types as Any"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_command_and_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    assert "txnsegment = txnsegment.cli.main:main" in scripts
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata


JOB = """
import sys
import pyspark_txnsegment
from pyspark.sql import SparkSession
assert sys.prefix in pyspark_txnsegment.__file__, pyspark_txnsegment.__file__
spark = SparkSession.builder.getOrCreate()
rows = spark.range(100).selectExpr("id", "cast(id % 7 as string) as name")
rows.write.format("txnsegment").mode("append").option("segments", 4).option("keyColumn", "name").save("numbers")
read = spark.read.format("txnsegment").load("numbers")
print("counted", read.count(), read.selectExpr("sum(id)").first()[0])
spark.stop()
"""


@pytest.mark.slow
def test_spark_finds_the_format(python: Path, tmp_path: Path) -> None:
    """Spark finds the format in an activated environment, without `register`, a jar or PYSPARK_PYTHON."""
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_") and k != "PYTHONPATH"}
    environment |= spark_environment(warm=True) | {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "TXNSEGMENT_SERVICE_URL": (tmp_path / "cluster").as_uri(),
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 pyspark-shell",
    }
    ran = subprocess.run(
        [str(python), str(job)], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "counted 100 4950" in ran.stdout
