"""Regular expressions for topic names (`topicsPattern`), in Python's syntax. Patterns whose matching could take too long are
refused.

Python's matcher backtracks without a time limit. So a pattern is checked before it is used: a repeated group may contain no choice
and no repetition, and the numbers of repetitions and choices are limited. Patterns for names need no more.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from metadata.common.errors import OptionError

MAX_LENGTH: Final = 1000
MAX_REPEATS: Final = 6
"""Maximum number of repetitions (`*`, `+`, `{m,n}`) in a pattern. k repetitions can divide a name of n characters in about n^k/k!
ways. The matcher may try all of these ways.
"""
MAX_CHOICES: Final = 100_000
"""Maximum number of choices in a pattern: the product of the numbers of alternatives of all groups, times two for each `?`."""

_ADVICE: Final = r"Match full names by few wildcards, e.g. topic://public/default/flights-.*"
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_COUNT: Final = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
_OPEN: Final = re.compile(r"\((?:\?(?:P<[^>]*>|<?[=!]|>|:|[a-zA-Z-]*[:)]|P=[^)]*\)|#[^)]*\)|\([^)]*\)))?")


@lru_cache(maxsize=256)
def compiled(pattern: str, what: str = "topicsPattern") -> re.Pattern[str]:
    """Compile a pattern. Raises OptionError for text that is not a regular expression, and for a pattern whose matching could take
    too long.
    """
    if len(pattern) > MAX_LENGTH:
        raise _refused(what, pattern, f"it has {len(pattern)} characters, of {MAX_LENGTH} that are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's deprecation warnings do not concern the user
            found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise _refused(what, pattern, f"it is not a regular expression ({error})") from error
    _check(what, pattern)
    return found


@dataclass
class _Group:
    """An open group: its number of alternatives so far, and whether its content can match in several ways."""

    alternatives: int = 1
    varies: bool = False


def _check(what: str, pattern: str) -> None:
    repeats, choices, at = 0, 1, 0
    groups, ended = [_Group()], None
    while at < len(pattern):
        opened, counted = _OPEN.match(pattern, at), _COUNT.match(pattern, at)
        char = pattern[at]
        if opened is not None:
            at, ended = opened.end(), None
            if not opened[0].endswith(")"):  # a flag, a comment or a back reference opens no group
                groups.append(_Group())
        elif char == ")" and len(groups) > 1:
            ended = groups.pop()
            choices *= ended.alternatives
            groups[-1].varies |= ended.varies or ended.alternatives > 1
            ended.varies |= ended.alternatives > 1
            at += 1
        elif char == "|":
            groups[-1].alternatives += 1
            at, ended = at + 1, None
        elif char == "?" or (counted is not None and counted[0] in ("{0,1}", "{,1}")):
            choices *= 2
            groups[-1].varies = True
            at, ended = at + (1 if counted is None else len(counted[0])), None
        elif char in "*+" or counted is not None:
            if ended is not None and ended.varies:
                raise _refused(
                    what, pattern, "it repeats a group that contains a choice or a repetition, so matching may never end"
                )
            repeats += 1
            groups[-1].varies = True
            at = at + (1 if counted is None else len(counted[0]))
            at += pattern[at : at + 1] in ("?", "+")  # the `?` of a lazy repetition, the `+` of a possessive one
            ended = None
        else:
            atom = _ATOM.match(pattern, at)
            assert atom is not None
            at, ended = atom.end(), None
    choices *= groups[0].alternatives
    if repeats > MAX_REPEATS or choices > MAX_CHOICES:
        raise _refused(
            what, pattern, f"it has {repeats} repetitions and {choices:.3g} choices, of {MAX_REPEATS} and {MAX_CHOICES} at most"
        )


def _refused(what: str, pattern: str, problem: str) -> OptionError:
    shown = pattern if len(pattern) <= 200 else pattern[:200] + "..."
    return OptionError(f"The {what} {shown!r} cannot be used: {problem}.", advice=_ADVICE)
