"""What Spark jobs of the suites have in common, each a program of its own: their words, and their orderly end."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

LOOK_SECONDS = 0.2


def given(program: str, *names: str) -> argparse.Namespace:
    """The words of a job: each `--name` is required."""
    arguments = argparse.ArgumentParser(prog=program)
    for name in names:
        arguments.add_argument(f"--{name}", required=True)
    return arguments.parse_args()


def run_until(stop: Path, query: StreamingQuery) -> None:
    """Until `stop` exists and all input was processed. Raises what ended the query."""
    while not stop.exists():
        query.awaitTermination(LOOK_SECONDS)
        if not query.isActive:
            raise RuntimeError(f"the query {query.id} has ended without an error")
    query.processAllAvailable()
    query.stop()
