"""A mutant is a fault in the real code; planted, the functions that it names do something else wherever they are known.

```python
@fault("8.1", "A header that is COMMITTED or ABORTED never changes again.", at="metadata.rules.transitions:end")
def terminal_is_not_terminal(real: Callable[..., Header | None], header: Header, decision: State, **options: Any) -> Header | None:
    return real(header.model_copy(update={"state": State.OPEN}), decision, **options)
```

The mutant's name is the function's, with dashes. `real` is the function as it is in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from conformance.mutants.patches import Edit, mutated, source
from conformance.mutants.seams import Found, StaleMutant, Swap, find

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
    edits: tuple[Edit, ...] = ()
    swaps: tuple[Swap, ...] = ()
    store: str = ""
    by: tuple[str, ...] = ()
    kind: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """Those of `by` that pytest runs."""
        return tuple(one for one in self.by if ".py" in one)


FAULTS: list[Mutant] = []
"""Those of `fault`, once their modules are imported (`catalogue` imports all)."""


def fault(
    rules: str,
    why: str,
    *,
    at: str | tuple[str, ...],
    within: str = "",
    also: Mapping[str, Callable[..., Any]] | None = None,
    by: str | tuple[str, ...] = (),
    store: str = "",
    kind: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares the function to be a fault that takes the place of the function(s) `at` (only where `within` calls it).

    `rules` with commas between them. `also`: for a fault in several functions, what takes the place of the others. The other
    arguments are `Mutant`'s.
    """

    def declared(replacement: Callable[..., Any]) -> Callable[..., Any]:
        seams = (at,) if isinstance(at, str) else at
        swaps = (
            *(Swap(where, replacement, within) for where in seams),
            *(Swap(where, other) for where, other in (also or {}).items()),
        )
        name = replacement.__name__.strip("_").replace("_", "-")
        shown = (by,) if isinstance(by, str) else by
        FAULTS.append(Mutant(name, tuple(rules.split(", ")), why, (), swaps, store, shown, kind))
        return replacement

    return declared


def mutant(
    name: str, rules: str, why: str, *edits: tuple[str, str, str], store: str = "", tests: tuple[str, ...] = (), kind: str = ""
) -> Mutant:
    """`rules` with commas between them; an edit is (where, old, new)."""
    return Mutant(name, tuple(rules.split(", ")), why, tuple(Edit(*edit) for edit in edits), (), store, tests, kind)


@contextmanager
def planted(fault: Mutant) -> Iterator[None]:
    """The real functions with the fault in them. Raises StaleMutant before anything is changed."""
    changed = _changed(fault)
    before = [(found, found.function.__code__) for found, _ in changed]
    for found, code in changed:
        found.become(code)
    try:
        yield
    finally:
        for found, code in before:
            found.become(code)


def check_applies(fault: Mutant) -> None:
    """Raises StaleMutant unless every seam is there and its replacement takes the same arguments."""
    _changed(fault)


def sources(fault: Mutant) -> Mapping[str, Any]:
    """What its functions do with the fault in them, by their places. Raises StaleMutant."""
    edited = {found.where: source(found, edits, fault.name) for found, edits in _by_function(fault).items()}
    return edited | {f"{swap.where} {swap.within}": _told(swap.replacement) for swap in fault.swaps}


def _told(function: Callable[..., Any]) -> Any:
    assert isinstance(function, FunctionType)
    code = function.__code__
    return code.co_code, code.co_names, tuple(one for one in code.co_consts if not isinstance(one, CodeType))


def _changed(fault: Mutant) -> list[tuple[Found, CodeType]]:
    found = [
        *((found, mutated(found, edits, fault.name)) for found, edits in _by_function(fault).items()),
        *(swap.code() for swap in fault.swaps),
    ]
    assert len({one.where for one, _ in found}) == len(found), f"{fault.name} replaces a function twice"
    return found


def _by_function(fault: Mutant) -> Mapping[Found, list[Edit]]:
    places: dict[str, list[Edit]] = {}
    for edit in fault.edits:
        places.setdefault(edit.where, []).append(edit)
    return {find(where): edits for where, edits in places.items()}


__all__ = ["CHOSEN", "FAULTS", "Edit", "Mutant", "StaleMutant", "Swap", "check_applies", "fault", "mutant", "planted", "sources"]
