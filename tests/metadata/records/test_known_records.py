"""A process parses a record once and remembers it. No reader of the record sees what another reader has done to it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from decimal import Decimal
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

from conformance.harness.prebuilt import record_types
from metadata.common.errors import CorruptRecord
from metadata.records.json_records import KNOWN_BYTES, JsonRecord, _dicts
from metadata.records.persistent_records import PersistentLayout, SnapshotPointer, SnapshotRest, Started
from metadata.records.records import Header, Layout, TcSequence

LAYOUT = Layout(epoch=1, next_segment_id=0, segments={}, properties={"a": "b"})
PERSISTENT = PersistentLayout(
    snapshot=SnapshotPointer(at=1, made_ms=2, rest=SnapshotRest(ongoing={"t": Started(first=1)}, ended={"u": 3}))
)


def test_a_changed_dict_is_the_reader_s_own() -> None:
    data = LAYOUT.to_bytes()
    first = Layout.from_bytes(data)
    first.properties["a"] = "changed"
    first.segments["0"] = first  # type: ignore[assignment]
    second = Layout.from_bytes(data)
    assert second == LAYOUT
    second.properties.clear()
    assert Layout.from_bytes(data).to_bytes() == data


def test_a_changed_dict_of_a_record_in_a_record_is_the_reader_s_own() -> None:
    data = PERSISTENT.to_bytes()
    first = PersistentLayout.from_bytes(data)
    assert first.snapshot is not None
    assert first.snapshot.rest is not None
    first.snapshot.rest.ongoing.clear()
    first.snapshot.rest.low_water["v"] = 1
    first.properties["a"] = "b"
    assert PersistentLayout.from_bytes(data) == PERSISTENT


def test_a_record_is_of_the_type_that_the_reader_asks_for() -> None:
    assert type(TcSequence.from_bytes(b'{"next":5}')) is TcSequence
    with pytest.raises(CorruptRecord, match="Not a Header record"):
        Header.from_bytes(b'{"next":5}')
    assert TcSequence.from_bytes(b'{"next":5}').to_bytes() == b'{"next":5}'


def test_unknown_fields_survive_in_remembered_and_in_large_records() -> None:
    for data in (b'{"next":5,"later":"x"}', b'{"next":5,"later":"%s"}' % (b"x" * KNOWN_BYTES)):
        for _ in range(2):
            assert TcSequence.from_bytes(data).model_copy(update={"next": 6}).to_bytes() == data.replace(b"5", b"6")


def test_a_damaged_record_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="Not a TcSequence record"):
            TcSequence.from_bytes(b'{"next":-1}')


@pytest.mark.parametrize("kind", sorted(record_types(), key=str), ids=lambda kind: kind.__name__)
def test_a_record_has_no_mutable_value_but_dicts(kind: type[JsonRecord]) -> None:
    """The dicts of a record, and of a record in it, are copied for each reader. Their values are immutable."""
    assert kind.model_config["frozen"]
    assert [f"{name}: {one}" for name, field in kind.model_fields.items() for one in mutable(field.annotation, top=True)] == []


def mutable(annotation: Any, *, top: bool = False) -> Iterator[Any]:
    """Yield the types of an annotation whose values a reader can change, without the dicts that are copied for each reader. `top`:
    whether the annotation is that of a field.
    """
    origin, of = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, FieldInfo):
        annotation = annotation.annotation
    if origin is Annotated:
        yield from mutable(of[0], top=top)
    elif origin is Literal or annotation is Ellipsis:
        return
    elif origin is tuple or (top and origin is dict):
        for one in of:
            yield from mutable(one)
    elif of:  # a union; a record in it is copied if it has dicts
        for one in of:
            yield from mutable(one, top=top)
    elif isinstance(annotation, type):
        if issubclass(annotation, JsonRecord):
            if not top and _dicts(annotation):
                yield annotation  # dicts of records in a tuple or in a dict are not copied
        elif dataclasses.is_dataclass(annotation):
            if not annotation.__dataclass_params__.frozen:  # type: ignore[attr-defined]
                yield annotation
        elif not issubclass(annotation, str | int | float | bytes | Decimal | NoneType | enum.Enum | tuple):
            yield annotation
    else:
        yield annotation
