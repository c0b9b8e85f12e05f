"""`python -m tests.fuzz`: coverage-guided fuzzing of all targets, or of the named targets, each in its own process (`make fuzz`).

An input that fails is kept in `tests/fuzz/corpus/<target>`, where `make test` replays it. Commit it together with the fix. The
inputs that each target has learnt stay in `out/fuzz/<target>`, and the next run begins with them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
LEARNT = ROOT / "out" / "fuzz"
INPUT_SECONDS = 10
"""Time limit for one input, in seconds. The limit allows for the instrumentation and a busy machine. An input that takes longer is
reported as an endless loop.
"""
MEGABYTES = 2048
NO_ATHERIS = """\
atheris is not installed: {error}
It comes with the extra `fuzz` (pip install -e '.[fuzz]'), with wheels for CPython 3.11 to 3.14 on Linux x86-64. On other machines
use one of those (make clean; make fuzz PYTHON=python3.11), or `make properties`: it draws hostile input without a measure of
coverage."""
PACKAGES = ["ledgers", "metadata", "pulsar_protocol", "spark_txn_source", "spark_txn_sink", "txnsegment"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="name the targets")
    given, more = parser.parse_known_args()
    if given.one:
        return one(given.targets[0], more)
    try:
        import atheris  # noqa: F401
    except ImportError as error:
        return fail(NO_ATHERIS.format(error=error))
    from tests.fuzz.targets import TARGETS

    if given.list:
        say("\n".join(TARGETS))
        return 0
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        return fail(f"There is no target {unknown[0]}. There are: {', '.join(TARGETS)}.")
    wrong = [name for name in given.targets or TARGETS if not fuzz(name, given.seconds)]
    if wrong:
        return fail(f"Inputs that raise what is not ours, or take too long: {', '.join(wrong)}. They lie in {CORPUS}.")
    return 0


def fuzz(name: str, seconds: int) -> bool:
    """Fuzz a target in another process. Return whether no input failed."""
    learnt, kept = LEARNT / name, CORPUS / name
    learnt.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEGABYTES}", "-max_len=8192"]
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, *limits, "-verbosity=0", "-print_final_stats=1"]
    ran = subprocess.run([*command, f"-artifact_prefix={kept}/", str(learnt), str(kept)], cwd=ROOT, capture_output=True, text=True)
    stats = dict(line.removeprefix("stat::").split(":", 1) for line in ran.stderr.splitlines() if line.startswith("stat::"))
    say(json.dumps({"target": name, "inputs": int(stats.get("number_of_executed_units", 0)), "found": ran.returncode != 0}))
    if ran.returncode:
        say(ran.stdout[-4000:] + ran.stderr[-6000:])
    return ran.returncode == 0


def one(name: str, arguments: list[str]) -> int:
    """Fuzz a target in this process, with the arguments of libFuzzer. The call ends the process."""
    import atheris

    with atheris.instrument_imports(include=PACKAGES):
        from tests.fuzz import targets

    atheris.Setup([sys.argv[0], *arguments], lambda data: targets.run(name, data))
    atheris.Fuzz()
    return 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
