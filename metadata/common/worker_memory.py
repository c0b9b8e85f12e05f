"""Keeps the garbage collections of Spark's Python workers short.

A worker of Spark runs a full garbage collection after each task, each plan and each commit. A collection visits all objects of the
process. Most of them belong to imported modules, and live as long as the process. With the modules of txnsegment, pyarrow and
pyspark a collection takes some 40 ms of processor time, three times for each micro-batch of a stream.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from typing import Final

RUNTIME: Final = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
"""The variable that Spark sets in its Python workers, and its value."""


_spared = 0
"""How many modules this process had imported at the last call that did something."""


def spare_imports(environment: Mapping[str, str] = os.environ) -> bool:
    """Let later garbage collections of a Spark worker skip all objects that exist now. Return whether this was done: it is done at
    the first call in a worker, and at each call after further modules were imported. Spark and pyarrow import some modules, such as
    pandas, only during the first task. In any other program, such as a driver of the user, nothing is done.

    An object that is skipped is still freed when its last reference goes. Only cycles of such objects stay.
    """
    global _spared
    name, worker = RUNTIME
    if environment.get(name) != worker or len(sys.modules) <= _spared:
        return False
    _spared = len(sys.modules)
    gc.freeze()
    return True
