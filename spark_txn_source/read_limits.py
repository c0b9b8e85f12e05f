"""Computes the limit of a micro-batch from the options of its stream."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows


def default_limit(max_rows: int | None, max_bytes: int | None) -> ReadLimit:
    """Return the limit that Spark passes to each plan. If `max_rows` and `max_bytes` are both given, return the limit of rows. The
    plan itself then applies both limits.
    """
    if max_rows is not None:
        return ReadMaxRows(max_rows)
    if max_bytes is not None:
        return ReadMaxBytes(max_bytes)
    return ReadAllAvailable()
