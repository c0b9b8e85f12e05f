"""`python -m benchmarks [name ...]`: all benchmarks, or some of them; exits 1 if a figure misses its mark."""

from __future__ import annotations

import sys

from benchmarks import at_rest, commits, compaction, consumer, history, memory, microbatch, models, segments, throughput
from benchmarks.measure import machine

ALL = {
    "throughput": throughput,
    "microbatch": microbatch,
    "commits": commits,
    "consumer": consumer,
    "history": history,
    "segments": segments,
    "models": models,
    "memory": memory,
    "compaction": compaction,
    "at_rest": at_rest,
}


def main(names: list[str]) -> int:
    print(machine())
    missed = 0
    for name in names or list(ALL):
        report = ALL[name].run()
        report.show()
        missed += sum(not claim.holds for claim in report.claims)
    print(f"{missed} figures miss their mark" if missed else "every figure holds")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
