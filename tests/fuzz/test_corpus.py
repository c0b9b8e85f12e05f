"""Inputs that once failed, and valid inputs, return or raise a TxnSegmentError, in bounded time. `make fuzz` finds more inputs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz.__main__ import CORPUS
from tests.fuzz.targets import TARGETS, run

INPUTS = [file for folder in sorted(CORPUS.iterdir()) for file in sorted(folder.iterdir())]
SECONDS = 3
"""Processor seconds that the slowest input may take. Some inputs need time to start a pool of threads or to parse a schema."""


@pytest.mark.parametrize("file", INPUTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_an_input_raises_a_product_error_or_nothing(file: Path) -> None:
    begun = time.process_time()
    run(file.parent.name, file.read_bytes())
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_takes_any_bytes(name: str) -> None:
    assert any(file.parent.name == name for file in INPUTS)
    for data in (b"", b"\x00", b"\xff" * 40, b"[" * 3000, bytes(range(256))):
        run(name, data)


def test_without_atheris_the_command_names_the_alternative() -> None:
    code = "import sys; sys.modules['atheris'] = None; from tests.fuzz.__main__ import main; sys.argv[1:] = []; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], cwd=CORPUS.parents[2], capture_output=True, text=True)
    assert done.returncode == 1
    assert "make properties" in done.stderr
