"""CONTRIBUTING.md and docs/architecture.md are right. Each named function exists, and a task of CONTRIBUTING.md whose steps are
followed literally works.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

import txnsegment

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = ROOT / "docs" / "architecture.md"


def test_functions_that_the_architecture_names_exist() -> None:
    named = re.findall(r"`([a-z_.]+):([\w.]+)`", ARCHITECTURE.read_text(encoding="utf-8"))
    assert len(named) > 15
    for module, name in named:
        if module != "module":
            assert reduce(getattr, name.split("."), importlib.import_module(module))


def test_long_modules_are_listed_with_their_reason() -> None:
    rule = CONTRIBUTING.partition("| module over 400 lines |")[2].partition("\n\n")[0]
    rooms = ("ledgers", "metadata", "spark_txn_source", "spark_txn_sink", "txnsegment", "conformance")
    modules = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    long = {str(path.relative_to(ROOT)) for path in modules if len(path.read_text(encoding="utf-8").splitlines()) > 400}
    assert set(re.findall(r"`([\w/]+\.py)`", rule)) == long


def tasks() -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each task of CONTRIBUTING.md."""
    for task in re.split(r"^### ", CONTRIBUTING.partition("\n## Tasks\n")[2], flags=re.MULTILINE)[1:]:
        title, _, text = task.partition("\n")
        yield title, text


@pytest.mark.parametrize(("title", "text"), list(tasks()), ids=[title for title, _ in tasks()])
def test_each_task_names_its_files_and_the_command_that_proves_it(title: str, text: str) -> None:
    files = re.findall(r"`([\w/]+\.(?:py|md))`|`(\w+(?:/\w+)+)`", text)
    assert files, f"{title} names no file"
    _, proof, commands = text.partition("\nProof: ")
    assert proof, f"{title} names no proof"
    assert re.search(r"`\.venv/bin/", commands), f"{title} names no command that proves it"
    for command in re.findall(r"-m pytest ([^`]+)`", commands):
        assert [path for path in command.split() if not (ROOT / path).exists()] == []


def test_the_documented_steps_add_a_working_command(tmp_path: Path) -> None:
    """The example of CONTRIBUTING.md's task "A command" is appended to the module that the task names, in a copy of the package.
    The new command then works.
    """
    text = dict(tasks())["A command"]
    block = re.search(r"in `(txnsegment/cli/\w+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    shutil.copytree(ROOT / "txnsegment", tmp_path / "txnsegment", ignore=shutil.ignore_patterns("__pycache__"))
    module = tmp_path / block[1]
    module.write_text(f"{module.read_text(encoding='utf-8')}\n\n{block[2]}", encoding="utf-8")
    url = f"file://{tmp_path}/cluster"
    with txnsegment.connect(url) as cluster:
        cluster.topics.create("flights", schema="id bigint")
        epoch = cluster.topics.describe("flights").epoch
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    program = "from txnsegment.cli.main import main; main()"
    words = [sys.executable, "-c", program, "topics", "epoch", "flights", "--service-url", url]
    ran = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, f"flights: epoch {epoch}\n"), ran.stderr
