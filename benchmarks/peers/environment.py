"""The Python environment and the jars of the cells. Both are made once, below `out/peers`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from conformance.maven import run_maven

PYSPARK: Final = "4.2.0"
"""The newest PySpark for which there is both a connector for Kafka and one for Delta."""
PACKAGES: Final = (f"pyspark=={PYSPARK}", "confluent-kafka>=2.6,<3", "deltalake>=1.0,<2")
"""What a cell needs beside txnsegment: the clients of Kafka and Delta without Spark are the writers of some workloads."""
JARS: Final = {
    "spark": (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{PYSPARK}",
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "org.apache.spark:spark-avro_2.13:4.1.1",  # not every mirror has a newer one
    ),
    "kafka": ("org.apache.kafka:kafka_2.13:4.3.1",),
}
"""The Maven artifacts of each folder of jars, without those that they depend on."""
CONNECTORS: Final = (
    *("spark-sql-kafka-0-10_", "spark-token-provider-kafka-0-10_", "kafka-clients-", "commons-pool2-", "spark-avro_"),
    *("delta-spark_", "delta-storage-", "delta-kernel-", "unitycatalog-"),
)
"""The beginnings of the names of the jars that Spark does not have itself. Two versions of one jar would conflict."""


def python_of_cells(home: Path) -> Path:
    """Return the Python of the environment below `home`. The first call makes the environment, with pip."""
    folder = home / "venv"
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(PACKAGES)
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        print(f"Making {folder} with {', '.join(PACKAGES)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *PACKAGES, "-e", str(Path(__file__).parents[2])], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def jars(home: Path, name: str) -> list[Path]:
    """Return the jars of one of `JARS`, those that they depend on included. The first call lets Maven download them. Raises
    ConfigurationError if there is no Maven, or if Maven fails.
    """
    folder = home / "jars" / name
    pom = _pom(name)
    stamp = folder / "pom.xml"
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == pom):
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / "partial.xml"
        partial.write_text(pom, encoding="utf-8")
        print(f"Maven downloads {', '.join(JARS[name])}", flush=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-f", str(partial)]
        run_maven(goal, lambda: any(folder.glob("*.jar")), f"the jars of {name}")
        partial.rename(stamp)
    return sorted(folder.glob("*.jar"))


def connectors(home: Path) -> list[Path]:
    """Return the jars that a Spark session of a cell adds to those of PySpark."""
    return [jar for jar in jars(home, "spark") if jar.name.startswith(CONNECTORS)]


def _pom(name: str) -> str:
    def dependency(artifact: str) -> str:
        group, id_, version = artifact.split(":")
        return f"<dependency><groupId>{group}</groupId><artifactId>{id_}</artifactId><version>{version}</version></dependency>"

    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>txnsegment.benchmarks</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(map(dependency, JARS[name]))}</dependencies></project>\n"
    )
