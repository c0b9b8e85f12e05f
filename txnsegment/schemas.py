"""Converts Arrow schemas to Spark schemas, for batches that a plain Python program gives."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from ledgers.errors import SchemaError


def from_arrow(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema. Timestamps without a zone become `timestamp_ntz`.

    Raises SchemaError, which names the column, for a type that Spark does not have. A Spark type that a topic cannot keep is
    refused later, by `ledgers.schema.check_writable`.
    """
    return StructType([_column(field) for field in schema])


def _column(field: pa.Field) -> StructField:
    try:
        if pa.types.is_decimal(field.type) and not 0 <= field.type.scale <= field.type.precision <= 38:
            raise ValueError("a decimal has at most 38 digits, and a scale from 0 to that number")
        (found,) = from_arrow_schema(pa.schema([field.with_type(_plain(field.type))]), prefer_timestamp_ntz=True)
    except (PySparkException, TypeError, ValueError) as error:
        raise SchemaError(
            f"The column {field.name} has the Arrow type {field.type}, which Spark does not have.",
            advice="Cast it before appending, e.g. unsigned integers to the next larger signed type.",
        ) from error
    return StructField(found.name, found.dataType, found.nullable)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without dictionary or view encoding, which `ledgers.arrow.conform` removes from the values."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind
