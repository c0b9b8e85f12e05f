"""The suite `--simulate N`: schedules of the real protocol code. `--trace` prints one schedule; `--record` writes its history."""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.command.progress import Progress
from conformance.command.words import Given, Suite, UsageError, Word, count
from conformance.results import Outcome, Result, Series

if TYPE_CHECKING:
    from conformance.simulator.schedules import Outcome as Schedule
    from conformance.simulator.schedules import Summary

CORES = Word("--cores", "number of processes (default 1)", count, "N", default=1)
RECORD = Word(
    "--record", "write the history to FILE, for --check; of several schedules, that of a failed one", Path, "FILE", output=True
)
TRACE = Word("--trace", "print the schedule of --seed step by step", None, default=False, output=True)
KIND = Word(
    "--kind",
    "others: wide (all but migrations, also long), splitting, acking, moving, compacting, backing, instream, migrating",
    str,
    "NAME",
    default="",
)
SUITE = "simulator"
CHUNK = 100
ENOUGH = 10
"""The number of schedules with violations after which a run stops."""
SAYS = "Whatever interleaves, crashes, comes late, twice or never: no schedule of the real code breaks an invariant."
SECTION = "protocol.md section 8"


def run(given: Given, progress: Progress) -> list[Result]:
    from conformance.simulator.casts.kinds import KINDS

    wanted: int = given["simulate"]
    if given["trace"] and wanted != 1:
        raise UsageError("--trace shows one schedule.", advice="Write --simulate 1 --trace, with its --seed.")
    if given["kind"] not in ("", *KINDS):
        raise UsageError(f"--kind {given['kind']} is no kind of schedules.", advice=f"There are {', '.join(KINDS)}.")
    progress.begin(SUITE, wanted)
    total, rates = _simulate(given, progress)
    failed = [_failed(given, seed, said) for seed, said in sorted(total.violations)[:ENOUGH]]
    raised = {result.seed for result in failed if not result.history}
    if given["trace"] and given.seed not in raised:
        seen = _again(given.seed, given["kind"], trace=True)
        sys.stdout.write("\n".join([*seen.trace, f"digest {seen.digest}", ""]))
    if given["record"] is not None:
        seed = next((result.seed for result in failed if result.history), failed[0].seed if failed else given.seed)
        if seed in raised:
            progress.say(
                f"the code raised something out of schedule {seed}: it has no history, and {given['record']} is not written"
            )
        else:
            _record(given["record"], seed, given["kind"], progress)
    return [_whole(given, total, rates), *failed]


def _simulate(given: Given, progress: Progress) -> tuple[Summary, list[tuple[float, float]]]:
    """Run all schedules. Return their summary, and their rate over time: (seconds since the start, schedules per second)."""
    from conformance.simulator.schedules import Summary

    total, rates = Summary(), list[tuple[float, float]]()
    began = before = time.perf_counter()
    since = 0
    for part in summaries(given["cores"], given["simulate"], given.seed, given["kind"]):
        total.add(part)
        progress.advance(part.schedules)
        now, since = time.perf_counter(), since + part.schedules
        if now - before >= 0.5:
            rates.append((now - began, since / (now - before)))
            before, since = now, 0
        if len(total.violations) >= ENOUGH:
            break
    total.seconds = time.perf_counter() - began
    return total, rates


def summaries(cores: int, wanted: int, seed: int, only: str) -> Iterator[Summary]:
    """Run the schedules of `wanted` seeds, from `seed` on, in chunks and on `cores` processes. Yield the summary of each chunk, in
    order. `only`: the kind of schedules; "" for the usual ones.
    """
    starts = range(seed, seed + wanted, CHUNK)
    counts = [min(CHUNK, seed + wanted - start) for start in starts]
    from conformance.simulator.quiet import quiet, quiet_forever

    if cores == 1:
        with quiet():  # all chunks share the caches of `quiet`
            yield from map(partial(_chunk, only), counts, starts)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=spawn, initializer=quiet_forever) as pool:
        try:
            yield from pool.map(partial(_chunk, only), counts, starts)
        finally:
            pool.shutdown(cancel_futures=True)


def _chunk(only: str, count: int, seed: int) -> Summary:
    """Run the schedules of `count` seeds, from `seed` on. If the product raises an error, run these schedules again, each alone:
    then the error is counted as a violation of the schedule that raised it.
    """
    from conformance.simulator.schedules import Summary, simulate

    try:
        return simulate(count, seed, only=only)
    except Exception as error:
        if count == 1:
            return Summary(schedules=1, violations=[(seed, f"the code raised {type(error).__name__}: {error}")])
    found = Summary()
    for each in range(seed, seed + count):
        found.add(_chunk(only, 1, each))
    return found


def _whole(given: Given, total: Summary, rates: list[tuple[float, float]]) -> Result:
    figures = {
        "schedules": float(total.schedules),
        "schedules_per_s": total.schedules / max(total.seconds, 1e-9),
        "commits": float(total.commits),
        "reads": float(total.reads),
        "crashes": float(total.crashes),
        "steps": float(total.steps),
        "bad": float(len(total.violations)),
    }
    bad = [seed for seed, _ in sorted(total.violations)]
    return Result(
        SUITE,
        f"schedules {given.seed} to {given.seed + given['simulate'] - 1}",
        SECTION,
        SAYS,
        Outcome.FAILED if bad else Outcome.OK,
        total.seconds,
        given.seed,
        detail=f"{len(bad)} of {total.schedules} broke one: {', '.join(map(str, bad))}." if bad else "",
        figures=figures,
        series=(Series("schedules", "a second", tuple(rates)),) if len(rates) > 1 else (),
        again=given.again(),
    )


def _failed(given: Given, seed: int, said: str) -> Result:
    """Run a failed schedule once more, to record its history. Return the result of this schedule for the report."""
    from conformance.history.checker import check
    from conformance.history.findings import WORDS
    from conformance.report.histories import clock, spans

    again = given.again(seed, simulate=1, cores=None)
    began = time.perf_counter()
    try:
        found = _again(seed, given["kind"])
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-4:])
        detail = f"{said}\n{where}"
        return Result(SUITE, f"schedule {seed}", SECTION, SAYS, Outcome.FAILED, 0.0, seed, detail, again=again)
    findings = check(found.events)
    first = next(iter(findings), None)
    lines = found.violations or [said, "It did not come again: the same seed is not the same run."]
    return Result(
        SUITE,
        f"schedule {seed}",
        f"{SECTION}, invariant {first.invariant}" if first and first.invariant else SECTION,
        f"It never happens that {WORDS[first.anomaly][1]}." if first else SAYS,
        Outcome.FAILED,
        time.perf_counter() - began,
        seed,
        detail="\n".join(lines),
        figures={"steps": float(found.steps), "events": float(len(found.events))},
        history=spans(found.events, findings),
        clock=clock(found.events),
        again=again,
    )


def _again(seed: int, only: str, *, trace: bool = False) -> Schedule:
    from conformance.simulator.quiet import quiet
    from conformance.simulator.schedules import schedule

    with quiet():
        return schedule(seed, only=only, digest=True, trace=trace)


def _record(file: Path, seed: int, only: str, progress: Progress) -> None:
    from conformance.history.files import write

    found = _again(seed, only)
    write(file, found.events)
    progress.say(f"the history of schedule {seed} is in {file}: {len(found.events)} events, {len(found.violations)} violations")


SIMULATION = Suite(
    SUITE,
    "schedules of the real protocol code under a scheduler that interleaves, crashes and delays",
    Word("--simulate", "run N schedules, from --seed on", count, "N"),
    (CORES, KIND, RECORD, TRACE),
    run,
    implied_by=(RECORD.name, TRACE.name),
    implied=1,
)
