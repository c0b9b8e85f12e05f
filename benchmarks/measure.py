"""Times alternating runs, shows reports as tables, and describes the machine."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table


@dataclass
class Claim:
    """One line of the report: the measured value, and its target."""

    what: str
    got: float
    wanted: float
    at_least: bool
    unit: str = "x"
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.got >= self.wanted if self.at_least else self.got <= self.wanted


@dataclass
class Report:
    title: str
    claims: list[Claim] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def claim(self, what: str, got: float, wanted: float, *, at_least: bool, unit: str = "x", note: str = "") -> None:
        self.claims.append(Claim(what, got, wanted, at_least, unit, note))

    def show(self) -> None:
        console = Console(width=132)
        table = Table(title=self.title, title_justify="left")
        for column in ("what", "measured", "wanted", "", "note"):
            table.add_column(column)
        for c in self.claims:
            sign = ">=" if c.at_least else "<="
            holds = "yes" if c.holds else "NO"
            table.add_row(c.what, f"{c.got:.2f} {c.unit}", f"{sign} {c.wanted:g} {c.unit}", holds, c.note)
        if self.claims:
            console.print(table)
        for more in self.tables:
            console.print(more)
        for name, value in self.figures:
            console.print(f"  {name}: {value}", highlight=False)


def alternating(actions: dict[str, Callable[[], None]], *, runs: int = 5, warm: int = 1) -> dict[str, float]:
    """Return the seconds of each action: the median over `runs` rounds. Each round runs every action once. The first `warm` rounds
    do not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(warm + runs):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            took = time.perf_counter() - started
            if round_ >= warm:
                seconds[name].append(took)
    return {name: statistics.median(found) for name, found in seconds.items()}


def machine() -> str:
    """Return a description of this machine and its software."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "kazoo", "pydantic"))
    return (
        f"{cores} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, Python {platform.python_version()}, {packages}"
    )


@contextmanager
def spark_session(**conf: str) -> Iterator[SparkSession]:
    # Spark's workers run this Python, and not the first `python3` of PATH
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",  # docs/speed.md
    }
    for key, value in (defaults | {k.replace("__", "."): v for k, v in conf.items()}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder on the disk of this checkout, not in memory."""
    base = Path("out/bench")
    base.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=base.resolve()))
    try:
        yield path
    finally:
        shutil.rmtree(path)
