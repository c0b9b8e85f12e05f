"""OpenTelemetry spans of the work of drivers, if the process traces. Without `opentelemetry-api` each span costs a look-up.

A process traces if it has imported the API, or if a variable of OpenTelemetry names a provider of tracers. In any other process no
provider can be set, so each span would be dropped, and the API is not imported: the import takes longer than a plan.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

API: Final = "opentelemetry.trace"
PROVIDER: Final = "OTEL_PYTHON_TRACER_PROVIDER"
"""The variable by which OpenTelemetry loads a provider that no code has set."""

_HAS_PROVIDER: Final = PROVIDER in os.environ
"""Whether the variable is set. It is read once, because each step of a commit asks."""

PREFIX: Final = "txnsegment."


class Span:
    """A span that is under way. `set` adds attributes; a value of None is left out. This class drops all of them."""

    def set(self, **attributes: object) -> None:
        return


class _Recorded(Span):
    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, **attributes: object) -> None:
        for name, value in attributes.items():
            if value is not None:
                self._span.set_attribute(f"{PREFIX}{name}", list(value) if isinstance(value, tuple) else value)


_NOTHING: Final = nullcontext(Span())


def is_traced() -> bool:
    """Return whether this process traces."""
    return API in sys.modules or (_HAS_PROVIDER and find_spec("opentelemetry") is not None)


def span(name: str, **attributes: object) -> AbstractContextManager[Span]:
    """Return a context in which the span `txnsegment.<name>` is the current one. Its parent is the span that is current now. An
    error that leaves the block is recorded, and the span gets the status ERROR. Attributes get the prefix `txnsegment.`.

        with span("append", topic=name) as made:
            made.set(rows=5)
    """
    return _started(name, attributes) if is_traced() else _NOTHING


@contextmanager
def _started(name: str, attributes: dict[str, object]) -> Iterator[Span]:
    from opentelemetry import trace

    with trace.get_tracer("txnsegment").start_as_current_span(f"{PREFIX}{name}") as started:
        made = _Recorded(started)
        made.set(**attributes)
        yield made


def note(**attributes: object) -> None:
    """Add attributes to the span that is current now, which the caller has started."""
    if is_traced():
        from opentelemetry import trace

        _Recorded(trace.get_current_span()).set(**attributes)


def traced(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function: each call is a span."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            if not is_traced():
                return function(*arguments, **named)
            with span(name):
                return function(*arguments, **named)

        return call

    return decorate
