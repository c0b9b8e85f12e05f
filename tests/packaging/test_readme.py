"""CI or these tests run every command and every program of README.md, and of the other pages that docs/readme.py lists."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.harness.spark_start import spark_environment
from conformance.servers import ZooKeeperServer, free_ports

ROOT = Path(__file__).parents[2]
readme = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "readme.py")))
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [block for page in readme.PAGES for block in readme.blocks(page.read_text(encoding="utf-8"))]

HOW = {
    ("sh", "ci"): "test_ci_runs_these",
    ("python", "quickstart"): "make quickstart",
    ("text", "quickstart"): "make quickstart",
    ("python", "tour"): "test_the_tour_of_the_readme_runs",
    ("sh", "tour"): "test_the_tour_of_the_readme_runs",
    ("python", "python"): "test_the_tour_of_the_readme_runs",
    ("python", "subscriptions"): "test_the_tour_of_the_readme_runs",
    ("python", "pipeline"): "tests/spark/test_connect.py",
    ("sh", "wheel"): "test_the_cluster_commands_of_the_readme_run",
    ("sh", "pack"): "test_the_cluster_commands_of_the_readme_run",
    ("sh", "cluster"): "test_the_cluster_commands_of_the_readme_run",
}
"""The test or command that runs each block, by the language and purpose of the block."""


def texts(language: str, purpose: str) -> list[str]:
    return [b.text for b in BLOCKS if (b.language, b.purpose) == (language, purpose)]


def commands(purpose: str) -> list[str]:
    return [command for b in BLOCKS if (b.language, b.purpose) == ("sh", purpose) for command in b.commands]


def test_every_block_is_run() -> None:
    assert {(b.language, b.purpose) for b in BLOCKS} == set(HOW)


def test_ci_runs_these() -> None:
    run = [line.removeprefix("step ").strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    assert [command for command in commands("ci") if command not in run] == []
    assert run[-1] == "make test", "pytest's summary must be the last line"


def test_the_readme_stays_within_its_length() -> None:
    assert len(TEXT.split()) <= 1500, "move details to a page in docs"


def test_quickstart_is_short() -> None:
    (program,) = texts("python", "quickstart")
    assert len(program.splitlines()) <= 12


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    broken = [
        (page.name, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert broken == []


def shell(script: str, folder: Path, **environment: str) -> str:
    """Run commands in a shell that has this environment activated and stops at the first error. Return what the commands print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "TXNSEGMENT_", "SPARK_"))}
    ran = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=folder,
        env={**kept, "PATH": path, **spark_environment(warm=True), "COLUMNS": "200", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout


SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
"""


@pytest.mark.slow
def test_the_tour_of_the_readme_runs(tmp_path: Path) -> None:
    """The Spark programs of the tour run one after the other in one session. These then run on the same cluster, in this order: the
    program about subscriptions, the commands of the tour, and the program without Spark.
    """
    url = (tmp_path / "cluster").as_uri()
    (tmp_path / "tour.py").write_text(
        "\n".join([SESSION, *texts("python", "tour"), "spark.read.format('txnsegment').load('small').show()"])
    )
    printed = shell("python tour.py", tmp_path, TXNSEGMENT_SERVICE_URL=url)
    assert "|     ann|       30.0|" in printed  # the scan sums the amounts above 10
    assert "|       3|" in printed  # the view counts the rows
    assert "segment://public/default/orders/" in printed
    assert "|     ann|   7.0|" in printed  # a row of the topic `small`

    (program,) = texts("python", "subscriptions")
    (tmp_path / "subscriptions.py").write_text(program)
    # the program prints that 2 messages were delivered and that 0 are left
    assert shell("python subscriptions.py", tmp_path, TXNSEGMENT_SERVICE_URL=url) == "2 0\n"

    commands_text = "\n".join(commands("tour"))
    told = shell(commands_text, tmp_path, TXNSEGMENT_SERVICE_URL=url)
    for topic in ("orders", "large", "small", "payments"):
        assert f"topic://public/default/{topic}" in told
    assert "All are sound." in told
    assert "Created the subscription billing of topic://public/default/orders; 4 rows" in told

    (program,) = texts("python", "python")
    (tmp_path / "till.py").write_text(program)
    assert shell("python till.py", tmp_path, TXNSEGMENT_SERVICE_URL=url) == "2\n"
    listed = shell("txnsegment txns list --json", tmp_path, TXNSEGMENT_SERVICE_URL=url)
    assert {txn["state"] for txn in json.loads(listed)} == {"COMMITTED"}


# --- the cluster ----------------------------------------------------------------------------------------------------

JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("executor", spark.sparkContext.parallelize([0], 1).map(lambda _: sys.prefix).first())
spark.range(1000).write.format("txnsegment").mode("append").option("segments", 4).save("numbers")
print("read", spark.read.format("txnsegment").load("numbers").count())
spark.stop()
"""


class Standalone:
    """A Spark master and one worker on 127.0.0.1. The executors are separate processes. `path`: the PATH of all of them."""

    def __init__(self, folder: Path, path: str) -> None:
        self.port, self._web, self._worker, self._worker_web = free_ports(4)
        self._folder, self._path = folder, path
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> Standalone:
        self._folder.mkdir()
        self._start("Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self._web))
        where = ("--host", "127.0.0.1", "--port", str(self._worker), "--webui-port", str(self._worker_web))
        self._start("Worker", *where, "--cores", "2", "--memory", "1g", "--work-dir", str(self._folder / "work"), self.url)
        return self

    def _start(self, what: str, *arguments: str) -> None:
        import pyspark

        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "TXNSEGMENT_", "SPARK_"))}
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self._folder / f"{what}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(program), f"org.apache.spark.deploy.{what.lower()}.{what}", *arguments],
                env={**kept, "PATH": self._path, **spark_environment(warm=True)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=60)


@pytest.mark.slow
def test_the_cluster_commands_of_the_readme_run(wheel: Path, tmp_path: Path) -> None:
    """The commands run unchanged on a real ZooKeeper server and a real standalone cluster, except that names of machines and
    folders are replaced. The new environment gets its dependencies from this environment by a path entry, instead of a download.
    """
    assert commands("wheel") == [f"pip install {wheel.name}"]
    shutil.copy(wheel, tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    make, install, pack = commands("pack")
    shell(f"{make}\n{install}", tmp_path, PIP_NO_DEPS="1", PIP_NO_INDEX="1")
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shell(pack, tmp_path)

    # Spark's launcher comes from this environment. All other programs come from the new environment, as if the wheel were installed
    # there.
    path = f"{tmp_path / 'env' / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper, Standalone(tmp_path / "spark", path) as standalone:
        (script,) = texts("sh", "cluster")
        for name, here in (
            ("zk1:2181,zk2:2181,zk3:2181", zookeeper.hosts),
            ("file:///shared", tmp_path.as_uri()),
            ("spark://master:7077", standalone.url),
        ):
            assert name in script
            script = script.replace(name, here)
        told = shell(script, tmp_path, PATH=path).splitlines()
    where = [Path(line.removeprefix("executor ")) for line in told if line.startswith("executor ")]
    assert [line for line in told if line.startswith("read ")] == ["read 1000", "read 2000"]
    assert where[0] == tmp_path / "env", "the executors use the Python that has the wheel"
    assert where[1].is_relative_to(tmp_path / "spark" / "work"), "the executors use the archive that came with the job"
