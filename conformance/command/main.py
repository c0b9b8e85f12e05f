"""Run the suites that a command line selects: print the seed, run the suites, print the results, write the reports."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from conformance.command.progress import Shown, shown
from conformance.command.suites import SUITES
from conformance.command.words import Line, Suite, UsageError, parser, read
from conformance.report.document import check_file, made, write
from conformance.report.run import Report
from conformance.report.text import COMMAND, summary
from conformance.results import Result, exit_code
from ledgers.errors import TxnSegmentError
from metadata.common.clock import Clock, SystemClock

INTERRUPTED = 130
MISTAKE = 2
OURS = frozenset({"conformance", "txnsegment", "metadata", "ledgers", "spark_txn_source", "spark_txn_sink", "pyspark_txnsegment"})


def drawn_seed() -> int:
    """Return a random seed."""
    return random.SystemRandom().randrange(2**32)


def main(
    arguments: Sequence[str] | None = None,
    *,
    program: str = COMMAND,
    suites: Sequence[Suite] = SUITES,
    clock: Clock | None = None,
    draw: Callable[[], int] = drawn_seed,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Run the command and return its exit code. 0: all cases passed. 1: a case failed. 2: no case could be checked, or the command
    line is invalid. 130: Ctrl-C interrupted the command. SIGTERM raises SystemExit with the code 143.

    `arguments`: the command line without the program (default: `sys.argv[1:]`). `program`: its name in texts. `draw`: returns the
    seed for `--seed random`. `out`: the stream for results (default: stdout). `err`: the stream for all else (default: stderr).
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    clock, out, err = clock or SystemClock(), out or sys.stdout, err or sys.stderr
    try:
        line = read(arguments, suites, program)
        if line.help or not line.chosen:
            (out if line.help else err).write(parser(suites, program).format_help())
            return 0 if line.help else MISTAKE
        for file in line.reports:
            check_file(file)
        with _ended_in_good_order():
            return _run(line, tuple(arguments), clock, draw, out, err)
    except TxnSegmentError as error:
        err.write(f"Error: {error}\n")
        return MISTAKE
    except KeyboardInterrupt:
        err.write("Interrupted: what was found so far is not shown, and no report is written.\n")
        return INTERRUPTED


def _run(line: Line, arguments: tuple[str, ...], clock: Clock, draw: Callable[[], int], out: TextIO, err: TextIO) -> int:
    seed = draw() if line.seed is None else line.seed
    out.write(f"seed {seed}\n")
    out.flush()
    started, began = clock.now_ms(), clock.monotonic()
    results: list[Result] = []
    with shown(err, clock) as progress:
        for suite in line.chosen:
            results += _one(line, suite, seed, progress)
    report = made(arguments, seed, started, clock.monotonic() - began, results)
    out.write(summary(results))
    _write_all(report, line, out)
    return exit_code(results)


def _one(line: Line, suite: Suite, seed: int, progress: Shown) -> list[Result]:
    """Run one suite and return its results. Raises UsageError if the suite needs a package that is not installed."""
    try:
        return suite.run(line.given(suite, seed), progress)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in OURS:
            raise
        raise UsageError(
            f"The suite {suite.name} needs the package {package}, which is not installed.",
            advice="Install what the suites need: pip install 'txnsegment[conformance]'.",
        ) from error


def _write_all(report: Report, line: Line, out: TextIO) -> None:
    for file in line.reports:
        write(report, file)
        out.write(f"report: {file}\n")


@contextmanager
def _ended_in_good_order() -> Iterator[None]:
    """In this context, SIGTERM raises SystemExit, so that the suites end the servers and processes that they started."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
