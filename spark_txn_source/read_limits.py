"""Computes the limit of a micro-batch from the options of its stream."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows


def default_limit(max_rows: int | None, max_bytes: int | None, min_rows: int | None = None) -> ReadLimit:
    """Return the limit that Spark passes to each plan. If several are given, return one of them: the plan itself applies all. Only
    `Trigger.Once` passes `ReadAllAvailable` in its place.
    """
    if max_rows is not None:
        return ReadMaxRows(max_rows)
    if max_bytes is not None:
        return ReadMaxBytes(max_bytes)
    if min_rows is not None:
        return ReadMinRows(min_rows)
    return ReadAllAvailable()
