"""`python -m conformance --mutants [NAME ..]`: plant faults and show which suite caught each; exit 1 if one slips through."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from rich.console import Console

from conformance.mutants.catalogue import MUTANTS, by_name
from conformance.mutants.hunting import LIMIT, Hunt, hunt
from conformance.mutants.planting import Mutant
from conformance.results import Result, exit_code


def add_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("planted bugs")
    group.add_argument(
        "--mutants", nargs="*", metavar="NAME", help="plant these faults (default: all) in the real code, one at a time"
    )
    group.add_argument("--limit", type=int, default=LIMIT, help=f"schedules after which one has slipped through (default {LIMIT})")
    group.add_argument(
        "--beside", type=int, default=0, help="so many schedules also for those that scripts, store suite or tests caught"
    )


def run_command(given: Namespace) -> int:
    """0: every mutant was caught; 1: one slipped through."""
    faults = [by_name(name) for name in given.mutants] if given.mutants else list(MUTANTS)
    return exit_code(run(faults, cores=given.cores, limit=given.limit, beside=given.beside, seed=given.seed))


def run(faults: Sequence[Mutant], *, cores: int, limit: int, beside: int, seed: int) -> list[Result]:
    """Hunt them, and print a line for each as soon as it is known."""
    console = Console(highlight=False, soft_wrap=True)
    name_width = max(len(fault.name) for fault in faults)
    rule_width = min(40, max(len(", ".join(fault.rules)) for fault in faults))
    console.print(f"{'mutant':{name_width}}  {'breaks':{rule_width}}  {'seconds':>7}  caught by", markup=False)

    def told(found: Hunt) -> None:
        rules = ", ".join(found.fault.rules)
        short = rules if len(rules) <= rule_width else rules[: rule_width - 2] + ".."
        style = None if found.caught else "red"
        line = f"{found.fault.name:{name_width}}  {short:{rule_width}}  {found.seconds:7.1f}  {caught(found)}"
        console.print(line, markup=False, style=style)

    found = hunt(faults, cores=cores, limit=limit, beside=beside, seed=seed, told=told)
    slipped = [each.fault.name for each in found if not each.caught]
    console.print(
        f"{len(found)} mutants: {len(found) - len(slipped)} caught, {len(slipped)} slipped through"
        + (f" ({', '.join(slipped)}): a check is missing" if slipped else ""),
        markup=False,
    )
    return [each.result(seed) for each in found]


def caught(found: Hunt) -> str:
    ways = []
    for catch in found.catches:
        match catch.suite:
            case "scripts":
                ways.append(f"script {catch.by} (no. {catch.tried})")
            case "store":
                ways.append(f"store suite: {catch.by} (no. {catch.tried})")
            case "simulator":
                ways.append(f"simulator after {catch.tried} schedules ({catch.by})")
            case _:
                ways.append(catch.by)
    if found.schedules is not None and not any(catch.suite == "simulator" for catch in found.catches):
        ways.append(f"unseen in {found.schedules} schedules")
    return "; ".join(ways)
