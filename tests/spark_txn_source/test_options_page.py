"""docs/options.md agrees with the declarations of the options."""

from __future__ import annotations

import runpy
from pathlib import Path

from spark_txn_sink.pulsar.options import SINK
from spark_txn_source.pulsar.option_table import SOURCE

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "generate.py"))["options_page"]()
    assert (DOCS / "options.md").read_text(encoding="utf-8") == page, "run: python docs/generate.py"


def test_the_page_has_the_options_of_pulsar() -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    for title, table in (("Source for Pulsar", SOURCE), ("Sink for Pulsar", SINK)):
        rows = [line for line in sections[title].splitlines() if line.startswith(("| `", "- `"))]
        assert [one.split("`")[1] for one in rows if one[0] == "|"] == [one.name for one in table.options if not one.refused]
        assert [one.split("`")[1] for one in rows if one[0] == "-"] == [one.name for one in table.options if one.refused]
        assert any(one.refused for one in table.options)
