"""The options of the command line, and their parser. It finds the values of the options, the requested suites and usage errors."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from conformance.command.progress import Progress
from conformance.results import Result
from ledgers.errors import TxnSegmentError


class UsageError(TxnSegmentError):
    """The command line is invalid."""


def count(text: str) -> int:
    """Parse a whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def natural(text: str) -> int:
    """Parse a whole number that is 0 or more."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def seconds(text: str) -> float:
    """Parse a number of seconds that is 0 or more."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return number


@dataclass(frozen=True, slots=True)
class Word:
    """One option of the command line. If several suites have an option of the same name, it must be the same `Word`.

    `flag`: the option as it is typed. `says`: its help text. `kind`: the function that parses the option's value; None: the option
    is a switch without a value. `metavar`: what stands for the value in the help text. `many`: "+" if the option takes one or more
    values, "*" if it takes any number; such an option may be repeated. `default`: the value if the option is not given. `output`:
    whether the option only says what is printed or written, so that a command that repeats the run leaves it out.
    """

    flag: str
    says: str
    kind: Callable[[str], object] | None = str
    metavar: str | None = None
    many: str = ""
    default: object = None
    output: bool = False

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    def add_to(self, group: argparse._ActionsContainer) -> None:
        if self.kind is None:
            group.add_argument(self.flag, action="store_true", default=argparse.SUPPRESS, help=self.says)
        elif self.many:
            group.add_argument(
                self.flag,
                action="extend",
                nargs=self.many,
                type=self.kind,
                metavar=self.metavar,
                default=argparse.SUPPRESS,
                help=self.says,
            )
        else:
            group.add_argument(self.flag, type=self.kind, metavar=self.metavar, default=argparse.SUPPRESS, help=self.says)

    def written(self, value: object) -> list[str]:
        """Return the option with this value, as arguments of a command line."""
        if self.kind is None:
            return [self.flag] if value else []
        return [self.flag, *(map(str, value) if isinstance(value, list | tuple) else [str(value)])]


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one suite, by `Word.name`. `values`: the value of each option. `said`: only the values on the command line."""

    suite: Suite
    values: Mapping[str, Any]
    said: Mapping[str, Any]
    seed: int

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def again(self, seed: int | None = None, **changes: object) -> tuple[str, ...]:
        """Return the arguments of a command that repeats this suite. `changes`: options that get another value; None: left out."""
        words = {word.name: word for word in (self.suite.chosen_by, *self.suite.words)}
        values = {name: value for name, value in {**self.said, **changes}.items() if value is not None}
        found = [text for name, word in words.items() if name in values and not word.output for text in word.written(values[name])]
        return (*found, "--seed", str(self.seed if seed is None else seed))


Run = Callable[[Given, Progress], list[Result]]


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite of the command line. `says`: its line in the help text. `chosen_by`: the option that selects the suite. `words`: its
    other options. `run`: runs it. `implied_by`: names of options that also select the suite, if the command line selects no other
    suite. `implied`: the value that `chosen_by` gets in that case.
    """

    name: str
    says: str
    chosen_by: Word
    words: tuple[Word, ...]
    run: Run
    implied_by: tuple[str, ...] = ()
    implied: object = None


RANDOM = "random"


def seed(text: str) -> int | str:
    """Parse a seed: a number, or the word `random`."""
    return text if text == RANDOM else natural(text)


SEED = Word("--seed", "the same seed repeats the same run (default 0); 'random' draws one", seed, "S|random", default=0)
REPORT = Word(
    "--report", "write a report, .txt, .json or .html by the file's suffix (may be repeated)", Path, "FILE", many="+", default=()
)
HELP = Word("--help", "show this", None, default=False)
COMMON = (SEED, REPORT, HELP)


@dataclass(frozen=True, slots=True)
class Line:
    """A valid command line. `seed`: None if a random one is to be drawn. `chosen`: the suites to run. `said`: the given options."""

    seed: int | None
    reports: tuple[Path, ...]
    help: bool
    chosen: tuple[Suite, ...]
    said: Mapping[str, Any]

    def given(self, suite: Suite, seed: int) -> Given:
        words = {word.name: word.default for word in suite.words}
        mine = {name: value for name, value in self.said.items() if name in words or name == suite.chosen_by.name}
        return Given(suite, {**words, **mine}, mine, seed)


def parser(suites: Iterable[Suite], program: str) -> argparse.ArgumentParser:
    """Return a parser of the options of all suites. Raises ValueError if two suites have different options of one name."""
    made = _Parser(
        prog=program,
        usage=f"{program} SUITE [options]",
        description="Show that a metadata store, the protocol's code or a whole deployment keeps what is promised. Several suites "
        "may run in one go.",
        epilog="Exit code: 0 all shown; 1 something failed; 2 nothing could be shown, or a mistake in what was asked for.",
        allow_abbrev=False,
        add_help=False,
    )
    common = made.add_argument_group("for all suites")
    for word in COMMON:
        word.add_to(common)
    known: dict[str, Word] = {}
    for suite in suites:
        shared = [word.flag for word in suite.words if word.name in known]
        group = made.add_argument_group(suite.name, suite.says + (f"; also {', '.join(shared)}" if shared else ""))
        for word in (suite.chosen_by, *suite.words):
            if word.name not in known:
                known[word.name] = word
                word.add_to(group)
            elif known[word.name] != word:
                raise ValueError(f"{word.flag} of {suite.name} is another word than that of another suite")
    return made


def read(arguments: Sequence[str], suites: Sequence[Suite], program: str) -> Line:
    """Parse a command line. `Line.chosen` is empty if the command line selects no suite. Raises UsageError for an unknown option,
    for an option of a suite that is not selected, and for an invalid value. For an unknown option the error names the nearest known
    one.
    """
    found, rest = parser(suites, program).parse_known_args(list(arguments))
    words = {word.flag: word for suite in suites for word in (suite.chosen_by, *suite.words)} | {word.flag: word for word in COMMON}
    if rest:
        raise _unknown(rest[0], list(words))
    said: dict[str, Any] = vars(found)
    chosen = tuple(suite for suite in suites if suite.chosen_by.name in said)
    if not chosen:
        chosen = tuple(suite for suite in suites if said.keys() & set(suite.implied_by))[:1]
        said |= {suite.chosen_by.name: suite.implied for suite in chosen}
    belongs = {word.name for suite in chosen for word in (suite.chosen_by, *suite.words)} | {word.name for word in COMMON}
    for flag, word in words.items():
        if chosen and word.name in said and word.name not in belongs:
            owners = [suite.chosen_by.flag for suite in suites if word in suite.words]
            raise UsageError(
                f"{flag} belongs to {' and '.join(owners)}, not to {' and '.join(s.chosen_by.flag for s in chosen)}.",
                advice="Leave it out, or ask for its suite.",
            )
    drawn = said.get("seed", SEED.default)
    return Line(None if drawn == RANDOM else drawn, tuple(said.get("report", ())), bool(said.get("help", False)), chosen, said)


def _unknown(text: str, flags: Sequence[str]) -> UsageError:
    if not text.startswith("-"):
        return UsageError(f"{text!r} stands alone.", advice="Every value belongs behind its option; --help lists them.")
    flag = text.partition("=")[0]
    near = difflib.get_close_matches(flag, flags, n=1)
    return UsageError(f"There is no option {flag}.", advice=f"Did you mean {near[0]}?" if near else "--help lists those there are.")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", advice="--help lists the options.")
