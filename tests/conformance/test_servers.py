"""The code of docs/servers.md runs verbatim, and tests of another project can use the servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.scenarios.cluster.installation import SOURCE

pytestmark = pytest.mark.slow

BLOCKS = re.findall(r"```python\n(.*?)```", (SOURCE / "docs" / "servers.md").read_text(), re.DOTALL)


def test_the_servers(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\nfrom pyspark.sql import SparkSession\nprint(sys.argv[1:], SparkSession.builder.getOrCreate().version)\n"
    )
    known: dict[str, object] = {"folder": tmp_path, "python": Path(sys.executable), "script": script}
    exec(BLOCKS[0], known)
    assert "['--topic', 't']" in (tmp_path / "job.log").read_text()


def test_another_project(tmp_path: Path) -> None:
    parts = re.split(r"^# (\w+\.py)\n", BLOCKS[1], flags=re.MULTILINE)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
