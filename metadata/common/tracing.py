"""OpenTelemetry spans of the work of drivers, if the process traces. Without `opentelemetry-api` each span costs a look-up.

A process traces if it has imported the API, or if a variable of OpenTelemetry names a provider of tracers. In any other process no
provider can be set, so each span would be dropped, and the API is not imported: the import takes longer than a plan.

A provider, a processor or a sampler may raise anything. Such an error is logged once, and its span is lost. It never reaches the
work that is traced, which may have committed already.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

log = logging.getLogger("txnsegment.tracing")

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
                try:
                    self._span.set_attribute(f"{PREFIX}{name}", list(value) if isinstance(value, tuple) else value)
                except Exception:
                    _lost()


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
    return _Started(name, attributes) if is_traced() else _NOTHING


class _Started(AbstractContextManager[Span]):
    """The context of a span. It raises no error of its own."""

    def __init__(self, name: str, attributes: dict[str, object]) -> None:
        self._name, self._attributes = name, attributes
        self._context: AbstractContextManager[Any] | None = None

    def __enter__(self) -> Span:
        try:
            from opentelemetry import trace

            context = trace.get_tracer("txnsegment").start_as_current_span(f"{PREFIX}{self._name}")
            made = _Recorded(context.__enter__())
        except Exception:
            _lost()
            return Span()
        self._context = context
        made.set(**self._attributes)
        return made

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._context is None:
            return
        try:
            self._context.__exit__(kind, error, trace)
        except Exception as raised:
            if raised is not error:
                _lost()


def note(**attributes: object) -> None:
    """Add attributes to the span that is current now, which the caller has started. Raises no error."""
    if is_traced():
        try:
            from opentelemetry import trace

            made = _Recorded(trace.get_current_span())
        except Exception:
            _lost()
        else:
            made.set(**attributes)


@functools.cache
def _lost() -> None:
    """Log the error that is handled now, the first time."""
    log.warning("a span of OpenTelemetry was lost; further errors of this kind are not logged", exc_info=True)


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
