"""The examples of docs/pulsar.md, and the example of a broker in docs/servers.md, run and print what the pages say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from conformance.harness.spark_start import spark_environment
from conformance.pulsar_java import JavaClient
from conformance.pulsar_server import PulsarBroker

ROOT = Path(__file__).parents[2]
README = runpy.run_path(str(ROOT / "docs" / "readme.py"))


def blocks(page: str) -> list[Any]:
    """Return the blocks of a page that this module runs."""
    return [one for one in README["blocks"]((ROOT / "docs" / page).read_text(encoding="utf-8")) if one.purpose == "pulsar"]


pytestmark = [pytest.mark.pulsar, pytest.mark.slow]


def test_the_examples_print_what_the_page_says_and_may_run_again(pulsar_broker: PulsarBroker, java: JavaClient) -> None:
    found = blocks("pulsar.md")
    programs = [one.text for one in found if one.language == "python"]
    program = "".join(programs).replace("pulsar://127.0.0.1:6650", pulsar_broker.url)
    program = program.replace("http://127.0.0.1:8080", pulsar_broker.admin_url)
    assert len(programs) == 6
    assert lines(program) == [line for one in found if one.language == "text" for line in one.text.splitlines()]
    rows = java.read("topic://public/default/delays", count=3, schema="bytes")
    assert sorted(row["key"] for row in rows) == ["EWR", "JFK", "LGA"]
    again = [line for line in lines(program) if not line.startswith(("+", "|airport"))]
    airports = sorted(line.split("|")[1].strip() for line in again if line.startswith("|"))
    assert airports == ["EWR", "EWR", "JFK", "JFK", "LGA"]
    numbers = [line for line in again if not line.startswith("|")]
    # the stream has a new checkpoint; the version of the report is committed; then the rows of the second run are read
    assert numbers == ["9", "[3, 2]", "6", "0", "[5, 3]", "3"]


def lines(program: str) -> list[str]:
    """Run a program in a new process and return the lines that it prints, without empty ones."""
    printed = README["run_python"](program, **spark_environment())
    return [line.rstrip() for line in printed.splitlines() if line.strip()]


def test_the_broker_of_the_page_on_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("servers.md")
    exec(block.text, {"folder": tmp_path})
    assert capsys.readouterr().out == "['0', '1', '2', '3']\n"
