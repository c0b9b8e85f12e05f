"""One run of the cluster suite: the jobs run without faults first, then under the plan's faults; then their history is judged."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from conformance.harness import spark_driver
from conformance.history.checker import verdict
from conformance.history.files import write
from conformance.history.format import Fault, Poll, Read
from conformance.results import Outcome, Result, Span
from conformance.scenarios.cluster.deployment import Deployment
from conformance.scenarios.cluster.faults import Missed, strike
from conformance.scenarios.cluster.input import COLUMNS, ROWS, rows_of
from conformance.scenarios.cluster.plan import BY_NAME, Planned, make_plan
from conformance.scenarios.cluster.recording import events, kept
from conformance.scenarios.cluster.scene import Scene, usual
from conformance.scenarios.dangling_transactions import wait_for_deadlines
from conformance.scenarios.driver import Place, unfinished
from conformance.scenarios.forks import Forks
from conformance.scenarios.scenario import Say, Scenario
from metadata.records.names import is_persistent

SUITE = "cluster"
START_SECONDS = 900.0
RECOVER_SECONDS = 240.0
"""The struck parties must commit again within this time after the end of a fault. It allows for restarts on a busy machine."""
DRAIN_SECONDS = 600.0
SHOWN = 20


@dataclass
class Struck:
    """A fault that was injected.

    `hit`: what it hit, in words. `missed`: whether it found nothing to hit. `lasted`: seconds from the beginning of the fault to
    its end. `recovered`: seconds from the beginning of the fault to the first commit after its end. `gap`: the longest time between
    two successive commits, from the last commit before the fault to the first commit after its end. `recovered` and `gap` are of
    one struck party. They are None if the run did not wait for a commit before the next fault, or if the wait timed out.
    """

    fault: Planned
    began: float
    lasted: float
    hit: str
    missed: bool = False
    recovered: float | None = None
    gap: float | None = None


@dataclass
class Report:
    """The result of a run. `wrong`: what the run found wrong, in words. `findings`: what the history checker found. Both are empty
    if nothing is wrong. `quiet_rate`, `fault_rate`: the rows per second of all writers together, without faults and under faults.
    """

    seed: int
    struck: list[Struck] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    judged: str = ""
    quiet_rate: float = 0.0
    fault_rate: float = 0.0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


class Cluster(Scenario):
    """The cluster suite as a scenario. `kinds`: the kinds of faults (empty: all). `scene`: the jobs and topics (None:
    `scene.usual`). `quiet_seconds`: how long the rate is measured before the first fault. `wheel`: as in `Deployment`. `out`: an
    existing folder that gets the history and all logs; None: they are not kept.

    Raises ConfigurationError if a kind of fault does not exist, or if there is no source tree to build a wheel from.
    """

    name = "cluster suite"

    def __init__(
        self,
        faults: int,
        seed: int,
        say: Say,
        *,
        kinds: Sequence[str] = (),
        scene: Scene | None = None,
        quiet_seconds: float = 20.0,
        wheel: Path | None = None,
        out: Path | None = None,
    ) -> None:
        scene = scene or usual()
        self.report = Report(seed)
        self._plan = make_plan(faults, seed, kinds, scene.roles)
        self._say, self._quiet_seconds, self._out = say, quiet_seconds, out
        self._began = time.monotonic()
        self._folder = tempfile.TemporaryDirectory(prefix="txnsegment-cluster-", ignore_cleanup_errors=True)
        self._deployment = Deployment(Path(self._folder.name), say, wheel, scene=scene, seed=seed)

    def setup(self) -> None:
        self._deployment.start()

    def start(self) -> None:
        deployment, say = self._deployment, self._say
        deployment.warm(START_SECONDS)
        jobs, how = len(deployment.parties), deployment.disk.how
        say(f"three servers, master and two workers, {jobs} jobs run; the disk can be full by {how}")
        self.report.quiet_rate = _rate(deployment, lambda: time.sleep(self._quiet_seconds))
        say(f"in the quiet: {self.report.quiet_rate:.0f} rows/s")

    def faults(self) -> None:
        deployment, report = self._deployment, self.report
        if self._plan:
            report.fault_rate = _rate(deployment, lambda: _strike_all(deployment, self._plan, report, self._say))

    def check(self) -> list[str]:
        self._deployment.drain(DRAIN_SECONDS)
        _judge(self._deployment, self.report, self._out, self._say)
        return [*self.report.wrong, *self.report.findings]

    def figures(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in self.report.figures.items())

    def close(self) -> None:
        deployment, report = self._deployment, self.report
        report.figures |= {f"{name}_restarts": float(party.restarts) for name, party in deployment.parties.items()}
        report.figures["changing_restarts"] = float(deployment.changing_restarts)
        deployment.close()
        if self._out is not None:
            _keep_logs(Path(self._folder.name), self._out)
        self._folder.cleanup()
        report.seconds = time.monotonic() - self._began


def _rate(deployment: Deployment, phase: Callable[[], None]) -> float:
    """Return the rows per second that all writers committed during a phase."""
    began, before = time.monotonic(), deployment.batches()
    phase()
    return (deployment.batches() - before) * ROWS / (time.monotonic() - began)


def _strike_all(deployment: Deployment, plan: Sequence[Planned], report: Report, say: Say) -> None:
    for fault in plan:
        time.sleep(fault.quiet)
        began = time.monotonic()
        done = Struck(fault, began, 0.0, "")
        report.struck.append(done)
        try:
            done.hit = strike(deployment, fault)
        except Missed as missed:
            done.hit, done.missed = str(missed), True
        done.lasted = time.monotonic() - began
        after = ""
        if not fault.on_top or fault is plan[-1]:
            _recover(deployment, done)
            after = f"; the next commit after {done.recovered:.1f} s, longest gap {done.gap:.1f} s"
        say(f"{fault} of {len(plan)} ({done.hit}){after}" if not done.missed else f"{fault}: MISSED: {done.hit}")


def _recover(deployment: Deployment, done: Struck) -> None:
    """Wait until the struck parties (`all`: all writers) have committed again. Record the times of one party. Raises Late."""
    names = list(deployment.writers) if done.fault.party == "all" else [done.fault.party]
    before = {name: deployment.committed(name) for name in names}
    what = f"fault {done.fault}: that {' and '.join(names)} move on"
    deployment.wait(what, lambda: all(deployment.committed(name) > before[name] for name in names), RECOVER_SECONDS)
    watched = names[0]
    at = [moment / 1000 for moment in deployment.progress[watched].at]
    after = at[before[watched]]
    done.recovered = after - done.began
    window = [moment for moment in at if moment > done.began and moment <= after]
    earlier = max((moment for moment in at if moment <= done.began), default=done.began)
    done.gap = max(b - a for a, b in zip([earlier, *window], window, strict=False))


def _judge(deployment: Deployment, report: Report, out: Path | None, say: Say) -> None:
    """Sweep the cluster and read all rows once more. Let the history checker judge the recorded history."""
    forks = Forks()
    # A transaction can still be OPEN here, for example one of a changing process that was killed.
    report.wrong += forks.call(wait_for_deadlines, deployment.url)
    for topic in ("", *(topic for topic in deployment.topics if is_persistent(topic))):
        report.wrong += forks.call(unfinished, Place(deployment.url, topic))
    final: Read = forks.call(read_all, deployment.url, deployment.topics)
    batches = len(deployment.fed)
    for name in deployment.writers:
        if deployment.committed(name) != batches:
            report.wrong.append(f"{name}: {deployment.committed(name)} commits for {batches} batches of input")
    readers = [event for name in deployment.readers for event in kept(deployment.seen(name))]
    history = [*events(deployment, readers, final, report.seed), *kept(deployment.changes)]
    history += [Fault(one.began * 1000, str(one.fault)) for one in report.struck]
    if out is not None:
        write(out / "history.jsonl", sorted(history, key=lambda event: event.at))
    judged = verdict(history)
    report.judged = str(judged)
    report.findings += [str(one) for one in judged.findings]
    changes = Counter(changed((deployment.changes / "done").read_text().splitlines()))
    transactions, rows = len(deployment.writers) * batches, len(final.rows)
    micro_batches = len({(event.stream, event.batch) for event in readers if isinstance(event, Poll)})
    reads = sum(isinstance(event, Read) for event in readers)
    report.figures |= {
        "rows": float(rows),
        "transactions": float(transactions),
        "micro_batches": float(micro_batches),
        "batch_reads": float(reads),
        **{what: float(count) for what, count in sorted(changes.items())},
    }
    say(f"while they ran: {', '.join(f'{count} {what}' for what, count in sorted(changes.items()))}")
    say(f"{rows} rows of {transactions} transactions, {micro_batches} micro-batches, {reads} batch reads; {judged}")


def changed(notes: Iterable[str]) -> Iterator[str]:
    """Yield the name under which each line is counted. `notes`: the lines that `changing` wrote to `done`."""
    names = {"split": "splits", "merge": "merges", "compact": "compactions", "trim": "trims", "sweep": "sweeps"}
    for note in notes:
        kind, how, *_ = note.split(maxsplit=2)
        yield "refused_changes" if how == "failed:" else names[kind]


def read_all(url: str, topics: Sequence[str]) -> Read:
    """Run one batch read of all these topics by the real source's classes, without Spark. Call this in a process of its own."""
    options = {"serviceUrl": url, "topics": json.dumps(list(topics)), "includeMetadata": "true"}
    began = time.monotonic() * 1000
    rows = rows_of(pa.Table.from_batches(spark_driver.read_batch(options)).select(list(COLUMNS)))
    return Read(time.monotonic() * 1000, began, "last-reader", tuple(topics), rows, final=True, ordered=False)


def _keep_logs(folder: Path, out: Path) -> None:
    for log in folder.rglob("*"):
        if log.is_file() and (log.suffix == ".log" or log.name in ("stdout", "stderr", "done")):
            kept = out / "logs" / log.relative_to(folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(log.read_bytes())


def results(report: Report, wrong: Sequence[str]) -> list[Result]:
    """Return the report as results: one for each kind of fault, and one for all errors that the scenario found."""
    found = []
    by_kind: dict[str, list[Struck]] = defaultdict(list)
    for one in report.struck:
        by_kind[one.fault.kind.name].append(one)
    for name, all_ in sorted(by_kind.items()):
        missed = [str(one.fault) + ": " + one.hit for one in all_ if one.missed]
        late = [str(one.fault) for one in all_ if one is report.struck[-1] and one.recovered is None and not one.fault.on_top]
        recovered = [one.recovered for one in all_ if one.recovered is not None]
        gaps = [one.gap for one in all_ if one.gap is not None]
        figures = {"times": float(len(all_))}
        if recovered and gaps:
            figures |= {
                "next_commit_median_s": statistics.median(recovered),
                "next_commit_longest_s": max(recovered),
                "longest_gap_s": max(gaps),
            }
        found.append(
            Result(
                SUITE,
                name,
                "5",
                f"After {BY_NAME[name].says}, the jobs go on.",
                Outcome.FAILED if missed or late else Outcome.OK,
                sum(one.lasted for one in all_),
                report.seed,
                "\n".join([*(f"missed: {what}" for what in missed), *(f"did not recover: {what}" for what in late)]),
                figures,
                tuple(_span(one) for one in all_),
            )
        )
    figures = {"quiet_rows_per_s": report.quiet_rate, "fault_rows_per_s": report.fault_rate, **report.figures}
    spans = tuple(_span(one) for one in report.struck)
    says = "Nothing is lost, doubled or split, keys keep their order, each version is committed once."
    outcome = Outcome.FAILED if wrong else Outcome.OK
    detail = "\n".join(wrong[:SHOWN])
    found.append(Result(SUITE, "exactly once", "8", says, outcome, report.seconds, report.seed, detail, figures, spans))
    return found


def _span(one: Struck) -> Span:
    return Span(one.fault.party, f"{one.fault.kind.name} ({one.hit})", one.began, one.began + one.lasted, one.missed)
