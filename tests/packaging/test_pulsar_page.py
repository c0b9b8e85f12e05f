"""The first example of docs/pulsar.md has at most twelve lines. `make pulsar` runs the examples."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pulsar.md").read_text(encoding="utf-8")
blocks = runpy.run_path(str(ROOT / "docs" / "readme.py"))["blocks"]


def test_twelve_lines_lead_from_a_fresh_machine_to_rows() -> None:
    commands, program = [one.text.split("\n") for one in blocks(PAGE) if one.purpose == "pulsar"][:2]
    lines = [line for line in (*commands, *program) if line]
    assert program[0].startswith("from pyspark")
    assert len(lines) <= 12
