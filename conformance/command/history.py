"""The suite `--check FILE ..`: the history checker judges recorded histories."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

from conformance.command.progress import Progress
from conformance.command.words import Given, Suite, UsageError, Word
from conformance.results import Outcome, Result

SUITE = "history"
SHOWN = 100
"""The maximum number of findings of one kind that a result describes."""
KEPT = 2_000
"""The maximum number of operations that a report draws. Of a longer history it draws those around the findings."""


def run(given: Given, progress: Progress) -> list[Result]:
    """Check the merged history. Return one result for the whole history, and one for each kind of violation that was found."""
    from conformance.history.checker import verdict
    from conformance.history.files import FormatError, merge, read
    from conformance.history.findings import WORDS, Finding
    from conformance.history.format import Start
    from conformance.history.judging import described
    from conformance.report.histories import chosen, clock, series, spans

    files: list[Path] = given["check"]
    progress.begin(SUITE, len(files))
    began = time.perf_counter()
    histories = []
    for file in files:
        progress.at(str(file))
        try:
            histories.append(read(file))
        except (FormatError, OSError) as error:
            raise UsageError(f"{file} is no history that can be judged: {error}") from error
        progress.advance()
    events = merge(histories)
    found = verdict(events)
    by_anomaly: dict[str, list[Finding]] = defaultdict(list)
    for finding in found.findings:
        by_anomaly[finding.anomaly].append(finding)
    seed = next((event.seed for event in events if isinstance(event, Start) and event.seed is not None), given.seed)
    outcome = Outcome.FAILED if found.findings else Outcome.OK if found.commits or found.reads else Outcome.NOT_APPLICABLE
    details = {
        Outcome.OK: "",
        Outcome.FAILED: f"{len(found.findings)} findings: {', '.join(f'{len(all_)} {name}' for name, all_ in by_anomaly.items())}.",
        Outcome.NOT_APPLICABLE: "Nobody committed or read anything: there is nothing to judge.",
    }
    whole = Result(
        SUITE,
        ", ".join(map(str, files)),
        "protocol.md section 8",
        "What clients were told, what readers got and what became of the records breaks no invariant.",
        outcome,
        time.perf_counter() - began,
        seed,
        detail=details[outcome],
        figures={"events": float(found.events), "commits": float(found.commits), "reads": float(found.reads)},
        series=series(events),
        clock=clock(events),
        note="with the store's records" if found.store else "as clients saw it",
        again=given.again(),
    )
    kinds = [
        Result(
            SUITE,
            anomaly,
            f"protocol.md section 8, invariant {all_[0].invariant}" if all_[0].invariant else "",
            f"It never happens that {WORDS[anomaly][1]}.",
            Outcome.FAILED,
            0.0,
            seed,
            detail="\n".join([*(described(finding) for finding in all_[:SHOWN]), *_more(len(all_) - SHOWN)]),
            history=tuple(chosen(spans(events, all_), KEPT)),
            clock=clock(events),
            again=given.again(),
        )
        for anomaly, all_ in by_anomaly.items()
    ]
    return [whole, *kinds]


def _more(count: int) -> list[str]:
    return [f"... and {count} more"] if count > 0 else []


HISTORY = Suite(
    SUITE,
    "recorded histories, judged from the outside",
    Word("--check", "judge this recorded history (several: merged by time)", Path, "FILE", many="+"),
    (),
    run,
)
