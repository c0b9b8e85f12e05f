"""`--cluster`: real ZooKeeper servers, a real Spark cluster, and faults after a seeded plan."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from conformance.cluster.plan import BY_NAME
from conformance.command.progress import Progress
from conformance.command.simulation import RECORD
from conformance.command.words import Given, Suite, Word, natural, seconds
from conformance.domains import DOMAINS, TOPIC, domain
from conformance.results import Result

SUITE = "cluster"


def run(given: Given, progress: Progress) -> list[Result]:
    """The suite's results; rate and latency over time belong to the one that counts the rows."""
    from conformance.cluster.run import results
    from conformance.cluster.run import run as run_cluster
    from conformance.history.files import read
    from conformance.report.histories import series

    progress.begin(SUITE, None)
    with tempfile.TemporaryDirectory(prefix="txnsegment-conformance-") as temporary:
        out: Path = given["logs"] or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        kinds = given["kinds"].split(",") if given["kinds"] else ()
        report = run_cluster(
            given["faults"],
            given.seed,
            progress.say,
            kinds=kinds,
            domain=given["domain"],
            quiet_seconds=given["quiet_seconds"],
            wheel=given["wheel"],
            out=out,
        )
        history = out / "history.jsonl"  # not there if the run did not come to its end
        measured = series(read(history)) if history.exists() else ()
        if given["record"] is not None and history.exists():
            shutil.copyfile(history, given["record"])
    return [
        replace(result, again=given.again(), series=measured if result.name == "exactly once" else result.series)
        for result in results(report)
    ]


CLUSTER = Suite(
    SUITE,
    "real ZooKeeper servers, a real Spark cluster, and faults",
    Word("--cluster", "start them, break things after a plan made from --seed, count every row", None),
    (
        Word("--faults", "how many (default 20)", natural, "N", default=20),
        Word("--kinds", f"only these, comma-separated: {', '.join(BY_NAME)}", metavar="KINDS"),
        Word("--domain", f"of the jobs' topics: {', '.join(DOMAINS)} (default {TOPIC})", domain, "D", default=TOPIC),
        Word("--quiet-seconds", "how long the rate is measured before the first fault (default 20)", seconds, "S", default=20.0),
        Word("--wheel", "the wheel to install (default: one built from this source tree)", Path, "FILE"),
        Word("--logs", "leave the history and all logs in this folder", Path, "FOLDER", output=True),
        RECORD,
    ),
    run,
)
