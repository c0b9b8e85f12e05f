"""The only reader of JSON from outside: from records, files, options and checkpoints, in bounded time and memory.

JSON itself has no bounds: `1e9999999` is a number of ten million digits, and a text of brackets alone ends in a RecursionError.
This reader limits each number to 64 bits (or MAX_DIGITS decimal digits), the nesting depth, and the length of a text. A text beyond
a limit raises a ValueError that names the limit. Callers convert this error into their own errors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

MAX_BYTES: Final = 64 * 2**20
"""Maximum length of one text. A record has at most 768 KiB. Manifests and notes of sweeps list up to some 100,000 files."""
MAX_DEPTH: Final = 200
"""Maximum nesting of lists and objects. Pydantic refuses 255. A level of nested columns takes four levels of JSON."""
MAX_DIGITS: Final = 64
"""Maximum number of digits, before and after the point, of a number with a fraction or an exponent."""

Pairs = Callable[[Sequence[tuple[str, Any]]], Any]

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NEITHER: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
"""All bytes except brackets and quotes."""
_DIGITS: Final = bytes(ord("0") if chr(b).isdecimal() else 0 for b in range(128)) + bytes(128)
_LONG: Final = b"0" * 19
"""A text without 19 digits in a row has no integer above 64 bits. So `read_json` need not check its integers, which is faster."""


def read_json(
    text: str | bytes,
    *,
    decimals: bool = False,
    pairs: Pairs | None = None,
    most: int = MAX_BYTES,
    fraction: Callable[[str], Any] | None = None,
) -> Any:
    """Parse a JSON text in UTF-8. Raises ValueError for invalid JSON and for texts beyond the limits.

    `decimals`: numbers with a fraction or exponent become Decimals, not floats. `pairs`: builds an object from its pairs.
    `fraction`: builds a number with a fraction or exponent from its text, which has any length and value.
    """
    raw = text if isinstance(text, bytes) else text.encode()
    if len(raw) > most:
        raise ValueError(f"a JSON text of {len(raw)} bytes; the limit is {most}")
    _check_depth(raw)
    unusual = _LONG in raw.translate(_DIGITS)
    decoder = _known(decimals, unusual, fraction) if pairs is None else _decoder(decimals, unusual, pairs, fraction)
    found = decoder.decode(text.decode() if isinstance(text, bytes) else text)
    if b"\\u" in raw:
        _check_texts(found)
    return found


def _check_depth(raw: bytes) -> None:
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    if b"\\" in raw:
        raw = _STRING.sub(b"", raw)
    left = _STRING.sub(b"", raw.translate(None, _NEITHER).replace(b'""', b""))
    for _ in range(MAX_DEPTH):  # each round removes the innermost brackets
        shorter = left.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(left):  # the parser refuses what is left, because its brackets do not match
            break
        left = shorter
    else:
        if left:
            raise ValueError(f"JSON of more than {MAX_DEPTH} levels")
    if len(left) > MAX_DEPTH:
        raise ValueError(f"JSON of more than {MAX_DEPTH} levels")


def decimal_of(text: str) -> Decimal:
    """Return the number of a text. Raises ValueError for more than MAX_DIGITS digits before or after the point."""
    exponent = text.lower().partition("e")[2]
    number = Decimal(text) if len(text) <= 2 * MAX_DIGITS and len(exponent) <= 5 else None
    if number is None or not -MAX_DIGITS <= number.adjusted() < MAX_DIGITS:
        raise ValueError(f"the number {text:.30} has more than {MAX_DIGITS} digits")
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.30} is too large for a float")
    return number


def _integer(text: str) -> int:
    number = int(text) if len(text) <= 20 else None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(f"the number {text:.30} has more than 64 bits")
    return number


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _decoder(decimals: bool, unusual: bool, pairs: Pairs | None, fraction: Callable[[str], Any] | None) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_float=fraction or (decimal_of if decimals else _float),
        parse_int=_integer if unusual else None,
        parse_constant=_refuse_constant,
        object_pairs_hook=pairs,
    )


@lru_cache(maxsize=16)
def _known(decimals: bool, unusual: bool, fraction: Callable[[str], Any] | None) -> json.JSONDecoder:
    return _decoder(decimals, unusual, None, fraction)


def _check_texts(found: Any) -> None:
    """Raise UnicodeEncodeError for half of a surrogate pair, because no store, file or terminal accepts it as UTF-8."""
    match found:
        case str():
            if not found.isascii():
                found.encode()
        case list():
            for one in found:
                _check_texts(one)
        case dict():
            for key, one in found.items():
                _check_texts(key)
                _check_texts(one)
        case tuple():
            for one in found:
                _check_texts(one)
