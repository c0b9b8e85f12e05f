"""The pages that docs/generate.py makes are up to date, and the code that they come from says what they need."""

from __future__ import annotations

import inspect
import re
import runpy
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from ledgers import errors as file_errors
from metadata.common import errors
from metadata.common.errors import StoreError, TxnSegmentError
from metadata.common.foreign_options import KAFKA, TABLE
from metadata.instream.txn_rules import TRANSITIONS
from metadata.rules.transitions import HEADER_TRANSITIONS
from txnsegment.cli.app import build

DOCS = Path(__file__).parents[2] / "docs"
generate = SimpleNamespace(**runpy.run_path(str(DOCS / "generate.py")))


def test_generated_files_are_up_to_date() -> None:
    made = generate.generated()
    assert {"cli.md", "errors.md", "from_kafka.md", "images/layers.svg", "images/states.svg"} <= made.keys()
    assert [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text] == [], (
        "run: python docs/generate.py"
    )


def test_the_page_of_commands_has_every_command_with_its_parts() -> None:
    page = generate.commands_page()
    sections = {part.partition("`")[0]: part for part in re.split(r"^### `", page, flags=re.MULTILINE)[1:]}
    root: Any = typer.main.get_command(build())
    found = 0
    for name, command in root.commands.items():
        for inner, one in (getattr(command, "commands", None) or {"": command}).items():
            (section,) = [
                text for usage, text in sections.items() if f"{usage} ".startswith(f"txnsegment {name} {inner}".strip() + " ")
            ]
            written = [param.opts[0] for param in one.params if param.opts[0] not in ("--service-url", "--json")]
            assert [w for w in written if w.startswith("--") and f"`{w}" not in section] == []
            found += 1
    assert len(sections) == found > 30
    assert "\\[" not in page, "a bracket is escaped for the terminal only"


def test_every_error_says_what_it_means_and_what_to_do() -> None:
    for one in {**vars(file_errors), **vars(errors)}.values():
        if inspect.isclass(one) and issubclass(one, TxnSegmentError) and one not in (TxnSegmentError, StoreError):
            meaning, to_do = generate._documented(one)
            assert meaning.endswith("."), one
            assert to_do[:1].isupper() or to_do.startswith("`"), f"{one.__name__}: its docstring ends with a paragraph `Next: ..`"
            assert f"| `{one.__name__}` |" in generate.errors_page()


def test_the_guide_from_kafka_has_all_options_of_the_table() -> None:
    table = generate.foreign_table(KAFKA)
    assert [name for row in TABLE if row.owner == KAFKA for name in row.names if f"`{name}`" not in table] == []


def test_the_picture_of_the_layers_has_every_layer() -> None:
    """Each box stands below those that may import it, and the picture is well-formed."""
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    texts = [
        one
        for one in ET.fromstring(generate.pictures["layers_picture"](project)).iter("{http://www.w3.org/2000/svg}text")
        if one.get("class") == "name"
    ]
    height = {one.text: float(one.get("y", "0")) for one in texts}
    assert height["conformance"] < height["txnsegment"] < height["spark_txn_sink"] < height["metadata"] < height["ledgers"]
    assert {path.name for path in (DOCS.parent / "metadata").iterdir() if (path / "__init__.py").exists()} <= height.keys()


def test_the_picture_of_the_states_has_an_arrow_for_each_transition() -> None:
    text = generate.pictures["states_picture"]()
    tables: tuple[Mapping[Any, frozenset[Any]], ...] = (HEADER_TRANSITIONS, TRANSITIONS)
    expected = [(before, after) for table in tables for before in table for after in table[before] - {before}]
    assert text.count('class="arrow"') == len(expected) == 6
    assert all(f">{state}<" in text for pair in expected for state in pair)
    ET.fromstring(text)
