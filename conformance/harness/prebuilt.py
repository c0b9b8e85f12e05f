"""Everything that a forked process of a suite would otherwise load or build itself. Processes that fork many others import this
module last, after all modules that their children need.

A record type is built at its first use (`metadata.records.json_records`), and stores and metrics are imported at their first use.
Both take a part of the time of a process that reads or commits once. At the end this module freezes the garbage collector: without
it, a collection in a child would copy all memory that the child shares with its parent.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib import import_module

from metadata.records.json_records import JsonRecord

for name in (
    "metadata.store.sqlite",
    "metadata.store.zookeeper",
    "pyarrow.pandas_compat",
    "pydantic.dataclasses",
    "spark_txn_source.batch",
    "spark_txn_source.providers",
    "spark_txn_source.schema_checks",
    "spark_txn_source.stream",
):
    import_module(name)
if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:  # prometheus_client chooses the kind of its metrics when it is imported
    import_module("prometheus_client")


def record_types(base: type[JsonRecord] = JsonRecord) -> Iterator[type[JsonRecord]]:
    """Yield all types of records of the imported modules."""
    for one in base.__subclasses__():
        yield one
        yield from record_types(one)


for record_type in record_types():
    record_type.model_rebuild()
gc.collect()
gc.freeze()
