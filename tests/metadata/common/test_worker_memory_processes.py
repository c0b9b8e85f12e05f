"""Spark's Python workers run a full garbage collection after each task, each plan and each commit. It must skip what the imports of
txnsegment have made, because it would take longer than the task of a small write.
"""

from __future__ import annotations

import os
import subprocess
import sys

from metadata.common.workers import RUNTIME

WORKER = dict([RUNTIME])


def printed(program: str, environment: dict[str, str]) -> list[str]:
    """Return the words that a program prints in a process of its own. `environment`: variables in addition to those of this one."""
    plain = {name: value for name, value in os.environ.items() if name != RUNTIME[0]}
    ran = subprocess.run([sys.executable, "-c", program], env=plain | environment, capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_a_worker_of_spark_skips_what_existed_at_the_first_call_and_nothing_later() -> None:
    program = """
import gc
from metadata.common.workers import spare_imports
print(spare_imports(), len(gc.get_objects()) < 100)
count = gc.get_freeze_count()
later = [[] for _ in range(1000)]
print(spare_imports(), gc.get_freeze_count() == count > 0, len(gc.get_objects()) > 1000)
"""
    assert printed(program, WORKER) == ["True", "True", "False", "True", "True"]


def test_a_later_call_skips_the_modules_that_were_imported_after_the_first_one() -> None:
    program = """
import gc
from metadata.common.workers import spare_imports
spare_imports()
import pandas
before = len(gc.get_objects())
print(before > 10_000, spare_imports(), len(gc.get_objects()) < 100, spare_imports())
"""
    assert printed(program, WORKER) == ["True", "True", "True", "False"]


def test_the_program_of_a_user_keeps_its_garbage_collections() -> None:
    program = """
import gc
from metadata.common.workers import spare_imports
print(spare_imports(), gc.get_freeze_count())
"""
    assert printed(program, {}) == ["False", "0"]


def test_the_processes_that_plan_and_commit_skip_the_imports_of_the_writer() -> None:
    program = """
import gc
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_txnsegment import DefaultSource
source = DefaultSource({"serviceUrl": "pulsar://127.0.0.1:1", "topic": "t"})
source.streamWriter(StructType([StructField("value", BinaryType())]), False)
print(gc.get_freeze_count() > 10_000)
"""
    assert printed(program, WORKER) == ["True"]
