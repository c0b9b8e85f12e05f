"""Declares and plants mutants. A mutant is a fault in the real code: it replaces the functions that it names. With `within`, it
replaces them only for calls from some functions.

```python
@fault("8.1", "A header that is COMMITTED or ABORTED never changes again.", at="metadata.rules.transitions:end")
def terminal_is_not_terminal(real: Real, header: Header, decision: State, **options: Any) -> Any:
    return real(header.model_copy(update={"state": State.OPEN}), decision, **options)
```

The mutant's name is the function's name, with dashes. `real` is the product's function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from conformance.mutants.seams import RAISED, StaleMutant, Swap

CHOSEN = "TXNSEGMENT_MUTANT"
"""The environment variable with the name of the mutant that `conformance.mutants.plugin` plants."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    rules    the rules that it breaks: `A5` (a known failure), `8.5` (an invariant), `5` (a section of protocol.md), a rule of
             `catalogue.MODEL`, or a name of `catalogue.SUBTLE`
    why      the main rule that it breaks, in words
    swaps    the replacements of functions
    by       the checks that run first, because they caught the mutant before: pytest ids, `script NAME`, `seed N`, `search NAME`,
             `store CASE`
    store    the URL scheme of the store whose code the mutant changes; the store suite runs for this store. Empty for other code
    kind     the kind of simulator schedules that detects the mutant best; empty: "quick" schedules (docs/conformance.md)
    """

    name: str
    rules: tuple[str, ...]
    why: str
    swaps: tuple[Swap, ...] = ()
    store: str = ""
    by: tuple[str, ...] = ()
    kind: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """The pytest ids in `by`."""
        return tuple(one for one in self.by if ".py" in one)


Real = Callable[..., Any]
"""The product's function, without the fault."""

FAULTS: list[Mutant] = []
"""The mutants that imported modules have declared with `fault`. The module `catalogue` imports all modules with mutants."""


def fault(
    rules: str,
    why: str,
    *,
    at: str | tuple[str, ...],
    within: str | tuple[str, ...] = (),
    also: Mapping[str, Real] | None = None,
    by: str | tuple[str, ...] = (),
    store: str = "",
    kind: str = "",
) -> Callable[[Real], Real]:
    """Declare a mutant: the decorated function replaces the functions named by the seams `at`. If `within` is given, only calls
    from the functions that it names are replaced.

    `rules`: the broken rules, separated by commas. `also`: seam -> replacement, for further functions. The other arguments are
    fields of `Mutant`.
    """

    def declared(replacement: Real) -> Real:
        swaps = (
            *(Swap(where, replacement, _tuple(within)) for where in _tuple(at)),
            *(Swap(where, other) for where, other in (also or {}).items()),
        )
        name = replacement.__name__.strip("_").replace("_", "-")
        FAULTS.append(Mutant(name, tuple(rules.split(", ")), why, swaps, store, _tuple(by), kind))
        return replacement

    return declared


def _tuple(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


@contextmanager
def planted(fault: Mutant) -> Iterator[None]:
    """Plant the mutant during the block. Raises StaleMutant, and changes no function, if the mutant does not fit the code.

    Raises StaleMutant at the end of the block if the replacement's own code raised an error (`seams.RAISED`). A check that failed
    because of such an error has not detected the mutant.
    """
    changed = [swap.code() for swap in fault.swaps]
    before = [(found, found.function.__code__) for found, _ in changed]
    for found, code in changed:
        found.become(code)
    try:
        yield
    finally:
        for found, code in before:
            found.become(code)
    if RAISED:
        raise StaleMutant(f"The mutant {fault.name} itself is wrong: {RAISED[0]}", advice="The code has moved: write it anew.")


def check_applies(fault: Mutant) -> None:
    """Raise StaleMutant unless every seam exists and its replacement takes the same arguments."""
    for swap in fault.swaps:
        swap.code()
