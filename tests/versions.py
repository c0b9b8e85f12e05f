"""`python -m tests.versions`: the tests with the oldest, or the newest, versions of all dependencies (`make versions`).

Each run makes a new environment in `out/versions`. The oldest versions are the lower bounds in pyproject.toml, so these bounds are
tested. The newest versions are those that pip finds within the bounds. The tools that run the tests are always the newest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "out" / "versions"
EXTRAS = ("conformance", "demo", "otel", "sasl", "ui")
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "opentelemetry-sdk", "polars", "duckdb", "nbclient", "ipykernel")
DEFAULT = ("tests/metadata", "tests/ledgers", "tests/txnsegment", "tests/spark", "tests/spark_txn_source", "tests/spark_txn_sink")
"""Tests that call our code through the dependencies. Left out are the tests of the package itself and the long scenarios."""
ELSEWHERE = "tests/spark/test_connect.py"
"""Spark Connect needs a newer protobuf than txnsegment, so these tests cannot run with the oldest versions."""


def lowest(requirements: list[str]) -> dict[str, str]:
    """Return the lower bound of each requirement, by name: "pyarrow>=24,<28" gives {"pyarrow": "24"}. A requirement without a lower
    bound has no entry.

    >>> lowest(["pyspark>=4.2,<5", "types-setuptools"])
    {'pyspark': '4.2'}
    """
    found = {}
    for requirement in requirements:
        name, equals, bounds = requirement.partition(">=")
        if equals:
            found[name] = bounds.split(",")[0]
    return found


def constraints() -> str:
    """Return a constraints file for pip with the oldest versions of all dependencies of the package and of its extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    return "".join(f"{name}=={version}\n" for name, version in lowest(wanted).items())


def environment(which: str) -> Path:
    """Make the environment of the oldest or the newest versions, and return its Python."""
    folder = FOLDER / which
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = folder / "bin" / "python"
    bounds = folder / "constraints.txt"
    bounds.write_text(constraints() if which == "oldest" else "", encoding="utf-8")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--constraint", str(bounds), "-e", f".[{','.join(EXTRAS)}]", *TOOLS]
    subprocess.run(install, check=True, cwd=ROOT)
    subprocess.run([*pip, "freeze", "--exclude-editable"], check=True)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("--only", choices=("oldest", "newest"), help="default: both")
    parser.add_argument("tests", nargs="*", default=DEFAULT, help="what pytest takes (default: %(default)s)")
    given = parser.parse_args()
    failed = []
    for which in ("oldest", "newest") if given.only is None else (given.only,):
        print(f"=== the {which} versions", flush=True)  # noqa: T201
        command = [
            str(environment(which)),
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--dist",
            "loadfile",
            "-p",
            "no:cacheprovider",
            f"--ignore={ELSEWHERE}",
        ]
        if subprocess.run([*command, "-m", "not pulsar and not slow", *given.tests], cwd=ROOT).returncode:
            failed.append(which)
    print(f"failed: {', '.join(failed)}" if failed else "all tests passed")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
