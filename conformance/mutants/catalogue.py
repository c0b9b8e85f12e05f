"""All mutants, and the rules that must have one."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from conformance import mutants
from conformance.mutants.planting import FAULTS, Mutant
from metadata.common.errors import OptionError

for _module in pkgutil.iter_modules(mutants.__path__):
    if _module.name.startswith("of_"):  # the import declares the module's mutants
        importlib.import_module(f"{mutants.__name__}.{_module.name}")

MUTANTS: tuple[Mutant, ...] = tuple(FAULTS)

LATER = {
    "A15": "sharded stores come later",
}
"""Rule that has no mutant, because the current code cannot break it -> the reason."""

FAILURES = tuple(name for i in range(1, 37) if (name := f"A{i}") not in LATER)
"""The known failures of protocol.md section 9 that must have a mutant."""

INVARIANTS = tuple(name for i in range(1, 17) if (name := f"8.{i}") not in LATER)
"""The invariants of protocol.md section 8 that must have a mutant."""

MODEL = tuple(
    f"model {rule}"
    for rule in (
        "abort-predecessor",
        "raise-before-forget",
        "named-by-header",
        "one-registration",
        "atomic-append",
        "reread-gone",
        "log-before-snapshot",
        "settle-before-forget",
        "fold-stops",
        "keep-tail",
        "seal-check",
        "end-at-seal",
    )
)
"""The rules of an earlier model of the protocol. Each must have a mutant. In that model each rule could be switched off, which
showed that the protocol needs the rule.
"""

SUBTLE = (
    "the sync before acting on absence left out",
    "the session changed between two reads of one decision",
    "seals looked up after the layout",
    "the application record raised after the header is forgotten",
    "an index range one too wide",
    "a stale watch trusted",
    "time in the wrong unit",
    "a part's checksum not verified",
    "index entry left after replace",
    "sequence as counter then record",
    "version ignored",
    "limits that split a transaction",
    "a replay that plans with a newer cut",
    "staged parts of a failed attempt counted",
    "routing by the low 16 bits",
)
"""Further faults that must have a mutant: subtle faults, and faults of stores, sources and sinks."""


def uncovered() -> list[str]:
    """Return the rules that must have a mutant and have none."""
    broken = {rule for fault in MUTANTS for rule in fault.rules}
    return [rule for rule in (*FAILURES, *INVARIANTS, *MODEL, *SUBTLE) if rule not in broken]


def by_name(name: str) -> Mutant:
    """Return the mutant of this name. Raises OptionError if there is none."""
    found = next((fault for fault in MUTANTS if fault.name == name), None)
    if found is None:
        (near,) = difflib.get_close_matches(name, [fault.name for fault in MUTANTS], n=1, cutoff=0)
        raise OptionError(
            f"There is no mutant {name!r}.", advice=f"Did you mean {near}? They are declared in conformance/mutants/of_*.py."
        )
    return found
