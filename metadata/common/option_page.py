"""The options as Markdown, for the page of all options (`docs/generate.py`). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from metadata.common.options import Option


def option_table(options: Sequence[Option[Any]]) -> str:
    """Return the options as a Markdown table: option, values, default, batch or stream, meaning. Refused options are left out."""
    rows = [("option", "values", "default", "for", "meaning"), ("---",) * 5]
    for o in (one for one in options if not one.refused):
        default = o.default_note or (f"`{o.default}`" if o.default is not None else "none")
        rows.append((f"`{o.name}`", o.values, default, o.only or "batch, stream", o.meaning))
    return "".join("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in row) + " |\n" for row in rows)


def refusals(options: Sequence[Option[Any]]) -> str:
    """Return the refused options as a Markdown list, each with the reason."""
    return "".join(f"- `{one.name}`: {one.refused}.\n" for one in options if one.refused)
