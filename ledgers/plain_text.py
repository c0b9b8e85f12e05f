"""Checks text from other users that becomes a name, and escapes such text for terminals and logs.

Control characters, above all ESC, move a terminal's cursor, set its title or type text for the user. Direction marks make a name
look like another name. Half of a surrogate pair cannot be encoded in UTF-8.
"""

from __future__ import annotations

import re
from typing import Final

HARMFUL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters (C0, DEL, C1), direction marks, line and paragraph separators, the byte order mark, surrogates."""


def harmful(text: str) -> str | None:
    """Return the first forbidden character of a name in escaped form; None if the name has none."""
    found = HARMFUL.search(text)
    return None if found is None else _escaped(found)


def shown(text: str, *, lines: bool = False) -> str:
    r"""Escape harmful characters (`\x1b`) for a terminal or a log. `lines`: newlines and tabs are kept."""
    return HARMFUL.sub(_kept_line if lines else _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _kept_line(found: re.Match[str]) -> str:
    return found[0] if found[0] in "\n\t" else _escaped(found)
