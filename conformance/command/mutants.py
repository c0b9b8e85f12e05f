"""The suite `--mutants [NAME ..]`: faults planted in the real code, each of which a suite must detect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from conformance.command.progress import Progress
from conformance.command.simulation import CORES
from conformance.command.words import Given, Suite, Word, count, natural
from conformance.results import Result

if TYPE_CHECKING:
    from conformance.mutants.hunting import Hunt

SUITE = "mutants"


def run(given: Given, progress: Progress) -> list[Result]:
    from conformance.mutants.catalogue import MUTANTS as ALL
    from conformance.mutants.catalogue import by_name
    from conformance.mutants.hunting import caught, hunt

    faults = [by_name(name) for name in given["mutants"]] or list(ALL)
    width = max(len(fault.name) for fault in faults)
    rules = max(len(", ".join(fault.rules)) for fault in faults)
    progress.begin(SUITE, len(faults))

    def told(found: Hunt) -> None:
        breaks = ", ".join(found.fault.rules)
        progress.say(f"{found.fault.name:{width}}  {breaks:{rules}}  {found.seconds:6.1f} s  {caught(found)}")
        progress.advance()

    found = hunt(faults, cores=given["cores"], limit=given["limit"], beside=given["beside"], seed=given.seed, told=told)
    return [replace(each.result(given.seed), note=caught(each), again=given.again(mutants=[each.fault.name])) for each in found]


MUTANTS = Suite(
    SUITE,
    "faults planted in the real code, one at a time: each is caught, or a check is missing",
    Word("--mutants", "plant these (default: all)", metavar="NAME", many="*"),
    (
        CORES,
        Word("--limit", "give a mutant up as undetected after N schedules (default 20000)", count, "N", default=20_000),
        Word("--beside", "run N schedules also for mutants that other suites caught", natural, "N", default=0),
    ),
    run,
)
