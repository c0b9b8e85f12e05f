"""Keeps the garbage collections of Spark's Python workers short.

A worker of Spark runs a full garbage collection after each task, each plan and each commit. A collection visits all objects of the
process. Most of them belong to imported modules, and live as long as the process. With the modules of txnsegment, pyarrow and
pyspark a collection takes some 40 ms of processor time, three times for each micro-batch of a stream.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Final

RUNTIME: Final = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
"""The variable that Spark sets in its Python workers, and its value."""


def spare_imports(environment: Mapping[str, str] = os.environ) -> bool:
    """Let later garbage collections of a Spark worker skip all objects that exist now. Return whether this was done: the first call
    in a worker does it, a later call does not, and neither does a call in another program, such as a driver of the user. Call it
    when the modules are imported.

    An object that is skipped is still freed when its last reference goes. Only cycles of such objects stay.
    """
    name, worker = RUNTIME
    if environment.get(name) != worker or gc.get_freeze_count():
        return False
    gc.freeze()
    return True
