"""The type of an operation, and the catalogue of all operations. Other modules register their operations with `operation`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.surface.bench import Bench

PICK = 10_000
"""The number of possible values of an argument that selects one of the objects that exist when the operation runs."""

Args = dict[str, int]
Op = tuple[str, Args]
Run = Callable[["Bench", Args], object]


@dataclass(frozen=True)
class Operation:
    """An operation. `theme`: the name of the module that has the operation. `weight`: how often it is drawn, relative to other
    operations. `takes`: the number of possible values of each argument, which begin with 0. `run`: carries out the operation, and
    returns False if there was nothing to work on.
    """

    name: str
    theme: str
    weight: float
    takes: dict[str, int]
    run: Run

    def draw(self, random: Random) -> Op:
        return self.name, {name: random.randrange(most) for name, most in self.takes.items()}


CATALOGUE: dict[str, Operation] = {}


def operation(weight: float, **takes: int) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        name = getattr(run, "__name__", "")
        CATALOGUE[name] = Operation(name, run.__module__.rpartition(".")[2], weight, {"w": PICK, **takes}, run)
        return run

    return register


def one_of(found: list[Any], pick: int) -> Any:
    """Return the element that `pick` selects; None if the list is empty."""
    return found[pick % len(found)] if found else None


def readable(op: Op) -> str:
    name, args = op
    return f"{name}({', '.join(f'{k}={v}' for k, v in args.items() if k != 'w' or v)})"
