"""The root error of the project: every error that txnsegment raises deliberately is a `TxnSegmentError`.

This class is in the lowest package, because all packages raise it. `metadata.common.errors` has the errors of the protocol. Each
message names the option, topic, segment, file or transaction, what happened, and what to do next.
"""

from __future__ import annotations

from ledgers.plain_text import shown


class TxnSegmentError(Exception):
    """An error: what happened (`message`) and what to do next (`advice`). `str()` returns both.

    Messages contain names from other users and end in terminals and logs, so harmful characters are escaped.
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
    """Build an error from its pickled parts. Spark's workers pickle errors, to pass them to other processes."""
    return kind(message, advice=advice)


class StorageError(TxnSegmentError):
    """The ledger storage could not be reached, read or written (missing folder, read-only or full disk).

    Next: check the volume, its free space, the network and the credentials, and run the operation again.
    """


class MissingFile(StorageError):
    """A file that a record or snapshot names does not exist.

    Next: check whether the volume is mounted and who deletes files there. Restore the file from a copy.
    """


class CorruptPart(TxnSegmentError):
    """A part is damaged, short or missing: it does not match its registration (rows, bytes, footer CRC, pages).

    Next: `txnsegment verify` names every damaged part of a topic. Restore these files from a copy.
    """


class CorruptSnapshot(TxnSegmentError):
    """An index snapshot file is damaged, short or missing.

    Next: restore the file from a copy. A sweep tries the segment again.
    """


class SchemaError(TxnSegmentError):
    """A column's type cannot be stored in a topic, or does not fit the topic's type. The error names the column and the types.

    Next: cast or rename the column that the message names, or register a schema that allows it.
    """


class ValueFormatError(TxnSegmentError):
    """A `value` is not Avro of the topic's schema, or a row cannot be encoded in that schema. The error names the topic and the
    row.

    Next: write the value in the topic's schema, or read with the schema version it was written with (`schemaVersion`).
    """
