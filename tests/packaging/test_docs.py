"""What README.md and docs/*.md name is there: commands with their options, files, tests, headings, and numbers of cases."""

from __future__ import annotations

import inspect
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import txnsegment
from conformance.command.suites import SUITES
from conformance.command.words import COMMON
from conformance.store.faults import FAULTS
from conformance.store.suite import CASES
from txnsegment.cli.app import build
from txnsegment.cluster import Cluster
from txnsegment.retention import ClusterRetention
from txnsegment.scaling import ClusterScaling
from txnsegment.subscriptions import ClusterSubscriptions
from txnsegment.topics import ClusterTopics
from txnsegment.transactions import ClusterTransactions

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = typer.main.get_command(build())
ROOMS = ("metadata", "ledgers", "spark_txn_source", "spark_txn_sink", "txnsegment", "conformance")
SUITE_WORDS = {word.flag for suite in SUITES for word in (suite.chosen_by, *suite.words)} | {word.flag for word in COMMON}
blocks = runpy.run_path(str(ROOT / "docs" / "readme.py"))["blocks"]


def codes(text: str) -> Iterator[str]:
    """What stands in backquotes."""
    return (found[1] for found in re.finditer(r"(?<!`)`([^`\n]+)`(?!`)", text))


def commands(text: str, program: str) -> list[list[str]]:
    """The words of each command of this program: in blocks, indented, and in backquotes."""
    shown = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    shown += [command for block in blocks(text) for command in block.text.replace("\\\n", " ").splitlines()]
    found = (re.sub(r"\s+#.*", "", line) for line in (*shown, *codes(text)))
    return [shlex.split(line)[len(program.split()) :] for line in found if line.startswith(f"{program} ")]


def unknown(words: list[str]) -> str:
    """What of a txnsegment command does not exist; else an empty text."""
    command, rest = COMMAND, words
    while rest and hasattr(command, "commands"):  # a group
        if rest[0].startswith("-") or rest[0] == "...":
            break
        inner = command.commands.get(rest[0])
        if inner is None:
            return f"no command {rest[0]}"
        command, rest = inner, rest[1:]
    if command.name == "conformance":
        return ", ".join({w for w in rest if w.startswith("--")} - SUITE_WORDS)
    known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)} | {"--help"}
    given = {word.strip("[]").partition("=")[0] for word in rest}
    return ", ".join(sorted(flag for flag in given if flag.startswith("--") and flag not in known))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist_with_their_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = {" ".join(words): found for words in commands(text, "txnsegment") if (found := unknown(words))}
    suites = [re.split(r"\.\w", " ".join(words), maxsplit=1)[0] for words in commands(text, "python -m conformance")]
    wrong |= {line: more for line in suites if (more := {w for w in line.split() if w.startswith("--")} - SUITE_WORDS)}
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_headings_that_links_name_exist(page: Path) -> None:
    def headings(of: Path) -> set[str]:
        found = re.findall(r"^#+ (.*)$", of.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}

    named = re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text(encoding="utf-8"))
    assert [(link, heading) for link, heading in named if heading not in headings(page.parent / link if link else page)] == []


def test_sections_that_the_code_names_exist() -> None:
    """`(docs/in_stream.md, Reading)` in a docstring, `protocol.md section 7` in a comment."""
    headings = {page.name: re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES}
    sections = {heading.partition(".")[0] for heading in headings["protocol.md"]}
    wrong = []
    for file in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        text = re.sub(r"\n\s*(?:# )?", " ", file.read_text(encoding="utf-8"))
        named = re.findall(r"(?:docs/)?(\w+\.md), ([A-Z][\w -]*?)(?=[).;:,])", text)
        wrong += [(file.name, *one) for one in named if one[0] in headings and one[1] not in headings[one[0]]]
        wrong += [(file.name, number) for number in re.findall(r"protocol\.md section (\d+)", text) if number not in sections]
    assert wrong == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, look = set[Path](), [ROOT / "README.md"]
    while look:
        page = look.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text(encoding="utf-8"))
        look += [to for link in links if (to := (page.parent / link).resolve()) not in seen]
    assert [page.name for page in PAGES if page.resolve() not in seen] == []


def test_files_and_tests_that_pages_name_exist() -> None:
    def is_there(name: str) -> bool:
        return any(True for _ in ROOT.glob(name)) or any(True for _ in (ROOT / "metadata").rglob(name))

    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    wrong = []
    for page in PAGES:
        for code in codes(page.read_text(encoding="utf-8")):
            file = re.fullmatch(r"(?:tests|conformance|metadata|examples|docs|ledgers|spark_\w+|txnsegment)/[\w./*]+", code)
            if (file or re.fullmatch(r"\w+_rules\.py", code)) and not is_there(code):
                wrong.append((page.name, code))
            if re.fullmatch(r"test_\w+", code) and f"def {code}(" not in tests:
                wrong.append((page.name, code))
    assert wrong == []


PARTS = {
    "": txnsegment,
    "cluster": Cluster,
    "cluster.topics": ClusterTopics,
    "cluster.transactions": ClusterTransactions,
    "cluster.subscriptions": ClusterSubscriptions,
    "cluster.retention": ClusterRetention,
    "cluster.scaling": ClusterScaling,
}


def test_calls_of_the_readme_have_these_parameters() -> None:
    """The table of calls: `cluster.topics.create(name, *, segments=1)`, and behind it `.list(pattern=None)` of the same."""
    wrong, seen, owner = [], 0, ""
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| call | does |\n")[2].partition("\n\n")[0]
    for row in table.splitlines()[1:]:
        for code in codes(row.split(" | ")[0]):
            path, _, rest = code.partition("(")
            owner, _, name = path.rpartition(".") if not path.startswith(".") else (owner, "", path[1:])
            call = getattr(PARTS[owner], name, None)
            names = [one.partition("=")[0].strip(" *") for one in rest.rstrip(")").split(",")]
            known = set() if call is None else set(inspect.signature(call).parameters)
            wrong += [f"{code}: {one or name}" for one in names if call is None or (one and one not in known)]
            seen += 1
    assert seen > 30
    assert wrong == []


def test_numbers_of_cases_are_those_of_the_code() -> None:
    stores = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    correctness = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
    assert f"runs {len(CASES)} cases" in stores
    assert f"| {len(CASES)} cases of the store contract" in correctness
    assert f"holds {len(FAULTS)} deliberate faults" in stores
