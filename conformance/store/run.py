"""Run the suite on a store: `run(url, seed)` returns what was found; `main` shows it and gives an exit code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from fnmatch import fnmatch

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conformance.results import Outcome, Result, exit_code
from conformance.store.area import Area, Sizes
from conformance.store.case import Case, ContractBroken, NotApplicable
from conformance.store.site import Opener, Site, Traits
from conformance.store.suite import CASES
from metadata.clock import Clock, SystemClock
from metadata.errors import OptionError, TxnSegmentError
from metadata.store import open_store

SUITE = "store"

Told = Callable[[Case, Result | None], None]
"""Called before each case with None, and after it with its result."""


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
    """A result for each case whose name fits `only` (`records/*`), in order. The same seed does the same.

    What the suite writes lies below a name of its own (see `site`) and is removed, so that a store in use can be tested.
    `traits`: what the store is not asked to give; by default everything, but for memory://, which lives in one process.
    `opener`: how sessions are opened; a function of a module, since other processes import it.
    Raises ConfigurationError or Unavailable if the store cannot be opened at all, OptionError if no case fits `only`.
    """
    chosen = [case for case in CASES if fnmatch(case.name, only)]
    if not chosen:
        raise OptionError(f"No case of the store suite fits {only!r}.", advice="Name one like 'ranges/*'; '*' runs them all.")
    if traits is None:
        traits = Traits(processes=not url.startswith("memory://"))
    results = []
    with Site(url, traits, opener) as site:
        site.place().open(opener).close()  # a store that cannot be opened is no failed case
        for case in chosen:
            told(case, None)
            result = run_case(case, site, seed, sizes=sizes or Sizes(), clock=clock or SystemClock())
            told(case, result)
            results.append(result)
    return results


def run_case(case: Case, site: Site, seed: int, *, sizes: Sizes, clock: Clock) -> Result:
    """One case in an area of its own. Whatever it raises becomes its result."""
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


def show(results: Sequence[Result], console: Console, *, url: str) -> None:
    """What failed and what was not applicable, each with its reason, then the count."""
    for outcome, style in ((Outcome.NOT_APPLICABLE, "yellow"), (Outcome.FAILED, "red")):
        for result in (result for result in results if result.outcome is outcome):
            console.print(f"{outcome}: {result.name}", style=style, highlight=False, markup=False)
            console.print(f"    {result.says}\n    {result.detail}", highlight=False, markup=False, soft_wrap=True)
            if outcome is Outcome.FAILED:
                again = f"again: python -m conformance --store {url} --only {result.name} --seed {result.seed}"
                console.print(f"    {again}", highlight=False, markup=False, soft_wrap=True)
    counts = ", ".join(f"{sum(r.outcome is outcome for r in results)} {outcome}" for outcome in Outcome)
    seconds = sum(result.seconds for result in results)
    console.print(
        f"{len(results)} cases of the store contract on {url}: {counts}; {seconds:.1f} s", highlight=False, soft_wrap=True
    )


def main(url: str, seed: int, *, only: str = "*", sizes: Sizes | None = None, traits: Traits | None = None) -> int:
    """Run with a progress bar and show the results. 0: all shown; 1: something failed; 2: nothing could be shown, or not opened."""
    # Connections are cut on purpose: what the client library says of that would bury the results.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("store", total=len([case for case in CASES if fnmatch(case.name, only)]))

        def told(case: Case, result: Result | None) -> None:
            progress.update(task, description=case.name, advance=0 if result is None else 1)

        try:
            results = run(url, seed, only=only, sizes=sizes, traits=traits, told=told)
        except TxnSegmentError as error:
            console.print(str(error), style="red", highlight=False, markup=False, soft_wrap=True)
            return 2
    show(results, console, url=url)
    return exit_code(results)
