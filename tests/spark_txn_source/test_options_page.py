"""docs/options.md agrees with the declarations of the options."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "generate.py"))["options_page"]()
    assert (DOCS / "options.md").read_text(encoding="utf-8") == page, "run: python docs/generate.py"
