"""The limit of a micro-batch that the options of a stream give."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows


def default_limit(max_rows: int | None, max_bytes: int | None) -> ReadLimit:
    """Return the limit that Spark passes to each plan. If both are given, the plan itself applies the lower one."""
    if max_rows is not None:
        return ReadMaxRows(max_rows)
    if max_bytes is not None:
        return ReadMaxBytes(max_bytes)
    return ReadAllAvailable()
