"""A mutant as a change of the source text of functions. Faults at seams take its place (`seams`): write no new ones."""

from __future__ import annotations
import __future__ as future

import ast
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from conformance.mutants.seams import Found, StaleMutant


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` in the source of the function `where` (`package.module:Class.function`, dedented) becomes `new`, wherever it stands."""

    where: str
    old: str
    new: str


def mutated(found: Found, edits: Sequence[Edit], name: str) -> CodeType:
    """The code of the function with the edits in it. Raises StaleMutant."""
    function = found.function
    tree = ast.parse(source(found, edits, name))
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


def source(found: Found, edits: Sequence[Edit], name: str) -> str:
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
