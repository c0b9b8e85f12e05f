"""Runs golden scripts and compares their answers with the expected ones."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance.scripts import (
    acking,
    backing_up,
    happening,
    in_stream,
    reading,
    schemas,
    showing,
    storing,
    sweeping,
    together,
    writing,
)
from conformance.scripts.answers import file_name
from conformance.scripts.names import shortened
from conformance.scripts.parsing import Script, ScriptError, command, parse, render
from conformance.scripts.world import World
from metadata.common.errors import TxnSegmentError

FOLDER = Path(__file__).parents[2] / "tests" / "scripts"
"""The folder of this project's scripts. The wheel does not have this folder."""

COMMANDS = (
    writing.COMMANDS
    | acking.COMMANDS
    | together.COMMANDS
    | reading.COMMANDS
    | sweeping.COMMANDS
    | schemas.COMMANDS
    | storing.COMMANDS
    | happening.COMMANDS
    | showing.COMMANDS
    | backing_up.COMMANDS
    | in_stream.COMMANDS
)


_FILE = re.compile(r"file:///simulated/([^\s,;:]+)")


@dataclass(frozen=True)
class Failure:
    """A script with unexpected answers, or one that raised an error. `difference`: these answers or the error, as text."""

    name: str
    difference: str


def answered(script: Script) -> list[list[str]]:
    """Run a script in a fresh world. Return the answer of each step. Raises ScriptError if the script cannot be run."""
    world = World()
    try:
        found: list[list[str]] = []
        for step in script.steps:
            lines: list[str] = []
            found.append(lines)
            for each in step.commands:
                try:
                    lines += _answer(world, each)
                except ScriptError as error:
                    raise ScriptError(f"{error}; the step had answered {lines}") from error
        world.end()
        return found
    finally:
        world.close()


def _answer(world: World, line: str) -> list[str]:
    cmd = command(line)
    if cmd.verb not in COMMANDS:
        raise ScriptError(f"{line!r}: there is no command {cmd.verb}; there are {', '.join(sorted(COMMANDS))}")
    try:
        lines = COMMANDS[cmd.verb](world, cmd)
    except TxnSegmentError as error:  # the product refused an option while the command was prepared
        lines = [f"{type(error).__name__}: {error.message}"]
    cmd.check_taken()
    if cmd.verb == "dump":
        return lines
    return [_FILE.sub(lambda found: file_name(found[1]), shortened(world.state, line)) for line in lines]


def check(path: Path) -> Failure | None:
    """Run one script. Return None if every answer is the expected one. If the script raises an error, return it as a failure."""
    text = path.read_text()
    try:
        script = parse(path.stem, text)
        with quiet():
            got = render(script, answered(script))
    except Exception as error:
        return Failure(path.stem, f"{type(error).__name__}: {error}")
    if got == text:
        return None
    lines = difflib.unified_diff(text.splitlines(), got.splitlines(), f"{path.name} expects", "the code answers", lineterm="", n=6)
    return Failure(path.stem, "\n".join(lines))


def rewrite(path: Path) -> bool:
    """Replace the answers in a script by the current ones. Return whether any of them changed. Raises ScriptError."""
    text = path.read_text()
    script = parse(path.stem, text)
    with quiet():
        got = render(script, answered(script))
    if got != text:
        path.write_text(got)
    return got != text


def scripts(folder: Path = FOLDER) -> list[Path]:
    """Return all scripts of a folder. Raises ScriptError if there are none."""
    found = sorted(folder.glob("*.txt"))
    if not found:
        raise ScriptError(f"there are no scripts in {folder}")
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the product's log messages in the block, because the answers of scripts show all that matters."""
    logger = logging.getLogger("txnsegment")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
