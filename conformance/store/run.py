"""Run the suite on a store: `run(url, seed)` returns the results."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch

from conformance.results import Outcome, Result
from conformance.store.area import Area, Sizes
from conformance.store.case import Case
from conformance.store.expectations import ContractBroken, NotApplicable
from conformance.store.site import Opener, Site, Traits
from conformance.store.suite import CASES
from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import OptionError
from metadata.store import open_store

SUITE = "store"

Told = Callable[[Case, Result | None], None]
"""A function that is called before each case with None, and after the case with its result."""


def run(
    url: str,
    seed: int,
    *,
    only: str = "*",
    sizes: Sizes | None = None,
    traits: Traits | None = None,
    opener: Opener = open_store,
    clock: Clock | None = None,
    told: Told = lambda case, result: None,
) -> list[Result]:
    """Run each case whose name fits `only` (such as `records/*`), and return the results in order. The same seed makes the same
    choices.

    The suite writes below a unique name (see `site`) and removes its records, so that it can test a store that is in use. `traits`:
    the optional abilities of the store. By default a store has all of them, but a memory:// store does not have `processes`.
    `opener`: a function that opens sessions. It must be a function of a module, because other processes import it. `told`: see
    `Told`.

    Raises ConfigurationError or Unavailable if the store cannot be opened, and OptionError if no case fits `only`.
    """
    chosen = [case for case in CASES if fnmatch(case.name, only)]
    if not chosen:
        raise OptionError(f"No case of the store suite fits {only!r}.", advice="Name one like 'ranges/*'; '*' runs them all.")
    if traits is None:
        traits = Traits(processes=not url.startswith("memory://"))
    results = []
    with Site(url, traits, opener) as site:
        site.place().open(opener).close()  # a store that cannot be reached is an error, not a failed case
        for case in chosen:
            told(case, None)
            result = run_case(case, site, seed, sizes=sizes or Sizes(), clock=clock or SystemClock())
            told(case, result)
            results.append(result)
    return results


def run_case(case: Case, site: Site, seed: int, *, sizes: Sizes, clock: Clock) -> Result:
    """Run one case in its own area. An exception becomes a failed result."""
    began = clock.monotonic()
    area = Area(site, seed=seed, name=case.name, sizes=sizes, clock=clock)
    found, detail, error = Outcome.OK, "", None
    try:
        with area:
            case.body(area)
    except NotApplicable as reason:
        found, detail = Outcome.NOT_APPLICABLE, str(reason)
    except ContractBroken as broken:
        found, detail, error = Outcome.FAILED, str(broken), broken
    except Exception as raised:
        found, detail = Outcome.FAILED, f"It raised {type(raised).__name__}: {raised}"
    return Result(
        suite=SUITE,
        name=case.name,
        section=case.section,
        says=case.says,
        outcome=found,
        seconds=clock.monotonic() - began,
        seed=seed,
        detail=detail,
        figures=dict(area.figures),
        history=error.history if error else (),
    )
