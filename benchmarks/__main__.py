"""`python -m benchmarks [name ...]`: runs all benchmarks, or the named ones. Exits with 1 if a figure misses its target."""

from __future__ import annotations

import argparse
import difflib

from benchmarks import (
    at_rest,
    catching,
    commits,
    compaction,
    consumer,
    history,
    many,
    memory,
    microbatch,
    models,
    segments,
    skipping,
    start,
    throughput,
)
from benchmarks.many import logs
from benchmarks.measure import machine
from txnsegment.cli.working import working

ALL = {
    "throughput": throughput,
    "microbatch": microbatch,
    "start": start,
    "commits": commits,
    "consumer": consumer,
    "history": history,
    "segments": segments,
    "models": models,
    "memory": memory,
    "compaction": compaction,
    "at_rest": at_rest,
    "catching": catching,
    "many": many,
    "logs": logs,
    "skipping": skipping,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Exits with 1 if a figure misses its target.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}; default: all")
    names = parser.parse_args().names or list(ALL)
    for unknown in (name for name in names if name not in ALL):
        (near,) = difflib.get_close_matches(unknown, ALL, n=1, cutoff=0)
        parser.error(f"there is no benchmark {unknown}; did you mean {near}?")
    print(machine())
    missed = 0
    for number, name in enumerate(names, 1):
        with working(f"Measuring {name}, {number} of {len(names)}"):
            report = ALL[name].run()
        report.show()
        missed += sum(not claim.holds for claim in report.claims)
    print(f"{missed} figures miss their mark" if missed else "every figure holds")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
