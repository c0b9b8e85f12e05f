"""A mutant is a change of the source of real functions; planted, the functions run the changed code wherever they are known."""

from __future__ import annotations
import __future__ as future

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from metadata.common.errors import TxnSegmentError

CHOSEN = "TXNSEGMENT_MUTANT"
"""The environment variable that tells `conformance.mutants.plugin` what to plant."""


class StaleMutant(TxnSegmentError):
    """The code has moved on from under a mutant."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` in the source of the function `where` (`package.module:Class.function`, dedented) becomes `new`, wherever it stands."""

    where: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    rules    what it breaks: `A5`, `8.5` (an invariant), `model keep-tail` (of `catalogue.MODEL`), `5` (a section), and names of
             `catalogue.SUBTLE`
    why      the rule, in one sentence
    store    URL scheme of the store that it sits in: the store suite may catch it
    tests    pytest node ids that may catch it, for what neither scripts nor simulator run
    kind     of the simulator's schedules those of this kind show it best; without one, quick ones are run
    """

    name: str
    rules: tuple[str, ...]
    why: str
    edits: tuple[Edit, ...]
    store: str = ""
    tests: tuple[str, ...] = ()
    kind: str = ""


def mutant(
    name: str, rules: str, why: str, *edits: tuple[str, str, str], store: str = "", tests: tuple[str, ...] = (), kind: str = ""
) -> Mutant:
    """`rules` with commas between them; an edit is (where, old, new)."""
    return Mutant(name, tuple(rules.split(", ")), why, tuple(Edit(*edit) for edit in edits), store, tests, kind)


@contextmanager
def planted(fault: Mutant) -> Iterator[None]:
    """The real functions with the fault in them. Raises StaleMutant before anything is changed."""
    changed = [(found, mutated(found, edits, fault.name)) for found, edits in _by_function(fault).items()]
    before = [(found, found.function.__code__) for found, _ in changed]
    for found, code in changed:
        found.become(code)
    try:
        yield
    finally:
        for found, code in before:
            found.become(code)


def check_applies(fault: Mutant) -> None:
    """Raises StaleMutant unless every old text is still in the source and the changed source compiles."""
    for found, edits in _by_function(fault).items():
        mutated(found, edits, fault.name)


def sources(fault: Mutant) -> Mapping[str, str]:
    """What its functions say with the fault in them, by their places. Raises StaleMutant."""
    return {found.where: _source(found, edits, fault.name) for found, edits in _by_function(fault).items()}


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A function by its place. `known`: what the world calls, which may be a cache around it."""

    where: str
    function: FunctionType
    known: Any

    def become(self, code: CodeType) -> None:
        """Run this code from now on, also for those who imported the function by name; remember nothing of the other."""
        self.function.__code__ = code
        if hasattr(self.known, "cache_clear"):
            self.known.cache_clear()


def _by_function(fault: Mutant) -> Mapping[Found, list[Edit]]:
    places: dict[str, list[Edit]] = {}
    for edit in fault.edits:
        places.setdefault(edit.where, []).append(edit)
    return {find(where): edits for where, edits in places.items()}


def find(where: str) -> Found:
    """The function of a place, taken out of whatever wraps it. Raises StaleMutant."""
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        try:
            found = inspect.getattr_static(found, name)
        except AttributeError:
            raise StaleMutant(f"There is no {where}.", advice="The code has moved: write the mutant anew.") from None
    function = found
    for inner in ("fget", "func", "__func__"):  # property, cached_property, classmethod
        function = getattr(function, inner, None) or function
    function = inspect.unwrap(function)
    assert isinstance(function, FunctionType), where
    return Found(where, function, found)


def mutated(found: Found, edits: Sequence[Edit], name: str) -> CodeType:
    """The code of the function with the edits in it. Raises StaleMutant."""
    function = found.function
    tree = ast.parse(_source(found, edits, name))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef), found.where
    definition.decorator_list = []
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    made: dict[str, Any] = {}
    exec(
        compile(tree, inspect.getfile(function), "exec", flags=_flags(function), dont_inherit=True),
        dict(function.__globals__),
        made,
    )
    code: CodeType = made[function.__name__].__code__
    if code.co_freevars != function.__code__.co_freevars:
        raise StaleMutant(f"{found.where} is not a function that stands alone.", advice="Plant the mutant in another function.")
    return code


def _source(found: Found, edits: Sequence[Edit], name: str) -> str:
    source = textwrap.dedent(inspect.getsource(found.function))
    for edit in edits:
        if edit.old not in source:
            raise StaleMutant(
                f"The mutant {name} changes a text that {found.where} does not have: {edit.old!r}.",
                advice="The code has moved on: find out where the rule stands now and write the mutant anew.",
            )
        source = source.replace(edit.old, edit.new)
    return source


def _flags(function: FunctionType) -> int:
    """`from __future__` as in the function's module."""
    features = (getattr(future, name) for name in future.all_feature_names)
    return sum(f.compiler_flag for f in features if function.__code__.co_flags & f.compiler_flag)
