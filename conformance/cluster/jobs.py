"""What the jobs of this suite have in common: their arguments, their session, their orderly end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import txnsegment

SCRIPT = """\
import runpy, sys
module = sys.argv.pop(1)
sys.argv[0] = module
runpy.run_module(module, run_name="__main__")
"""
"""What `spark-submit` gets: it runs a module of the wheel, so that no folder of ours is on the path of Python."""
LOOK_SECONDS = 0.2


def given(program: str, *names: str) -> argparse.Namespace:
    """The words of a job: each `--name` is required."""
    arguments = argparse.ArgumentParser(prog=program)
    for name in names:
        arguments.add_argument(f"--{name}", required=True)
    return arguments.parse_args()


def announce(words: argparse.Namespace) -> SparkSession:
    """The session of a job, in an environment that has the wheel; its application's id goes to `MARKS/application`."""
    if not txnsegment.__file__.startswith(sys.prefix):
        raise RuntimeError(f"txnsegment comes from {txnsegment.__file__} and not from the wheel in {sys.prefix}")
    spark: SparkSession = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    identity = spark.sparkContext.applicationId
    made = Path(words.marks) / ".application"
    made.write_text(str(identity))
    made.rename(made.with_name("application"))
    return spark


def run_until(stop: Path, query: StreamingQuery) -> None:
    """Until `stop` exists and all input was processed. Raises what ended the query."""
    while not stop.exists():
        query.awaitTermination(LOOK_SECONDS)
        if not query.isActive:
            raise RuntimeError(f"the query {query.id} has ended without an error")
    query.processAllAvailable()
    query.stop()
