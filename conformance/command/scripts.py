"""The suite `--scripts [NAME ..]`: the golden scripts, transactions as text with exact answers."""

from __future__ import annotations

import time
from pathlib import Path

from conformance.command.progress import Progress
from conformance.command.words import Given, Suite, UsageError, Word
from conformance.results import Outcome, Result

SUITE = "scripts"


def run(given: Given, progress: Progress) -> list[Result]:
    from conformance.scripts.running import FOLDER, check, scripts

    names: list[str] = given["scripts"]
    if not names and not FOLDER.is_dir():
        raise UsageError(
            f"{FOLDER} does not exist: the golden scripts are part of the source tree.", advice="Name files of scripts."
        )
    files = [Path(name) if name.endswith(".txt") else FOLDER / f"{name}.txt" for name in names] or scripts()
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise UsageError(
            f"There is no script {', '.join(missing)}.", advice="Name a file, or a script of tests/scripts by its stem."
        )
    progress.begin(SUITE, len(files))
    found = []
    for file in files:
        progress.at(file.stem)
        began = time.perf_counter()
        failure = check(file)
        found.append(
            Result(
                SUITE,
                file.stem,
                "",
                _says(file),
                Outcome.OK if failure is None else Outcome.FAILED,
                time.perf_counter() - began,
                given.seed,
                detail="" if failure is None else failure.difference,
                again=given.again(scripts=[str(file) if names else file.stem]),
            )
        )
        progress.advance()
    return found


def _says(file: Path) -> str:
    """Return the comment at the head of a script; the name of the script if it has no such comment."""
    head = file.read_text(encoding="utf-8").partition("\n\n")[0]
    return " ".join(line.removeprefix("#").strip() for line in head.splitlines() if line.startswith("#")) or file.stem


SCRIPTS = Suite(
    SUITE,
    "golden scripts: commands with their exact answers",
    Word("--scripts", "run these (a file, or the stem of one of tests/scripts; default: all of those)", metavar="NAME", many="*"),
    (),
    run,
)
