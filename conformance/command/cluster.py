"""The suite `--cluster`: real ZooKeeper servers, a real Spark cluster, and faults from a seeded plan."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from conformance.command.progress import Progress
from conformance.command.simulation import RECORD
from conformance.command.words import Given, Suite, Word, natural, seconds
from conformance.domains import DOMAINS, TOPIC, domain
from conformance.results import Result
from conformance.scenarios.cluster.plan import BY_NAME
from conformance.scenarios.cluster.scene import SCALING, chosen

SUITE = "cluster"


def run(given: Given, progress: Progress) -> list[Result]:
    """Run the suite and return its results. The result `exactly once` has the rates and latencies of the run, for charts."""
    from conformance.history.files import read
    from conformance.report.histories import series
    from conformance.scenarios.cluster.run import Cluster, results
    from conformance.scenarios.scenario import run as run_scenario

    scene = chosen(scale=bool(given["scaling"]), domain=given["domain"])
    progress.begin(SUITE, None)
    with tempfile.TemporaryDirectory(prefix="txnsegment-conformance-") as temporary:
        out: Path = given["logs"] or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        cluster = Cluster(
            given["faults"],
            given.seed,
            progress.say,
            kinds=kinds(given["kinds"]),
            scene=scene,
            quiet_seconds=given["quiet_seconds"],
            wheel=given["wheel"],
            out=out,
        )
        ran = run_scenario(cluster)
        history = out / "history.jsonl"  # a run that fails early writes no history
        measured = series(read(history)) if history.exists() else ()
        if given["record"] is not None and history.exists():
            shutil.copyfile(history, given["record"])
    return [
        replace(result, again=given.again(), series=measured if result.name == "exactly once" else result.series)
        for result in results(cluster.report, ran.wrong)
    ]


def kinds(text: str | None) -> list[str]:
    """Return the names in the value of `--kinds`; none without the option."""
    return text.split(",") if text else []


CLUSTER = Suite(
    SUITE,
    "real ZooKeeper servers, a real Spark cluster, and faults",
    Word("--cluster", "start them, inject the faults of a plan that --seed draws, and count every row", None),
    (
        Word("--faults", "number of faults (default 20)", natural, "N", default=20),
        Word("--kinds", f"inject only these, comma-separated: {', '.join(BY_NAME)}", metavar="KINDS"),
        Word("--domain", f"domain of the jobs' topics: {', '.join(DOMAINS)} (default {TOPIC})", domain, "D"),
        Word("--scaling", SCALING, None),
        Word("--quiet-seconds", "measure the rate for this time before the first fault (default 20)", seconds, "S", default=20.0),
        Word("--wheel", "the wheel to install (default: one built from this source tree)", Path, "FILE"),
        Word("--logs", "keep the history and all logs in this folder", Path, "FOLDER", output=True),
        RECORD,
    ),
    run,
)
