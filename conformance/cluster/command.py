"""The cluster suite's words for `make chaos`, and what it prints there; `conformance.command.cluster` is the suite of its own."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from conformance.cluster.plan import BY_NAME
from conformance.cluster.run import results, run
from conformance.cluster.scene import SCALING, chosen
from conformance.domains import DOMAINS, domain
from conformance.results import Result


def add_options(parser: argparse._ActionsContainer, *, faults: int) -> None:
    """The words of the cluster suite. `faults`: their number by default."""
    parser.add_argument("--faults", type=int, default=faults, metavar="N", help=f"how many (default {faults})")
    parser.add_argument("--kinds", help=f"only these, comma-separated: {', '.join(BY_NAME)}")
    parser.add_argument("--domain", type=domain, metavar="D", help=f"of the topics: {', '.join(DOMAINS)}")
    parser.add_argument("--scaling", action="store_true", help=SCALING)
    parser.add_argument("--quiet-seconds", type=float, default=20.0, help="how long the rate is measured before the first fault")
    parser.add_argument("--wheel", type=Path, help="the wheel to install (default: one built from this source tree)")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="leave the history and all logs in this folder")


def cluster(given: argparse.Namespace, seed: int | None) -> list[Result]:
    """Run the suite as the words say; what happens is printed while it happens. SIGTERM ends it in good order."""
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    if given.logs is not None:
        given.logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def say(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:6.0f} s  {text}\n")
        sys.stdout.flush()

    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        say(f"cluster suite, seed {seed}, {given.faults} faults")
        kinds = given.kinds.split(",") if given.kinds else ()
        report = run(
            given.faults,
            seed,
            say,
            kinds=kinds,
            scene=chosen(scale=given.scaling, domain=given.domain),
            quiet_seconds=given.quiet_seconds,
            wheel=given.wheel,
            out=given.logs,
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    return results(report)


def as_text(found: Sequence[Result]) -> str:
    """One line for each result, with its figures, and what was wrong below it."""
    lines = []
    for one in found:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in one.figures.items())
        lines += [f"{one.outcome.upper():6} {one.name}: {figures}", *(f"       {text}" for text in one.detail.splitlines())]
    return "\n".join(lines)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
