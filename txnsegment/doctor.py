"""The checks of `txnsegment doctor`. They examine a cluster and this machine. Each finding names the next step."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from metadata.backup.record_kinds import damaged
from metadata.client.transactions import overdue
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.errors import ConfigurationError, CorruptRecord, StorageError, TxnSegmentError
from metadata.common.service import VARIABLE
from metadata.records import paths
from pulsar_protocol.schemes import is_pulsar
from txnsegment.findings import Finding as Finding
from txnsegment.findings import Health as Health
from txnsegment.findings import tried
from txnsegment.java import find_java

LOOK_UP_SECONDS = 60
"""The longest time that `doctor` waits for a new process of Spark's Python."""
_LOOK_UP = "import sys, pyspark_txnsegment as door; door.check_packages(); print(sys.executable)"
_SET_PYTHON = (
    "Spark starts the Python that the variable PYSPARK_PYTHON names, otherwise python3 of the PATH: activate the environment that "
    "has txnsegment, or set PYSPARK_PYTHON to its bin/python. On a cluster the executors need txnsegment, too."
)
LONG_LOG = 10_000
"""Number of registrations in the live log above which `doctor` warns. Committers and sweepers leave far fewer."""


def examine(service_url: str | None) -> Iterator[Finding]:
    """Run all checks in order, and yield their findings. If the store cannot be opened, the checks that need it are left out. A
    Pulsar cluster has checks of its own (`txnsegment.pulsar.doctor`).

    The checks write one small file to the ledger storage and delete it again. They change nothing else, and create no cluster.
    """
    yield tried("java", _java)
    yield tried("spark", _spark)
    yield tried("door", _door)
    url = service_url if service_url is not None else os.environ.get(VARIABLE, "")
    if is_pulsar(url):
        from txnsegment.pulsar.doctor import examine as examine_pulsar

        yield from examine_pulsar(url)
        return
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
            yield tried(name, partial(check, name, cluster))
    finally:
        cluster.close()


def watch(cluster: Cluster) -> list[Finding]:
    """Run the checks of a cluster that write nothing and read little, for programs that repeat them. `examine` also writes to the
    storage, and reads every record.
    """
    checks = (("store", _store), ("storage", _root), ("clock", _clock), ("transactions", _transactions), ("log", _log))
    return [tried(name, partial(check, name, cluster)) for name, check in checks]


def _root(name: str, cluster: Cluster) -> Finding:
    cluster.check_root()
    return Finding(name, Health.OK, f"{cluster.storage.uri} can be read, and belongs to this cluster")


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
    """Look for the format as Spark does: in a new process of the Python that Spark starts, from the current folder."""
    python = os.environ.get("PYSPARK_PYTHON") or "python3"
    try:
        found = subprocess.run([python, "-c", _LOOK_UP], capture_output=True, text=True, check=False, timeout=LOOK_UP_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"Spark cannot start its Python, {python}: {error}.", advice=_SET_PYTHON) from error
    if found.returncode == 0:
        return Finding("door", Health.OK, f'format("txnsegment") is found by {found.stdout.strip()} in {Path.cwd()}')
    lines = [line for line in found.stderr.splitlines() if line.strip()]
    why = lines[-1] if lines else f"exit code {found.returncode}"
    raise ConfigurationError(f"Spark will not find the format txnsegment. Its Python, {python}, says: {why}", advice=_SET_PYTHON)


def _store(name: str, cluster: Cluster) -> Finding:
    begun = cluster.clock.monotonic()
    cluster.store.view().get(paths.CLUSTER)
    return Finding(name, Health.OK, f"{cluster.url} answers in {(cluster.clock.monotonic() - begun) * 1000:.1f} ms")


def _storage(name: str, cluster: Cluster) -> Finding:
    path, content = f"doctor-{cluster.unique()}", b"written by txnsegment doctor"
    cluster.storage.publish(path, content)
    try:
        if cluster.storage.read(path) != content:
            raise StorageError(f"{cluster.storage.uri} returns other bytes than were written.", advice="Do not use this storage.")
    finally:
        cluster.storage.delete(path)  # safe, because no other process knows the file's name
    return Finding(name, Health.OK, f"{cluster.storage.uri} can be written and read")


def _clock(name: str, cluster: Cluster) -> Finding:
    """Compare this machine's clock with the store's clock. Deadlines depend on the store's clock alone. But the orphan sweep
    compares file times with the store's clock, so a difference makes files look older or younger than they are.
    """
    before = cluster.clock.now_ms()
    theirs = cluster.store.view().now_ms()
    ours = (before + cluster.clock.now_ms()) // 2
    offset, allowance = ours - theirs, cluster.settings.deadline_allowance_ms
    message = f"this machine is {offset:+d} ms from the store's clock (allowance {allowance} ms)"
    step = "Keep both in step (NTP): the orphan sweep compares the times of files with the store's clock."
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
            "Abort them: txnsegment sweep --once. If there are new ones again, look for drivers that die while they commit.",
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
            f"{len(foreign)} records do not belong to txnsegment, such as {foreign[0]!r:.200}",
            "Another program writes to this store: give each its own folder or chroot.",
        )
    return Finding(name, Health.OK, "all records can be read")
