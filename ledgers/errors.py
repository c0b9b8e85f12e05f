"""The root error of the project. Everything that txnsegment raises on purpose is a `TxnSegmentError`.

It stands in the lowest room because every room raises; `metadata.common.errors` has the errors of the protocol.
Each message says which option, topic, segment, file or transaction is meant, what happened, and what to do next.
"""

from __future__ import annotations

from ledgers.plain_text import shown


class TxnSegmentError(Exception):
    """What happened (`message`) and what to do next (`advice`). `str()` gives both.

    Messages name topics, columns and files of others, and end in terminals and logs: what is harmful there is escaped.
    """

    def __init__(self, message: str, *, advice: str = "") -> None:
        self.message = shown(message, lines=True)
        self.advice = shown(advice, lines=True)
        super().__init__(self.message, self.advice)

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.message, self.advice)

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".rstrip()


def _again(kind: type[TxnSegmentError], message: str, advice: str) -> TxnSegmentError:
    """Errors cross processes pickled (Spark's workers raise them)."""
    return kind(message, advice=advice)


class StorageError(TxnSegmentError):
    """The ledger storage could not be reached, read or written (missing folder, read-only or full disk)."""


class MissingFile(StorageError):
    """A file that something refers to is not there."""


class CorruptPart(TxnSegmentError):
    """A part is damaged, short or missing: it does not match its registration (rows, bytes, footer CRC, pages)."""


class CorruptSnapshot(TxnSegmentError):
    """An index snapshot file is damaged, short or missing."""


class SchemaError(TxnSegmentError):
    """A column's type cannot be kept in a topic, or does not fit what the topic has. Names column and types."""


class ValueFormatError(TxnSegmentError):
    """A `value` is not Avro of the topic's schema, or a row cannot be written as such. Names the topic and the row."""
