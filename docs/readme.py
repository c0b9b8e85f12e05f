"""Finds the programs and commands in README.md and docs, and runs the quick start. A program or command is a fenced block whose
first line names a language and a purpose.

python docs/readme.py quickstart    run the quick start of README.md and compare its output with the page
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
GUIDES = ("etl.md", "replays.md", "from_kafka.md", "from_delta.md", "from_pulsar.md", "runbook.md")
PAGES = (README, *(README.parent / "docs" / name for name in ("tour.md", "reference.md", "deployment.md", *GUIDES)))
"""The pages whose programs and commands are run, in this order."""


@dataclass(frozen=True)
class Block:
    """A fenced block. `language` and `purpose`: the words after its opening fence, such as `python quickstart`. `line`: the number
    of the line with its opening fence.
    """

    language: str
    purpose: str
    text: str
    line: int

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block, without comments, with continued lines joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        bare = (re.sub(r"\s+#.*", "", line).strip() for line in lines)
        return [" ".join(line.split()) for line in bare if line and not line.startswith("#")]


def blocks(text: str) -> list[Block]:
    """Return all fenced blocks of a page, in order. Raises ValueError for a fence that is never closed."""
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("```"):
            lines.append(line)
        elif opened is None:
            opened, lines = (number, line.removeprefix("```").strip()), []
        else:
            language, _, purpose = opened[1].partition(" ")
            found.append(Block(language, purpose, "".join(f"{kept}\n" for kept in lines), opened[0]))
            opened = None
    if opened is not None:
        raise ValueError(f"line {opened[0]}: the block is not closed")
    return found


def block(language: str, purpose: str) -> Block:
    """Return the only block of README.md with this language and purpose. Raises ValueError if there is none or more than one."""
    found = [b for b in blocks(README.read_text(encoding="utf-8")) if (b.language, b.purpose) == (language, purpose)]
    if len(found) != 1:
        raise ValueError(f"README.md has {len(found)} blocks '{language} {purpose}'; one is needed")
    return found[0]


def run_python(text: str, **environment: str) -> str:
    """Run a program in an empty folder, with this Python's environment activated, and return its standard output.

    Raises subprocess.CalledProcessError, after printing the program's standard error.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    without = {
        k: v for k, v in os.environ.items() if k not in ("TXNSEGMENT_SERVICE_URL", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    }
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(text, encoding="utf-8")
        ran = subprocess.run(
            ["python", str(program)],
            cwd=folder,
            env={**without, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": folder, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    if ran.returncode:
        print(ran.stderr, file=sys.stderr)  # noqa: T201 - why it failed
        ran.check_returncode()
    return ran.stdout


def quickstart() -> str:
    """Run the quick start in a new cluster. Returns the difference between its output and README.md; empty if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder, "cluster").as_uri()
        printed = run_python(block("python", "quickstart").text, TXNSEGMENT_SERVICE_URL=url).rstrip("\n") + "\n"
    said = block("text", "quickstart").text
    return "\n".join(difflib.unified_diff(said.splitlines(), printed.splitlines(), "README.md", "printed", lineterm=""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quickstart"])
    parser.parse_args()
    if difference := quickstart():
        sys.exit(f"The output of the quick start differs from README.md:\n{difference}")
    sys.stdout.write(block("text", "quickstart").text)


if __name__ == "__main__":
    main()
