"""How large the columns of a topic may be: beyond each of these a schema is refused before anything is made of it."""

from __future__ import annotations

from typing import Final

MAX_LEVELS: Final = 40
"""Structs, arrays and maps in each other. An Avro schema's JSON takes four levels for each, and `ledgers.json_text` reads 200."""
MAX_FIELDS: Final = 10_000
"""Columns and all that is in them, each record counted wherever its name stands: twins of twins double with every level."""
MAX_SCHEMA_BYTES: Final = 768 * 1024
"""Of an Avro schema's text: a version of a topic's schema is one record."""
MAX_FIXED_BYTES: Final = 2**20
"""Of a fixed. It has one byte at least: of values without bytes an array could have any number."""
MAX_DECIMAL_BYTES: Final = 64
"""Of a decimal's bytes. 38 digits take 16; what is more are repeated signs."""
MAX_NAME: Final = 1024
"""Characters of a name."""
