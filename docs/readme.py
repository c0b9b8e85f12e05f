"""README.md as a program sees it: its fenced blocks, its option tables, its quick start.

python docs/readme.py quickstart    run the quick start and compare what it prints with what README.md says
python docs/readme.py tables        write the option tables into README.md, from the declarations that the parser reads
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
TABLE = re.compile(r"(<!-- options of the (source|sink)[^\n]*-->\n).*?(<!-- end -->\n)", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its fence (`python quickstart`: language and what it is for), its text, its line."""

    language: str
    purpose: str
    text: str
    line: int

    @property
    def commands(self) -> list[str]:
        """Of a block of shell commands: one for each line, comments left out, continued lines joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        bare = (re.sub(r"\s+#.*", "", line).strip() for line in lines)
        return [" ".join(line.split()) for line in bare if line and not line.startswith("#")]


def blocks(text: str) -> list[Block]:
    """All fenced blocks, in order. Raises ValueError for a fence that is never closed."""
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
        raise ValueError(f"README.md, line {opened[0]}: the block is not closed")
    return found


def block(language: str, purpose: str) -> Block:
    """The one block of README.md with these words. Raises ValueError."""
    found = [b for b in blocks(README.read_text(encoding="utf-8")) if (b.language, b.purpose) == (language, purpose)]
    if len(found) != 1:
        raise ValueError(f"README.md has {len(found)} blocks '{language} {purpose}'; one is needed")
    return found[0]


def with_tables(text: str) -> str:
    """README.md with the option tables as they are declared."""
    from metadata.common.options import option_table
    from spark_txn_sink.options import SINK
    from spark_txn_source.options import SOURCE

    tables = {"source": option_table(SOURCE.options), "sink": option_table(SINK.options)}
    return TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n{found[3]}", text)


def run_python(text: str, **environment: str) -> str:
    """What a program prints, run in an empty folder by the Python that runs this, the way an activated environment does it.

    Raises subprocess.CalledProcessError; what went to standard error is shown before.
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
    """Run it. An empty text if it prints what README.md says, else the difference."""
    printed = run_python(block("python", "quickstart").text).rstrip("\n") + "\n"
    said = block("text", "quickstart").text
    return "\n".join(difflib.unified_diff(said.splitlines(), printed.splitlines(), "README.md", "printed", lineterm=""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quickstart", "tables"])
    if parser.parse_args().what == "tables":
        README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if difference := quickstart():
        sys.exit(f"The quick start prints something else than README.md says:\n{difference}")
    sys.stdout.write(block("text", "quickstart").text)


if __name__ == "__main__":
    main()
