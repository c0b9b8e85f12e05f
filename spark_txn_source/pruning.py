"""Removes from the batches of a part the nested fields that a read does not use."""

from __future__ import annotations

import pyarrow as pa


def pruned(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the batch without the nested fields that are not in `wanted`. The buffers are shared, not copied."""
    columns = [_pruned(column, wanted.field(name).type) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    if all(new is old for new, old in zip(columns, batch.columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _pruned(array: pa.Array, kind: pa.DataType) -> pa.Array:
    have = array.type
    if have == kind or not pa.types.is_nested(have):
        return array
    if pa.types.is_struct(have) and pa.types.is_struct(kind):
        return _struct(array, kind)
    if pa.types.is_list(have) and pa.types.is_list(kind):
        values = _pruned(array.values, kind.value_type)
        return array if values is array.values else _rebuilt(array, pa.list_(have.value_field.with_type(values.type)), values)
    if pa.types.is_map(have) and pa.types.is_map(kind):
        keys, items = _pruned(array.keys, kind.key_type), _pruned(array.items, kind.item_type)
        fields = [have.key_field.with_type(keys.type), have.item_field.with_type(items.type)]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return _rebuilt(array, pa.map_(*fields), entries)
    return array


def _struct(array: pa.StructArray, kind: pa.StructType) -> pa.Array:
    names = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
    kept = [(i, field) for i, field in enumerate(array.type) if field.name in names]
    children = [_pruned(array.field(i), names[field.name]) for i, field in kept]
    fields = [field.with_type(child.type) for (_, field), child in zip(kept, children, strict=True)]
    valid = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(pa.struct(fields), len(array), [valid], null_count=array.null_count, children=children)


def _rebuilt(array: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], null_count=array.null_count, offset=array.offset, children=[values]
    )
