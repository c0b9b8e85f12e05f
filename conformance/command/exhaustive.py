"""The suite `--exhaustive`: all schedules of two writers, a reader and a sweeper, up to a number of preemptions and crashes."""

from __future__ import annotations

from conformance.command.progress import Progress
from conformance.command.simulation import CORES
from conformance.command.words import Given, Suite, Word, natural
from conformance.results import Outcome, Result

SUITE = "exhaustive"


def run(given: Given, progress: Progress) -> list[Result]:
    from conformance.simulator.search.exhaustive import exhaust
    from conformance.simulator.search.scenarios import SCENARIOS

    progress.begin(SUITE, len(SCENARIOS))
    found = exhaust(given["cores"], preemptions=given["preemptions"], crashes=given["crashes"])
    return [
        Result(
            SUITE,
            each.scenario,
            "protocol.md section 8",
            SCENARIOS[each.scenario].what,
            Outcome.FAILED if each.violations else Outcome.OK,
            each.seconds,
            given.seed,
            detail="\n".join(each.violations),
            figures={
                "preemptions": float(each.preemptions),
                "crashes": float(each.crashes),
                "schedules": float(each.schedules),
                "states": float(each.states),
                "store_states": float(each.worlds),
                "ends": float(each.ends),
                "runs_of_real_code": float(each.runs),
            },
            note="complete within these bounds",
            again=given.again(),
        )
        for each in found
    ]


EXHAUSTIVE = Suite(
    SUITE,
    "every schedule of two writers, a reader and a sweeper within bounds, none left out",
    Word("--exhaustive", "search all schedules within the bounds", None),
    (
        CORES,
        Word("--preemptions", "search schedules with at most N preemptions (default 3)", natural, "N", default=3),
        Word("--crashes", "search schedules with at most N crashes (default 1)", natural, "N", default=1),
    ),
    run,
)
