"""A mutant is a fault in the real code. While it is planted, the functions that it names do something else for all callers.

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

from conformance.mutants.seams import Swap

CHOSEN = "TXNSEGMENT_MUTANT"
"""The environment variable that tells `conformance.mutants.plugin` what to plant."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    rules    what it breaks: `A5`, `8.5` (an invariant), `model keep-tail` (of `catalogue.MODEL`), `5` (a section), and names of
             `catalogue.SUBTLE`
    why      the rule, in one sentence
    swaps    the functions that are replaced
    by       what has caught it, and is asked first: pytest node ids, `script NAME`, `seed N`, `search NAME` or `store CASE`
    store    URL scheme of the store that it sits in: the store suite may catch it
    kind     of the simulator's schedules those of this kind show it best; without one, quick ones are run
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
        """Those of `by` that pytest runs."""
        return tuple(one for one in self.by if ".py" in one)


Real = Callable[..., Any]
"""A function as it is in the product."""

FAULTS: list[Mutant] = []
"""Those of `fault`, once their modules are imported (`catalogue` imports all)."""


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
    """Declare the function to be a mutant that replaces the function(s) `at` (only where `within` call it).

    `rules`: the broken rules, with commas between them. `also`: further replacements of a mutant in several functions. The other
    arguments are those of `Mutant`.
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
    """A context in which the mutant is planted in the real functions. Raises StaleMutant before anything is changed."""
    changed = [swap.code() for swap in fault.swaps]
    before = [(found, found.function.__code__) for found, _ in changed]
    for found, code in changed:
        found.become(code)
    try:
        yield
    finally:
        for found, code in before:
            found.become(code)


def check_applies(fault: Mutant) -> None:
    """Raises StaleMutant unless every seam exists and its replacement takes the same arguments."""
    for swap in fault.swaps:
        swap.code()
