"""Functions that the examples share. They run Spark jobs in processes of their own, kill a job in a commit, and check results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TypeVar

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from metadata.cluster.cluster import open_cluster
from metadata.records.cluster_records import Settings
from txnsegment import Cluster

console = Console(highlight=False)
T = TypeVar("T")
Start = Callable[[int], AbstractContextManager[subprocess.Popen[bytes]]]
"""A function that starts a job. Its argument counts the starts from 1."""
LOOK_SECONDS = 0.5
"""Seconds between two listings of a job's processes."""
STOP_SECONDS, GO_ON_SECONDS, GIVE_UP_SECONDS = 3.0, 0.1, 60.0
"""In seconds: the longest time for one attempt to stop all processes, the pause before the next attempt, and the time after which
this program gives up and ends.
"""
ENDED = (ProcessLookupError,) if sys.platform == "linux" else (ProcessLookupError, PermissionError)
"""The errors that killpg raises when all processes of a group have ended. On systems other than Linux it raises PermissionError if
a process has ended and its parent has not waited for it yet.
"""


def ended_by_sigterm() -> None:
    """Let SIGTERM end this program as Ctrl-C does, so that `job` ends the processes of a running job."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def make_cluster(service_url: str) -> None:
    """Create a cluster that lists ended transactions for a day, not for 15 minutes, because the example counts them."""
    open_cluster(service_url, settings=Settings(header_retention_ms=86_400_000)).close()


def session(name: str, service_url: str) -> SparkSession:
    """Return a small Spark session whose default cluster has this URL."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["TXNSEGMENT_SERVICE_URL"] = service_url  # the driver's JVM takes the service URL from its environment
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
    """Run a command in a process group of its own. Spark's output goes into a file. The command may be killed by SIGKILL. Any other
    failure of the command ends this program, too.
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
                running = Processes(process.pid)
                with running.stopped():
                    running.kill()
                process.wait()
    if process.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"{log.stem} ended with {process.returncode}:\n{log.read_text(errors='replace')[-4000:]}")


class Processes:
    """The processes of a job: its first process and all processes that descend from it, as a list of process groups. The group of
    the first process includes Spark's JVM. Spark's Python workers have groups of their own.
    """

    def __init__(self, first: int) -> None:
        self._groups = [first]

    def look(self) -> set[int]:
        """Add the groups of new descendants to the list. Return the groups in which a thread is neither stopped nor ended."""
        # -L makes ps list threads. On other systems -L has another meaning, so ps lists processes there.
        each = ["-L"] if sys.platform == "linux" else []
        command = ["ps", "-A", *each, "-o", "pid=,ppid=,pgid=,state="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        threads = [(int(pid), int(parent), int(group), state) for pid, parent, group, state in map(str.split, listed.splitlines())]
        while True:
            members = {pid for pid, _, group, _ in threads if group in self._groups}
            new = {group for _, parent, group, _ in threads if parent in members} - set(self._groups)
            if not new:
                return {group for _, _, group, state in threads if group in self._groups and state[0] not in "TtXZ"}
            self._groups += sorted(new)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all known groups."""
        for group in self._groups:
            with suppress(*ENDED):
                os.killpg(group, number)

    def kill(self) -> None:
        """Send SIGKILL to all known groups, and wait until none of their processes runs."""
        if not self._rest(signal.SIGKILL, GIVE_UP_SECONDS):
            self._give_up()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop every process for the duration of the block, so that no process starts another one. At the end of the block the
        processes that were not killed continue.
        """
        until = time.monotonic() + GIVE_UP_SECONDS
        try:
            # A process that starts a program waits in the kernel (vfork) until the program begins. If the new process is stopped
            # before that, the waiting process cannot be stopped. So all processes continue for a moment, and are stopped again.
            while not self._rest(signal.SIGSTOP, STOP_SECONDS):
                if time.monotonic() > until:
                    self._give_up()
                self.send(signal.SIGCONT)
                time.sleep(GO_ON_SECONDS)
            yield
        finally:
            self.send(signal.SIGCONT)

    def _rest(self, number: signal.Signals, seconds: float) -> bool:
        """Send the signal, also to new processes, until no process runs. Return False if one still runs after `seconds`."""
        until = time.monotonic() + seconds
        self.send(number)
        while self.look():
            if time.monotonic() > until:
                return False
            self.send(number)
        return True

    def _give_up(self) -> NoReturn:
        running = sorted(self.look())
        self.send(signal.SIGKILL)
        sys.exit(f"Process groups {running} neither stop nor end: does the disk that they use answer (ps: state D)?")


def kill_when(process: subprocess.Popen[bytes], due: Callable[[], T | None], *, pause: float = 0.0) -> T | None:
    """Send SIGKILL to a job and all its descendants when `due` returns an answer (not None). `due` is called every `pause`
    seconds.

    The state that `due` sees may last for some ms only. So the job is stopped and `due` is called again. If the answer is the same,
    the job is killed; otherwise it continues. Returns the answer, or None if the job ended first.
    """
    running, known_at = Processes(process.pid), -LOOK_SECONDS
    while process.poll() is None:
        if time.monotonic() - known_at > LOOK_SECONDS:  # so that (nearly) all processes are known before they are stopped
            running.look()
            known_at = time.monotonic()
        answer = due()
        if answer is not None:
            with running.stopped():
                if due() == answer:
                    running.kill()
                    return answer if process.wait() == -signal.SIGKILL else None
        time.sleep(pause)
    return None


def kill_in_a_commit(cluster: Cluster, process: subprocess.Popen[bytes], after: int) -> str | None:
    """Wait for `after` commits. Then kill the job in the next commit whose transaction can be seen OPEN. Returns the transaction's
    id, or None if the job ended first.
    """
    while process.poll() is None and len(cluster.transactions.list("COMMITTED")) < after:
        time.sleep(0.05)
    return kill_when(process, lambda: open_transaction(cluster))


def open_transaction(cluster: Cluster) -> str | None:
    """Return the id of the first OPEN transaction, or None."""
    return next((txn.id for txn in cluster.transactions.list("OPEN")), None)


@contextmanager
def commits_shown(cluster: Cluster, total: int) -> Iterator[None]:
    """Show a bar of the committed transactions while the block runs. Nothing is shown if the output is no terminal."""
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    ended = threading.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Spark starts", total=total)

        def look() -> None:
            while not ended.wait(0.5):
                committed = len(cluster.transactions.list("COMMITTED"))
                progress.update(task, completed=committed, description="committed" if committed else "Spark starts")

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def run_and_kill(cluster: Cluster, start: Start, after: Sequence[int]) -> list[str]:
    """Run a job to its end. For each number in `after`, kill the job in a commit once that many transactions have committed, and
    start the job again. Returns the transactions in which the job was killed. Ends this program if the job ends before all kills.
    """
    killed: list[str] = []
    for number, commits in enumerate(after, 1):
        with start(number) as process:
            txn = kill_in_a_commit(cluster, process, commits)
        if txn is None:
            sys.exit(f"start {number}: the streaming job was done before it could be killed in a commit.")
        killed.append(txn)
        committed = len(cluster.transactions.list("COMMITTED"))
        console.print(f"start {number}: SIGKILL while transaction {txn} was OPEN, {committed} committed before it")
    with start(len(killed) + 1) as process:
        process.wait()
    console.print(f"start {len(killed) + 1}: ran to the end, {len(cluster.transactions.list('COMMITTED'))} committed")
    return killed


# --- checks ---------------------------------------------------------------------------------------------------------


def all_right(title: str, checks: Sequence[tuple[str, object, object]]) -> bool:
    """Print the found and expected values, given as (what, found, expected). Returns whether all agree."""
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
