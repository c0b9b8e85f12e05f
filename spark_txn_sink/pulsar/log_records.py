"""What the records of all logs of one owner (`owned_log`) have in common: their bytes, and the error for damaged ones. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar

from pulsar_protocol.errors import LogDamaged

R = TypeVar("R")
FORMAT: Final = 1
Outcome = Literal["aborted", "committed"]
"""How a transaction ended."""


def encoded(fields: Mapping[str, object]) -> bytes:
    """Return the JSON text of a record with these fields."""
    return json.dumps({"v": FORMAT, **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def decoded(data: bytes, parse: Callable[[Mapping[str, Any]], R]) -> R:
    """Return a record from its JSON text. `parse`: makes the record of its fields. Raises LogDamaged."""
    try:
        fields = json.loads(data)
        if fields["v"] != FORMAT:
            raise LogDamaged(
                f"A record has the format {fields['v']}, and this program knows {FORMAT}.", advice="Upgrade txnsegment."
            )
        return parse(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogDamaged(
            f"A record cannot be read: {data[:200]!r} ({error}).",
            advice="Only txnsegment may write to topics whose names begin with __txnsegment. Find out who wrote the record.",
        ) from error


@contextmanager
def naming(topic: str) -> Iterator[None]:
    """Let a LogDamaged of the block name the topic."""
    try:
        yield
    except LogDamaged as error:
        if topic in error.message:
            raise
        raise LogDamaged(f"{topic}: {error.message}", advice=error.advice) from error
