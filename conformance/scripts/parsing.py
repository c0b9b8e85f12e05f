"""The form of a golden script. A script is a list of steps. Each step consists of one or more commands, a line of dashes, the exact
answer, and an empty line.

    # What this protects.

    d1: commit app=q version=7 a:3
    read a
    ----
    txn 0_0 COMMITTED, commit 1: a/1:0..2
    cut 1, a up to 1:2
    rows a/1:0..2

Lines that begin with `#` are comments; `--rewrite` keeps them in their places. If a step has several commands, its answer has the
lines of all of them, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DASHES = "----"


class ScriptError(Exception):
    """A script cannot be run: a command or word is unknown, or a fault struck no call. (An unexpected answer is a `Failure`.)"""


@dataclass(frozen=True)
class Step:
    """Commands and their expected answer. `above`: the comments and empty lines above the commands, verbatim."""

    above: tuple[str, ...]
    commands: tuple[str, ...]
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Script:
    """A parsed script. `below`: the comments after its last step."""

    name: str
    steps: tuple[Step, ...]
    below: tuple[str, ...]


def parse(name: str, text: str) -> Script:
    """Parse the text of a script. Raises ScriptError if the text does not have the form of a script."""
    steps: list[Step] = []
    above: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.startswith("#"):
            above.append(line)
            continue
        commands = [line]
        for more in lines:
            if more == DASHES:
                break
            commands.append(more)
        else:
            raise ScriptError(f"{name}: no line {DASHES} after {commands[0]!r}")
        if not all(c.strip() and not c.startswith("#") for c in commands):
            raise ScriptError(f"{name}: an empty line or a comment between {commands[0]!r} and its {DASHES}")
        expected: list[str] = []
        for answer in lines:
            if not answer.strip():
                break
            expected.append(answer)
        steps.append(Step(tuple(above), tuple(commands), tuple(expected)))
        above = []
    return Script(name, tuple(steps), tuple(above))


def render(script: Script, answers: Sequence[Sequence[str]]) -> str:
    """Return the text of the script with other answers. `answers`: the answer of each step."""
    lines: list[str] = []
    for step, answer in zip(script.steps, answers, strict=True):
        lines += [*step.above, *step.commands, DASHES, *answer, ""]
    return "\n".join([*lines, *script.below]).rstrip("\n") + "\n"


@dataclass
class Command:
    """One command line: `[actor:] verb word .. option=value ..`. The code of a command asks for the options that it knows, which
    are then in `taken`. Any other option is an error (`check_taken`).
    """

    line: str
    actor: str | None
    verb: str
    words: list[str]
    options: dict[str, str]
    taken: set[str] = field(default_factory=set)

    def who(self, usual: str) -> str:
        return self.actor or usual

    def get(self, name: str) -> str | None:
        self.taken.add(name)
        return self.options.get(name)

    def need(self, name: str) -> str:
        found = self.get(name)
        if found is None:
            raise ScriptError(f"{self.line!r} needs {name}=..")
        return found

    def number(self, name: str) -> int | None:
        found = self.get(name)
        return None if found is None else int(found)

    def flag(self, name: str) -> bool:
        if name in self.words:
            self.words.remove(name)
            return True
        return False

    def one(self) -> str:
        """Return the only word of the command. Raises ScriptError if there are more words or none."""
        if len(self.words) != 1:
            raise ScriptError(f"{self.line!r} needs one word after {self.verb}")
        return self.words[0]

    def check_taken(self) -> None:
        rest = self.options.keys() - self.taken
        if rest:
            raise ScriptError(f"{self.line!r}: {self.verb} knows no {', '.join(sorted(rest))}")


def command(line: str) -> Command:
    tokens = line.split()
    actor = tokens.pop(0)[:-1] if tokens[0].endswith(":") else None
    if not tokens:
        raise ScriptError(f"{line!r} has no command")
    verb, *rest = tokens
    options = dict(t.split("=", 1) for t in rest if "=" in t)
    return Command(line, actor, verb, [t for t in rest if "=" not in t], options)


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `+30s`, `-5m`, `72h`, `7d` or `250ms`. Raises ScriptError."""
    units: Mapping[str, int] = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    for unit in ("ms", "s", "m", "h", "d"):
        number = text.removesuffix(unit)
        if number != text and number.lstrip("+-").isdigit():
            return int(number) * units[unit]
    raise ScriptError(f"{text!r} is not a duration such as +30s")
