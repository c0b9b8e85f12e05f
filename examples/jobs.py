"""What the examples share: Spark jobs in processes of their own, SIGKILL in the middle of a commit, and what is checked then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from txnsegment import Cluster

console = Console(highlight=False)
Start = Callable[[int], AbstractContextManager[subprocess.Popen[bytes]]]
"""Starts a job for the n-th time."""


def session(name: str, service_url: str) -> SparkSession:
    """A small Spark whose default cluster is at this URL."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["TXNSEGMENT_SERVICE_URL"] = service_url  # the driver's JVM is started with it
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# --- processes ------------------------------------------------------------------------------------------------------


@contextmanager
def job(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process group of its own; what Spark prints goes into a file. It may be killed; any other end but a good one
    ends us, too.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                kill(process_groups(process.pid))
                process.wait()
    if process.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"{log.stem} ended with {process.returncode}:\n{log.read_text(errors='replace')[-4000:]}")


def process_groups(pid: int) -> set[int]:
    """The groups of a process and of everything below it: Spark's JVM, and its Python workers, which make groups of their own."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid="], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in listed.splitlines()]
    family, grew = {pid}, True
    while grew:
        below = {child for child, parent, _ in rows if parent in family}
        grew = not below <= family
        family |= below
    return {group for member, _, group in rows if member in family}


def kill(groups: set[int]) -> None:
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue  # the group's last process has ended by itself


def kill_when(process: subprocess.Popen[bytes], due: Callable[[], bool], *, pause: float = 0.0) -> bool:
    """SIGKILL to a job and all below it as soon as `due`, looking every `pause` seconds. False: it had ended before."""
    groups, known_at = process_groups(process.pid), time.monotonic()
    while not due():
        if process.poll() is not None:
            return False
        if time.monotonic() - known_at > 0.5:
            groups, known_at = process_groups(process.pid), time.monotonic()
        time.sleep(pause)
    kill(groups)  # at once: a commit takes some ms only
    process.wait()
    return True


def kill_in_a_commit(cluster: Cluster, process: subprocess.Popen[bytes], after: int) -> str | None:
    """Wait for `after` commits, then for an OPEN transaction, and kill. The id of the transaction if it stayed OPEN.

    None: the job was faster, and the transaction was committed before the signal arrived.
    """
    while len(cluster.transactions.list("COMMITTED")) < after:
        if process.poll() is not None:
            return None
        time.sleep(0.05)
    found: list[str] = []

    def one_is_open() -> bool:
        found.extend(txn.id for txn in cluster.transactions.list("OPEN"))
        return bool(found)

    killed = kill_when(process, one_is_open)
    return found[0] if killed and cluster.transactions.get(found[0]).state == "OPEN" else None


def run_and_kill(cluster: Cluster, start: Start, after: Sequence[int], *, more_tries: int = 6) -> tuple[int, list[str]]:
    """Run a job to its end, killed in a commit once so many have committed, for each number in `after`. A kill that came just after
    a commit is tried again, so often (`more_tries`; none: it will do). How often it was started, and the transactions that it was
    killed in.
    """
    killed: list[str] = []
    kills = list(after)
    starts = 0
    while True:
        starts += 1
        with start(starts) as process:
            if kills and starts <= len(after) + more_tries:
                txn = kill_in_a_commit(cluster, process, kills[0])
                if process.poll() == 0:
                    sys.exit("The streaming job was done before it could be killed in a commit.")
                committed = len(cluster.transactions.list("COMMITTED"))
                if txn is None:
                    kills = kills if more_tries else kills[1:]
                    again = "; once more" if more_tries else ""
                    console.print(f"start {starts}: SIGKILL came just after a commit ({committed} committed){again}")
                else:
                    killed.append(txn)
                    kills.pop(0)
                    console.print(f"start {starts}: SIGKILL while transaction {txn} was OPEN, {committed} committed before it")
                continue
            process.wait()
        console.print(f"start {starts}: ran to the end, {len(cluster.transactions.list('COMMITTED'))} committed")
        return starts, killed


# --- what came of it ------------------------------------------------------------------------------------------------


def all_right(title: str, checks: Sequence[tuple[str, object, object]]) -> bool:
    """Show what was found beside what was expected: (what, found, expected). Whether all of it is right."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("", "found", "expected", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for name, have, wanted in checks:
        table.add_row(name, shown(have), shown(wanted), "[green]right[/]" if have == wanted else "[bold red]WRONG[/]")
    console.print(table)
    wrong = [name for name, have, wanted in checks if have != wanted]
    if wrong:
        console.print(f"[bold red]WRONG: {'; '.join(wrong)}[/]")
    return not wrong


def shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
