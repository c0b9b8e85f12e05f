"""The key column of a topic. `metadata.topics.routing` routes rows by it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pyarrow as pa

from metadata.common.errors import OptionError

if TYPE_CHECKING:
    from metadata.topics.topic import Topic  # tasks of a write also import this module, and must not import the metadata store


def check_key(key: str, schema: pa.Schema) -> None:
    """Raise OptionError if the key column does not exist, occurs twice, or is not a string, binary or integer."""
    key_index(key, schema)


def key_of(topic: Topic, given: str | None, columns: pa.Schema) -> str | None:
    """Return the column by which the rows of a write are routed: the topic's key, or the key column `given` if the topic has no key
    yet. Raises OptionError if the two differ, or if the rows have no such column that can be a key.
    """
    kept = topic.layout.key
    if kept is not None and given is not None and given != kept:
        raise OptionError(
            f"The key column of the write is {given!r}, but the topic {topic.name} routes by {kept!r}.",
            advice="Give no key column (the option keyColumn, the argument key): a topic keeps its first key.",
        )
    key = given if kept is None else kept
    if key is not None:
        check_key(key, columns)
    return key


def key_index(key: str, schema: pa.Schema) -> int:
    """Return the index of the key column. Raises OptionError as `check_key` does."""
    found: list[int] = schema.get_all_field_indices(key)
    if len(found) != 1:
        lower = {name.lower(): name for name in schema.names}
        near = [lower[name] for name in difflib.get_close_matches(key.lower(), lower, n=1, cutoff=0.5)]
        advice = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(schema.names)}."
        raise OptionError(f"The key column {key!r} {'occurs twice' if found else 'is not a column of the rows'}.", advice=advice)
    kind = schema.field(found[0]).type
    if not (is_text(kind) or is_binary(kind) or pa.types.is_integer(kind)):
        raise OptionError(
            f"The key column {key!r} has the type {kind}, which cannot be a key.",
            advice="Keys are strings, binaries or integers: cast the column, or add one that is (e.g. cast(x as string)).",
        )
    return found[0]


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
