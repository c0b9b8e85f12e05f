"""CI or these tests run every command and every program of README.md, and of the other pages that docs/readme.py lists."""

from __future__ import annotations

import ast
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
from metadata.common.foreign_options import DELTA, KAFKA, PULSAR, foreign
from metadata.common.options import SPARK_OWN
from spark_txn_sink.options import SINK
from spark_txn_source.options import SOURCE

ROOT = Path(__file__).parents[2]
readme = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "readme.py")))
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [block for page in readme.PAGES for block in readme.blocks(page.read_text(encoding="utf-8"))]

HOW = {
    ("sh", "ci"): "test_ci_runs_these",
    ("sh", "quickstart"): "test_the_pages_run_as_they_are_read",
    ("python", "quickstart"): "test_the_pages_run_as_they_are_read",
    ("text", "quickstart"): "test_the_pages_run_as_they_are_read",
    ("python", "tour"): "test_the_pages_run_as_they_are_read",
    ("sh", "tour"): "test_the_pages_run_as_they_are_read",
    ("python", "python"): "test_the_pages_run_as_they_are_read",
    ("python", "subscriptions"): "test_the_pages_run_as_they_are_read",
    ("python", "before"): "test_programs_before_a_move_use_options_that_their_guide_maps",
    ("text", "runbook"): "tests/packaging/test_runbook.py",
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


MOVES = {"from_kafka.md": KAFKA, "from_delta.md": DELTA, "from_pulsar.md": PULSAR}


@pytest.mark.parametrize(("page", "owner"), MOVES.items(), ids=MOVES)
def test_programs_before_a_move_use_options_that_their_guide_maps(page: str, owner: str) -> None:
    """The program before the move is Python, and each option that it gives to the other connector is ours, Spark's own, or one that
    the table of foreign options maps to an option of ours. The page says what takes its place.
    """
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (before,) = (b.text for b in readme.blocks(text) if (b.language, b.purpose) == ("python", "before"))
    ast.parse(before)
    ours = {option.name for option in (*SOURCE.options, *SINK.options)} | SPARK_OWN.keys() | {"checkpointLocation"}
    said = text.partition(before)[2].partition("<!-- ")[0]
    given = set(re.findall(r'\.option\("([\w.]+)"', before))
    assert len(given) > 2
    for name in given - ours:
        row = foreign(name)
        assert row is not None, name
        assert row.owner == owner
        assert {row.source, row.sink} & set(re.findall(r"\w+", said)), f"{page} does not say what takes the place of {name}"


SHELL = """
import subprocess
def _shell(commands):
    subprocess.run(["bash", "-euo", "pipefail", "-c", commands], check=True)
"""
"""The beginning of the program that runs the pages: a function that runs a block of commands."""


@pytest.mark.slow
def test_the_pages_run_as_they_are_read(tmp_path: Path) -> None:
    """All programs and commands of README.md, docs/tour.md, docs/reference.md and the guides run from top to bottom: the programs
    in one process of Python, the commands where they stand, all of them in the environment that the first block exports. CI runs
    the others.
    """
    export, *blocks = (b for b in BLOCKS if HOW[b.language, b.purpose] == "test_the_pages_run_as_they_are_read")
    assert export.text.startswith("export TXNSEGMENT_SERVICE_URL=")
    steps = [b.text if b.language == "python" else f"_shell({b.text!r})\n" for b in blocks if b.language != "text"]
    last = "spark.read.format('txnsegment').load('small').show()"
    (tmp_path / "pages.py").write_text("\n".join([SHELL, *steps, last]))
    printed = shell(f"{export.text}\npython pages.py", tmp_path, TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1")

    (said,) = texts("text", "quickstart")
    assert said in printed
    quick = printed.partition(said)[2]
    assert "topic://public/default/delays" in quick
    assert "topic://public/default/late" in quick
    assert "|     ann|       30.0|" in printed  # the scan sums the amounts above 10
    assert "|       4|" in printed  # the view counts the rows
    assert "segment://public/default/orders/" in printed
    assert "|     ann|   7.0|" in printed  # a row of the topic `small`
    assert "\n2 0\n" in printed  # the program about subscriptions: 2 messages were delivered, and 0 are left
    assert "\n2\n" in printed  # the program without Spark has committed 2 rows
    sums = "|     ann|  30.0|\n|     bob|  12.5|\n|     eve|  99.0|\n|     joe|   5.0|\n+"
    assert sums in printed  # etl.md: what each customer bought, less what was returned, counted once
    assert "\nreplayed " in printed
    assert "| ann|/buy|" in printed  # from_kafka.md: the stream of the program that has moved
    for topic in ("orders", "large", "small", "paid", "payments"):
        assert f"topic://public/default/{topic}" in printed
    assert "All are sound." in printed
    assert "Created the subscription billing of topic://public/default/orders; " in printed


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
