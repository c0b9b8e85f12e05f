"""`make` names a missing requirement in one clear message, before it installs anything."""

from __future__ import annotations

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
    """Make a program that prints `says` for any arguments, such as `java -version`. It stands for a version not installed."""
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
