"""The columns of a Parquet file that belong to each top-level column of a schema."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa


def leaves_of(schema: pa.Schema) -> list[range]:
    """Return the Parquet column indexes of each top-level column. Names would not identify the columns: a name with a dot also
    matches a field inside a struct.
    """
    edges = [0]
    for field in schema:
        edges.append(edges[-1] + _leaf_count(field.type))
    return [range(a, b) for a, b in pairwise(edges)]


def _leaf_count(kind: pa.DataType) -> int:
    if pa.types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _leaf_count(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_leaf_count(field.type) for field in kind)
    return 1
