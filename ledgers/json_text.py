"""The one place where JSON from outside is read: from records, files, options and checkpoints, in bounded time and memory.

JSON itself has no bounds: `1e9999999` is a number of ten million digits, and a text of brackets alone ends in a RecursionError.
Here each number has at most 64 bits (or so many decimal digits), nesting has a greatest depth, and a text a greatest length.
What goes beyond is a ValueError that says which bound it was; each caller makes it an error of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

MAX_BYTES: Final = 64 * 2**20
"""Of one text. A record has 768 KiB at most; manifests and notes of sweeps list files, some hundred thousand of them at most."""
MAX_DEPTH: Final = 200
"""Of lists and objects in each other. Pydantic refuses 255; the columns of a struct in a struct take four for each level."""
MAX_DIGITS: Final = 64
"""Of a number with a fraction or an exponent, written out: before and after the point."""

Pairs = Callable[[Sequence[tuple[str, Any]]], Any]

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NEITHER: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
"""What is neither a bracket nor a quote."""
_DIGITS: Final = bytes(ord("0") if chr(b).isdecimal() else 0 for b in range(128)) + bytes(128)
_LONG: Final = b"0" * 19
"""Only texts that hold so many digits in a row are read number by number: most are read several times as fast."""


def read_json(text: str | bytes, *, decimals: bool = False, pairs: Pairs | None = None, most: int = MAX_BYTES) -> Any:
    """The value of a JSON text in UTF-8. Raises ValueError for anything else, and for what goes beyond the bounds.

    `decimals`: numbers with a fraction or exponent are Decimals, not floats. `pairs`: makes an object of its pairs.
    """
    if len(text) > most:
        raise ValueError(f"a JSON text of {len(text)} bytes; {most} are read at most")
    raw = text if isinstance(text, bytes) else text.encode()
    _check_depth(raw)
    unusual = _LONG in raw.translate(_DIGITS)
    decoder = _DECODERS[decimals, unusual] if pairs is None else _decoder(decimals, unusual, pairs)
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
    for _ in range(MAX_DEPTH):  # each round takes the innermost brackets away
        shorter = left.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(left):  # the rest is not in pairs: no JSON, which the parser says as long as it is not too deep
            break
        left = shorter
    else:
        if left:
            raise ValueError(f"JSON of more than {MAX_DEPTH} levels")
    if len(left) > MAX_DEPTH:
        raise ValueError(f"JSON of more than {MAX_DEPTH} levels")


def _decimal(text: str) -> Decimal:
    exponent = text.lower().partition("e")[2]
    number = Decimal(text) if len(text) <= 2 * MAX_DIGITS and len(exponent) <= 5 else None
    if number is None or not -MAX_DIGITS <= number.adjusted() < MAX_DIGITS:
        raise ValueError(f"the number {text:.30} has more than {MAX_DIGITS} digits")
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.30} is beyond every float")
    return number


def _integer(text: str) -> int:
    number = int(text) if len(text) <= 20 else None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(f"the number {text:.30} has more than 64 bits")
    return number


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _decoder(decimals: bool, unusual: bool, pairs: Pairs | None) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_float=_decimal if decimals else _float,
        parse_int=_integer if unusual else None,
        parse_constant=_refuse_constant,
        object_pairs_hook=pairs,
    )


_DECODERS: Final = {(d, u): _decoder(d, u, None) for d in (False, True) for u in (False, True)}


def _check_texts(found: Any) -> None:
    """Half of a surrogate pair cannot be written as UTF-8: no store, file or terminal takes it."""
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
