"""What a cluster and this machine need, checked one after the other, each with the next step: for `txnsegment doctor`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from metadata.backup.record_kinds import damaged
from metadata.client.transactions import overdue
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.errors import ConfigurationError, CorruptRecord, StorageError, TxnSegmentError
from metadata.records import paths
from txnsegment.java import find_java

LONG_LOG = 10_000
"""Registrations that wait in the live log: far more than committers leave when anything sweeps."""


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: `next_step` is empty when there is nothing to do."""

    check: str
    health: Health
    message: str
    next_step: str = ""


def examine(service_url: str | None) -> Iterator[Finding]:
    """Every check in order; what needs the store is left out once that cannot be opened. Changes nothing but one small file in
    the ledger storage, which it deletes again. Makes no cluster.
    """
    yield _tried("java", _java)
    yield _tried("spark", _spark)
    yield _tried("door", _door)
    try:
        cluster = open_cluster(service_url, create=False)
    except TxnSegmentError as error:
        which = "storage" if isinstance(error, StorageError) else "store"
        yield Finding(which, Health.FAIL, error.message, error.advice)
        return
    try:
        for name, check in (
            ("store", _store),
            ("storage", _storage),
            ("clock", _clock),
            ("transactions", _transactions),
            ("log", _log),
            ("records", _records),
        ):
            yield _tried(name, partial(check, name, cluster))
    finally:
        cluster.close()


def _tried(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except TxnSegmentError as error:
        return Finding(name, Health.FAIL, error.message, error.advice)


def _java() -> Finding:
    return Finding("java", Health.OK, f"{find_java()}, 17 or newer")


def _spark() -> Finding:
    try:
        found = version("pyspark")
    except PackageNotFoundError as error:
        raise ConfigurationError("PySpark is not installed.", advice="pip install 'pyspark>=4.2,<5'") from error
    numbers = tuple(int(n) for n in re.findall(r"\d+", found)[:2])
    if not (4, 2) <= numbers < (5, 0):
        raise ConfigurationError(
            f"PySpark {found} is installed; txnsegment needs 4.2 or newer of version 4.", advice="pip install 'pyspark>=4.2,<5'"
        )
    return Finding("spark", Health.OK, f"PySpark {found}")


def _door() -> Finding:
    if find_spec("pyspark_txnsegment") is None:
        raise ConfigurationError(
            "Spark will not find the format txnsegment: the module pyspark_txnsegment is not on the path of this Python.",
            advice="Install the wheel into the Python of Spark's driver and executors (pip install txnsegment).",
        )
    return Finding("door", Health.OK, 'format("txnsegment") is found by this Python')


def _store(name: str, cluster: Cluster) -> Finding:
    begun = cluster.clock.monotonic()
    cluster.store.view().get(paths.CLUSTER)
    return Finding(name, Health.OK, f"{cluster.url} answers in {(cluster.clock.monotonic() - begun) * 1000:.1f} ms")


def _storage(name: str, cluster: Cluster) -> Finding:
    path, content = f"doctor-{cluster.unique()}", b"written by txnsegment doctor"
    cluster.storage.publish(path, content)
    try:
        if cluster.storage.read(path) != content:
            raise StorageError(
                f"{cluster.storage.uri} gives back other bytes than were written.", advice="Do not use this storage."
            )
    finally:
        cluster.storage.delete(path)  # nobody can refer to it: its name was never given away
    return Finding(name, Health.OK, f"{cluster.storage.uri} can be written and read")


def _clock(name: str, cluster: Cluster) -> Finding:
    """All deadlines are judged by the store's clock; the offset only tells how far this machine's timestamps can be trusted."""
    before = cluster.clock.now_ms()
    theirs = cluster.store.view().now_ms()
    ours = (before + cluster.clock.now_ms()) // 2
    offset, allowance = ours - theirs, cluster.settings.deadline_allowance_ms
    message = f"this machine is {offset:+d} ms from the store's clock (allowance {allowance} ms)"
    step = "Keep both in step (NTP): file ages are read by this offset when orphans are swept."
    if abs(offset) > allowance:
        return Finding(name, Health.FAIL, message, step)
    return Finding(name, Health.WARN, message, step) if abs(offset) > allowance // 2 else Finding(name, Health.OK, message)


def _transactions(name: str, cluster: Cluster) -> Finding:
    count, late = overdue(cluster)
    if late:
        listed = ", ".join(late[:5]) + (", ..." if len(late) > 5 else "")
        return Finding(
            name,
            Health.WARN,
            f"{len(late)} of {count} OPEN transactions are past their deadline: {listed}",
            "End them: txnsegment sweep --once. If they come again, look for drivers that die while they commit.",
        )
    return Finding(name, Health.OK, f"{count} are OPEN, none is past its deadline")


def _log(name: str, cluster: Cluster) -> Finding:
    waiting = len(cluster.store.view().keys(paths.LOG.range()))
    if waiting > LONG_LOG:
        return Finding(
            name,
            Health.WARN,
            f"{waiting} registrations wait to be folded",
            "Run txnsegment sweep --every 10s; an OPEN transaction or an unsettled one may hold folding back.",
        )
    return Finding(name, Health.OK, f"{waiting} registrations in the live log")


def _records(name: str, cluster: Cluster) -> Finding:
    found = list(damaged(cluster.store.view()))
    broken = [error for error in found if isinstance(error, CorruptRecord)]
    foreign = [path for path in found if isinstance(path, str)]
    if broken:
        return Finding(
            name,
            Health.FAIL,
            f"{len(broken)} records cannot be read; the first: {broken[0].message}",
            broken[0].advice,
        )
    if foreign:
        return Finding(
            name,
            Health.WARN,
            f"{len(foreign)} records are none of txnsegment's, such as {foreign[0]!r:.200}",
            "Something else writes into this store: give it a folder or chroot of its own.",
        )
    return Finding(name, Health.OK, "all records can be read")
