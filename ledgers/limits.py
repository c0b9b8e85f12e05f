"""Limits of a topic's columns. A schema that exceeds a limit is refused before it is processed."""

from __future__ import annotations

from typing import Final

MAX_LEVELS: Final = 40
"""Maximum nesting of structs, arrays and maps. The JSON of an Avro schema takes four levels for each of these, and
`ledgers.json_text` accepts 200 levels of JSON.
"""
MAX_FIELDS: Final = 10_000
"""Maximum number of columns and nested fields. The fields of a named record count once for each use of the record. So if each
record uses another record twice, the number of fields doubles with every level.
"""
MAX_SCHEMA_BYTES: Final = 768 * 1024
"""Maximum length of an Avro schema's text. It is the limit of a record, because each version of a topic's schema is one record."""
MAX_FIXED_BYTES: Final = 2**20
"""Maximum size in bytes of a value of Avro's type fixed. The minimum is one byte, because an array could have any number of values
of zero bytes.
"""
MAX_DECIMAL_BYTES: Final = 64
"""Maximum number of bytes of a decimal. A decimal of 38 digits takes 16 bytes. Further bytes only repeat the sign."""
MAX_NAME: Final = 1024
"""Maximum number of characters of a name."""
