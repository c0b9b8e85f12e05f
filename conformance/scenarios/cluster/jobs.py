"""How the jobs of this suite run: from the wheel alone, with a record of Spark's application id."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import txnsegment

SCRIPT = """\
import runpy, sys
module = sys.argv.pop(1)
sys.argv[0] = module
runpy.run_module(module, run_name="__main__")
"""
"""What `spark-submit` gets: it runs a module of the wheel, so that no folder of ours is on the path of Python."""


def announce(words: argparse.Namespace) -> SparkSession:
    """Return the session of a job, whose environment must have the wheel. Write its application's id to `MARKS/application`."""
    if not txnsegment.__file__.startswith(sys.prefix):
        raise RuntimeError(f"txnsegment comes from {txnsegment.__file__} and not from the wheel in {sys.prefix}")
    spark: SparkSession = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    identity = spark.sparkContext.applicationId
    made = Path(words.marks) / ".application"
    made.write_text(str(identity))
    made.rename(made.with_name("application"))
    return spark
