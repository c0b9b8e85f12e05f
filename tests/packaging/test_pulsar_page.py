"""docs/pulsar.md has all options of Pulsar topics, and its first example has twelve lines. `make pulsar` runs the examples."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from metadata.common.options import Option
from spark_txn_sink.pulsar.options import SINK
from spark_txn_source.pulsar.option_table import SOURCE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pulsar.md").read_text(encoding="utf-8")
blocks = runpy.run_path(str(ROOT / "docs" / "readme.py"))["blocks"]


def documented(title: str) -> set[str]:
    """Return the options in the first column of the table with this title."""
    table = PAGE.partition(f"| {title} | meaning |\n")[2].partition("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {name for first in firsts for name in re.findall(r"`(\w+)`", first)}


def accepted(options: tuple[Option[object], ...]) -> set[str]:
    """Return the names of the options that are not refused."""
    return {one.name for one in options if "_refused" not in getattr(one.parse, "__qualname__", "")}


def test_the_page_has_all_options_of_reads() -> None:
    assert len(accepted(SOURCE.options)) < len(SOURCE.options), "some are refused"
    assert documented("option of a read") == accepted(SOURCE.options)


def test_the_page_has_all_options_of_writes() -> None:
    assert documented("option of a write") == accepted(SINK.options)


def test_twelve_lines_lead_from_a_fresh_machine_to_rows() -> None:
    commands, program = [one.text.split("\n") for one in blocks(PAGE) if one.purpose == "pulsar"][:2]
    lines = [line for line in (*commands, *program) if line]
    assert program[0].startswith("from pyspark")
    assert len(lines) <= 12
