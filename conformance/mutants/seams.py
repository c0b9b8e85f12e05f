"""Seams: named functions of the product that can be replaced while the program runs.

A seam names a function: `package.module:function` or `package.module:Class.function`. The function's `__code__` is swapped for code
that calls the replacement. So callers that imported the function by name call the replacement, too.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from metadata.common.errors import TxnSegmentError


class StaleMutant(TxnSegmentError):
    """A mutant no longer fits the product's code."""


RAISED: list[str] = []
"""Errors in this process that the code of the replacements raised, for example because a replacement calls a function whose
parameters have changed since. A check that fails because of such an error shows nothing about the rule that the mutant breaks.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A function of the product. `where`: its seam. `known`: the object that callers use: the function, or what wraps it, such as a
    cache.
    """

    where: str
    function: FunctionType
    known: Any

    def become(self, code: CodeType) -> None:
        """Let the function run this code from now on, and clear its cached results."""
        self.function.__code__ = code
        if hasattr(self.known, "cache_clear"):
            self.known.cache_clear()


def find(where: str) -> Found:
    """Return the function that a seam names, taken out of its property, classmethod, cache or other wrapper. Raises StaleMutant if
    there is no such function.
    """
    module, _, path = where.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
    except (ModuleNotFoundError, AttributeError):
        raise StaleMutant(f"There is no {where}.", advice="The code has moved: write the mutant anew.") from None
    function = found
    for inner in ("fget", "func", "__func__"):  # property, cached_property, classmethod
        function = getattr(function, inner, None) or function
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        raise StaleMutant(f"{where} is not a function.", advice="The code has moved: write the mutant anew.")
    return Found(where, function, found)


@dataclass(frozen=True, slots=True)
class Swap:
    """Replaces the function `where` by `replacement`. The replacement gets the real function as its first argument. Its other
    arguments are those of the call: positional ones by position, keyword-only ones by name. Defaults are filled in.

    `within`: only calls from the bodies of these functions are replaced; if empty, all calls.
    """

    where: str
    replacement: Callable[..., Any]
    within: tuple[str, ...] = ()

    def code(self) -> tuple[Found, CodeType]:
        """Return the function and the code that it must run for the swap. Raises StaleMutant if a function is missing or the
        replacement does not fit it.
        """
        found = find(self.where)
        function = found.function
        _check_fits(self.where, function, self.replacement)
        real = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        real.__kwdefaults__ = function.__kwdefaults__
        callers = [find(caller).function.__code__ for caller in self.within]
        replacement = self.replacement

        def call(*args: Any, **options: Any) -> Any:
            calling = sys._getframe(2).f_code  # frame 1 is the code at the seam, frame 2 its caller
            if not callers or any(_is_in(calling, caller) for caller in callers):
                try:
                    return replacement(real, *args, **options)
                except (AttributeError, NameError, TypeError) as error:
                    _note_own(replacement, error)
                    raise
            return real(*args, **options)

        return found, _calling(function, call)


def _note_own(replacement: Callable[..., Any], error: Exception) -> None:
    """Add the error to RAISED if it was raised in the file of the replacement, not in a function elsewhere that the replacement
    calls.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename == replacement.__code__.co_filename:
        RAISED.append(f"{replacement.__name__}, line {frames[-1].lineno}: {type(error).__name__}: {error}")


def _is_in(code: CodeType, caller: CodeType) -> bool:
    """Return whether `code` is the code of `caller`, or of a comprehension or function within it."""
    inner = f"{caller.co_qualname}.<locals>."
    return code is caller or (code.co_filename == caller.co_filename and code.co_qualname.startswith(inner))


_CALLED = "the function to be called"


def _calling(function: FunctionType, called: Callable[..., Any]) -> CodeType:
    """Return code that has the parameters of `function` and passes them all to `called`. `called` is a constant of the code, so the
    function's globals do not change.
    """
    code = function.__code__
    positional, keywords, args, options = _parameters(code)
    declared = [*positional]
    if code.co_posonlyargcount:
        declared.insert(code.co_posonlyargcount, "/")
    declared += [f"*{args}"] if args else ["*"] if keywords else []
    declared += [*keywords, *([f"**{options}"] if options else [])]
    passed = [*positional, *([f"*{args}"] if args else []), *(f"{name}={name}" for name in keywords)]
    passed += [f"**{options}"] if options else []
    source = f"def seam({', '.join(declared)}):\n    _seam = {_CALLED!r}\n    return _seam({', '.join(passed)})\n"
    made: dict[str, Any] = {}
    # The source is compiled before `exec` runs it. If a SIGINT arrived during an `exec` of text, Python would end the whole
    # program, even if KeyboardInterrupt is handled.
    exec(compile(source, "<seam>", "exec"), made)
    template: CodeType = made["seam"].__code__
    return template.replace(
        co_consts=tuple(called if one == _CALLED else one for one in template.co_consts),
        co_freevars=code.co_freevars,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
    )


def _parameters(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...], str, str]:
    """Return the names of the positional parameters, the names of the keyword-only parameters, the name after `*`, and the name
    after `**`. The last two are empty if there is no such parameter.
    """
    names, first, end = code.co_varnames, code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args = names[end] if code.co_flags & inspect.CO_VARARGS else ""
    options = names[end + bool(args)] if code.co_flags & inspect.CO_VARKEYWORDS else ""
    return names[:first], names[first:end], args, options


def _check_fits(where: str, function: FunctionType, replacement: Callable[..., Any]) -> None:
    """Raise StaleMutant if the replacement does not fit the function. The replacement's first parameter takes the real function.
    The other parameters must have the names and the order of the function's parameters. A parameter such as `*rest` stands for all
    remaining positional parameters, and one such as `**options` for all remaining keyword-only ones.
    """
    assert isinstance(replacement, FunctionType)
    positional, keywords, args, options = _parameters(function.__code__)
    ours, our_keywords, our_args, our_options = _parameters(replacement.__code__)
    ours = ours[1:]
    fits = (
        ours == positional[: len(ours)]
        and (bool(our_args) or (len(ours) == len(positional) and not args))
        and set(our_keywords) <= set(keywords)
        and (bool(our_options) or (set(our_keywords) == set(keywords) and not options))
    )
    if not fits:
        raise StaleMutant(
            f"{replacement.__name__} does not take what {where}{inspect.signature(function)} takes.",
            advice="The code has moved: write the mutant anew.",
        )
