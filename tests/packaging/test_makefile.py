"""`make` names a missing requirement in one clear message, before it installs anything. `make check` starts no process."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "sed", "head", "make", "dirname", "cat", "env")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a folder for PATH that has the tools of the shell, but no Python and no Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        where = shutil.which(tool)
        assert where is not None
        (folder / tool).symlink_to(where)
    return folder


def make_venv(path: Path, venv: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "venv", f"VENV={venv}"],
        env={"PATH": str(path), "HOME": os.environ.get("HOME", str(venv.parent)), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def program(folder: Path, name: str, says: str) -> None:
    """Make a program that prints `says` for any arguments, such as `java -version`. It stands in for the real program."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)


def with_python(folder: Path) -> None:
    (folder / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python3").chmod(0o755)


def refused(ran: subprocess.CompletedProcess[str], venv: Path, *says: str) -> None:
    assert ran.returncode == 2, ran.stderr
    for text in says:
        assert text in ran.stderr
    assert not venv.exists(), "nothing may be made before the check"


def test_make_without_python_names_the_next_step(bare: Path, tmp_path: Path) -> None:
    refused(make_venv(bare, tmp_path / "venv"), tmp_path / "venv", "Python 3.11 or newer", "apt install python3", "make PYTHON=")


def test_make_without_java_names_the_next_step(bare: Path, tmp_path: Path) -> None:
    with_python(bare)
    refused(
        make_venv(bare, tmp_path / "venv"), tmp_path / "venv", "Java 17 or newer", "java cannot be run", "apt install openjdk-17"
    )


def test_java_home_without_java(bare: Path, tmp_path: Path) -> None:
    """JAVA_HOME takes precedence over PATH, as in Spark. So a wrong JAVA_HOME is an error, although PATH has a Java."""
    with_python(bare)
    program(bare, "java", 'openjdk version "17.0.15" 2025-04-15')
    ran = make_venv(bare, tmp_path / "venv", JAVA_HOME=str(tmp_path / "nothing"))
    refused(ran, tmp_path / "venv", f"{tmp_path}/nothing/bin/java cannot be run")


@pytest.mark.parametrize(
    "version", ['java version "1.8.0_392"', 'openjdk version "11.0.22" 2024-01-16', 'openjdk version "16" 2021']
)
def test_java_too_old(version: str, bare: Path, tmp_path: Path) -> None:
    with_python(bare)
    program(bare, "java", version)
    refused(make_venv(bare, tmp_path / "venv"), tmp_path / "venv", "Java 17 or newer", version)


def test_every_target_is_listed() -> None:
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    targets = {line.split(":")[1].strip() for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY")}
    assert targets
    assert {name for name in targets if f"make {name} " not in listed} == set()


def test_make_pulsar_without_maven_names_the_next_step(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "installed").touch()
    ran = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "pulsar", f"VENV={tmp_path / 'venv'}"],
        env={"PATH": str(bare)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2, ran.stderr
    assert "no mvn on PATH" in ran.stderr
    assert "apt install maven openjdk-17-jdk-headless" in ran.stderr


def test_make_objects_without_go_names_the_next_step(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "installed").touch()
    ran = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "objects", f"VENV={tmp_path / 'venv'}"],
        env={"PATH": str(bare)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2, ran.stderr
    assert "make objects needs Go" in ran.stderr
    assert "put a versitygw on PATH" in ran.stderr


@pytest.mark.parametrize("target", ["browser", "screenshots"])
def test_make_browser_without_chromium_names_the_next_step(target: str, bare: Path, tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "installed").touch()
    ran = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), target, f"VENV={tmp_path / 'venv'}"],
        env={"PATH": str(bare)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2, ran.stderr
    assert f"make {target} needs Chromium, and there is none on PATH." in ran.stderr
    assert "apt install chromium" in ran.stderr


PROCESSES = {"subprocess", "multiprocessing", "ProcessPoolExecutor", "fork", "posix_spawn", "find_java"}
SERVERS = {"ZooKeeperServer", "ZooKeeperEnsemble", "PulsarBroker", "SparkSession", "MotoServer", "VersityGateway"}


def names(tree: ast.AST) -> set[str]:
    """Return all names in this code: of variables, attributes, parameters and imports, and of the fixtures that the code requests
    by a text. Names that only a type checker imports are left out.
    """
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case ast.Import(names=aliases):
                found |= {part for alias in aliases for part in alias.name.split(".")}
            case ast.ImportFrom(module=module, names=aliases):
                found |= {alias.name for alias in aliases} | {(module or "").partition(".")[0]}
            case ast.Call(func=ast.Attribute(attr="usefixtures" | "getfixturevalue"), args=given):
                found |= {str(one.value) for one in given if isinstance(one, ast.Constant)}
        found |= names(node)
    return found


def fixtures_with_processes() -> set[str]:
    """Return the fixtures of tests/conftest.py that start a process, or use such a fixture."""
    fixtures = [
        one
        for one in ast.parse((ROOT / "tests" / "conftest.py").read_text()).body
        if isinstance(one, ast.FunctionDef) and any("fixture" in ast.unparse(mark) for mark in one.decorator_list)
    ]
    found: set[str] = set()
    while more := {one.name for one in fixtures if names(one) & (PROCESSES | SERVERS | found)} - found:
        found |= more
    return found


def starts_processes(code: str) -> list[str]:
    """Return the modules, functions, classes and fixtures that start a process and are named in this code."""
    return sorted(names(ast.parse(code)) & (PROCESSES | SERVERS | fixtures_with_processes()))


def test_make_check_starts_no_process() -> None:
    shown = ["make", "-s", "--no-print-directory", "-C", str(ROOT), "--eval", "pure: ; @echo $(PURE)", "pure"]
    listed = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split()
    assert [path for path in listed if not (ROOT / path).exists()] == []
    files = [file for path in listed for file in (sorted((ROOT / path).rglob("*.py")) or [ROOT / path])]
    assert len(files) > 40
    wrong = {str(file.relative_to(ROOT)): found for file in files if (found := starts_processes(file.read_text()))}
    assert wrong == {}, "move these tests to files that are not in PURE (Makefile)"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def test_it(spark): pass", ["spark"]),
        ("@pytest.fixture\ndef place(zk_url): pass", ["zk_url"]),
        ("@pytest.mark.usefixtures('zookeeper')\ndef test_it(): pass", ["zookeeper"]),
        ("def place(request): return request.getfixturevalue('zk_url')", ["zk_url"]),
        ("from conformance.servers import ZooKeeperServer", ["ZooKeeperServer"]),
        ("def test_it(pulsar): pass", ["pulsar"]),
        ("from conformance.servers import PulsarBroker", ["PulsarBroker"]),
        ("import subprocess", ["subprocess"]),
        ("from subprocess import run", ["subprocess"]),
        ("from metadata.store.zookeeper import hosts_and_root", []),
        ("def test_it(): os.fork()", ["fork"]),
        ("if TYPE_CHECKING:\n    from pyspark.sql import SparkSession", []),
        ("def test_it(storage): storage.spark_uri('a/x.parquet')", []),
    ],
)
def test_a_start_of_a_process_is_seen(code: str, found: list[str]) -> None:
    assert starts_processes(code) == found
