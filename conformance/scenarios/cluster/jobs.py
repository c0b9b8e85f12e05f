"""The beginning of each job of the suite. A job imports only code of the wheel, and records its Spark application id."""

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
"""The script that `spark-submit` gets. It runs a module of the wheel. If the script were a file of the source tree, Python would
put that file's folder on its path.
"""


def announce(words: argparse.Namespace) -> SparkSession:
    """Return the Spark session of a job. Write its application id to `MARKS/application`. Raises RuntimeError if txnsegment is not
    imported from the wheel.
    """
    if not txnsegment.__file__.startswith(sys.prefix):
        raise RuntimeError(f"txnsegment comes from {txnsegment.__file__} and not from the wheel in {sys.prefix}")
    spark: SparkSession = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    identity = spark.sparkContext.applicationId
    made = Path(words.marks) / ".application"
    made.write_text(str(identity))
    made.rename(made.with_name("application"))
    return spark
