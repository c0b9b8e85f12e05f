"""Conversion of records to bytes and back. The bytes are JSON as Apache Pulsar 5.0 writes it (protocol.md section 4).

Fields that are null are left out. The fields are in the order of their declaration. Unknown fields survive a rewrite.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from types import UnionType
from typing import Annotated, Any, Final, Self, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledgers.json_text import read_json
from metadata.common.errors import CorruptRecord
from metadata.records.stored import Record


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(w.capitalize() for w in rest)


def _decimal(value: Decimal) -> str:
    return format(value, "f") if value.is_finite() else "null"


_SCALARS: dict[type, Callable[[Any], str]] = {str: encode_basestring, int: int.__repr__, Decimal: _decimal}
"""The encoders of the most frequent types. The json module would take five times as long for these types."""


def _emit(value: Any) -> str:
    """Encode a value as JSON. A Decimal keeps all its digits, while the json module would convert it to float."""
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar(value)
    try:
        return _ENCODER.encode(value)  # most values contain no Decimal
    except TypeError:
        if isinstance(value, dict):
            return "{" + ",".join(f"{encode_basestring(k)}:{_emit(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ",".join(map(_emit, value)) + "]"
        raise


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


RECORD_ADVICE: Final = (
    "The record is damaged, or another program wrote it: restore the metadata store from a backup (txnsegment restore)."
)
Whole = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
"""A whole number in a record, in the range of a Java long. Texts, floats and booleans are refused."""
Number = Annotated[Whole, Field(ge=0)]
"""A whole number that occurs in keys: a number of a log or of another sequence, or a schema version."""

KNOWN: Final = 1024
KNOWN_BYTES: Final = 2048
"""A process remembers this many parsed records, each of at most this many bytes of JSON, because it reads most records repeatedly,
and parsing takes most of the time of a read. The records that it remembers take 10 MB at most.
"""


class JsonRecord(BaseModel):
    """A record with its JSON form. Immutable: a change is a `model_copy(update=...)`."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        alias_generator=_camel,
        populate_by_name=True,
        arbitrary_types_allowed=True,
        defer_build=True,  # Spark starts a process for every plan and commit, and each uses only a few record types
    )

    def to_bytes(self) -> bytes:
        fields = self.model_dump(by_alias=True, exclude_none=True)
        return ("{" + ",".join(f"{encode_basestring(k)}:{_emit(v)}" for k, v in fields.items()) + "}").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse a record. Raises CorruptRecord."""
        if len(data) > KNOWN_BYTES:
            return cls._parsed(data)
        return cast("Self", _apart(_known(cls, data)))

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        try:
            return cls.model_validate(read_json(data, decimals=True))
        except (ValueError, ValidationError) as error:
            raise CorruptRecord(f"Not a {cls.__name__} record: {data[:200]!r} ({why(error)}).", advice=RECORD_ADVICE) from error

    @classmethod
    def of(cls, record: Record) -> Self:
        """Parse a stored record. Raises CorruptRecord that names the key."""
        try:
            return cls.from_bytes(record.value)
        except CorruptRecord as error:
            raise CorruptRecord(f"{record.key.path}: {error.message}", advice=error.advice) from error


@lru_cache(maxsize=KNOWN)
def _known(kind: type[JsonRecord], data: bytes) -> JsonRecord:
    return kind._parsed(data)


def _apart(record: JsonRecord) -> JsonRecord:
    """Return the record. If it has dicts, or records with dicts, return a copy: a caller that changes a dict changes only its copy.
    All other values of records are immutable.
    """
    names = _dicts(type(record))
    if not names:
        return record
    copied = record.model_copy()
    for name in names:
        value = copied.__dict__[name]
        if value is not None:
            copied.__dict__[name] = _apart(value) if isinstance(value, JsonRecord) else dict(value)
    return copied


@lru_cache(maxsize=256)
def _dicts(kind: type[JsonRecord]) -> tuple[str, ...]:
    """Return the names of the fields that have a dict, or a record with dicts."""
    return tuple(name for name, field in kind.model_fields.items() if any(map(_has_dict, _alternatives(field.annotation))))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _has_dict(annotation: Any) -> bool:
    if get_origin(annotation) is dict:
        return True
    return isinstance(annotation, type) and issubclass(annotation, JsonRecord) and bool(_dicts(annotation))


def why(error: ValueError) -> str:
    """Return a text that describes the first three problems of a failed validation, without the input values."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    listed = [": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"]))) for one in found[:3]]
    return "; ".join(listed) + ("; ..." if len(found) > 3 else "")
