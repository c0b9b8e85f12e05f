"""`python -m conformance.scripts [--rewrite] [SCRIPT ..]` runs golden scripts. It exits with 1 if a script fails."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.scripts import calls, happening, in_stream, parsing, reading, showing, sweeping, writing
from conformance.scripts.parsing import ScriptError
from conformance.scripts.running import check, rewrite, scripts

PAGES = (parsing, writing, reading, sweeping, happening, showing, in_stream, calls)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.scripts", description=__doc__)
    parser.add_argument("--rewrite", action="store_true", help="write the answers of today into the scripts, for review")
    parser.add_argument("--commands", action="store_true", help="print the commands that scripts may use")
    parser.add_argument("script", nargs="*", type=Path, help="default: all of tests/scripts")
    given = parser.parse_args()
    if given.commands:
        sys.stdout.write("\n\n".join((module.__doc__ or "").strip() for module in PAGES) + "\n")
        return 0
    found = given.script or scripts()
    if given.rewrite:
        changed = bad = 0
        for path in found:
            try:
                if rewrite(path):
                    changed += 1
                    sys.stdout.write(f"{path.name}\n")
            except ScriptError as error:
                bad += 1
                sys.stdout.write(f"{path.name} cannot be run: {error}\n")
        sys.stdout.write(f"{changed} of {len(found)} scripts rewritten, {bad} cannot be run\n")
        return bad > 0
    failures = [failure for path in found if (failure := check(path)) is not None]
    for failure in failures:
        sys.stdout.write(f"{failure.name}\n{failure.difference}\n\n")
    sys.stdout.write(f"{len(found)} scripts, {len(failures)} failed\n")
    return bool(failures)


if __name__ == "__main__":
    raise SystemExit(main())
