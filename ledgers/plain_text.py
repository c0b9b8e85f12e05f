"""Text of others, as people see it: in names that are to be made, and wherever it reaches a terminal or a log.

A control character, ESC before all, moves a terminal's cursor, sets its title or answers for the user. A mark of direction makes a
name look like another one. Half of a surrogate pair cannot be written as UTF-8 at all.
"""

from __future__ import annotations

import re
from typing import Final

HARMFUL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Controls (C0, DEL, C1), marks of direction, ends of lines and paragraphs, the byte order mark, surrogates."""


def harmful(text: str) -> str | None:
    """The first character of a name that no name may have, as it is shown; None: there is none."""
    found = HARMFUL.search(text)
    return None if found is None else _escaped(found)


def shown(text: str, *, lines: bool = False) -> str:
    """Text for a terminal or a log: what is harmful is escaped (`\\x1b`). `lines`: line ends and tabs stay as they are."""
    return HARMFUL.sub(_kept_line if lines else _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _kept_line(found: re.Match[str]) -> str:
    return found[0] if found[0] in "\n\t" else _escaped(found)
