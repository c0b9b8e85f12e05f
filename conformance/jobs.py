"""Functions that the suites' Spark jobs share: they parse the arguments and end a query. Each job is a separate program."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

LOOK_SECONDS = 0.2


def given(program: str, *names: str) -> argparse.Namespace:
    """Return the arguments of a job. For each name, the option `--name` is required."""
    arguments = argparse.ArgumentParser(prog=program)
    for name in names:
        arguments.add_argument(f"--{name}", required=True)
    return arguments.parse_args()


def run_until(stop: Path, query: StreamingQuery) -> None:
    """Wait until the file `stop` exists. Then let the query process all input, and stop the query. Raises the error that ended the
    query before, or RuntimeError if the query ended without an error.
    """
    while not stop.exists():
        query.awaitTermination(LOOK_SECONDS)
        if not query.isActive:
            raise RuntimeError(f"the query {query.id} has ended without an error")
    query.processAllAvailable()
    query.stop()
