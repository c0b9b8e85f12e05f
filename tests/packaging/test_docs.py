"""The things that README.md, docs/*.md and the Makefile name exist: commands with their options, files, tests, headings and
sections. The counts of cases in these texts are right. Each test fails if it finds nothing to check.
"""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer

import txnsegment
from conformance.command.suites import SUITES
from conformance.command.words import UsageError, read
from conformance.simulator.casts.kinds import KINDS
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
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
COMMAND = typer.main.get_command(build())
ROOMS = ("metadata", "ledgers", "spark_txn_source", "spark_txn_sink", "txnsegment", "conformance")
OTHERS = ("examples", "benchmarks", "docs", "tests")
blocks = runpy.run_path(str(ROOT / "docs" / "readme.py"))["blocks"]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def codes(text: str) -> Iterator[str]:
    """Yield the texts in backquotes."""
    return (found[1] for found in re.finditer(r"(?<!`)`([^`\n]+)`(?!`)", text))


def shown(text: str) -> list[str]:
    """Return the texts that may be commands: lines of blocks, indented lines, and texts in backquotes."""
    lines = [line.strip() for line in text.splitlines() if line.startswith(("    ", "\t"))]
    lines += [line for block in blocks(text) for line in block.text.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in (*lines, *codes(text))]


def commands(text: str, program: str) -> list[list[str]]:
    """Return the words of each shown command of a program. `program`: a regular expression for the beginning of the command."""
    found = ((line, re.match(rf"(?:{program}) ", line)) for line in shown(text))
    return [shlex.split(line[start.end() :]) for line, start in found if start is not None]


def filled(words: list[str]) -> list[str]:
    """Return a command with a value for each placeholder: `N`, `[--every 1]`, `sqlite|zookeeper` (the first), `$(nproc)`."""
    values = {"N": "1", "S": "1"}
    bare = (word.strip("[]").partition("|")[0] for word in words if word not in ("..", "..."))
    return [values.get(word, re.sub(r"\$+\(nproc\)", "2", word)) for word in bare if word != "$(MUTANTS_ARGS)"]


def unknown(words: list[str]) -> str:
    """Return the part of a txnsegment command that does not exist. Return an empty text if all of it exists."""
    command, rest = COMMAND, words
    while rest and hasattr(command, "commands"):  # a group of commands
        if rest[0].startswith("-") or rest[0] == "...":
            break
        inner = command.commands.get(rest[0])
        if inner is None:
            return f"no command {rest[0]}"
        command, rest = inner, rest[1:]
    if command.name == "conformance":
        return not_read(rest)
    known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)} | {"--help"}
    given = {word.strip("[]").partition("=")[0] for word in rest}
    return ", ".join(sorted(flag for flag in given if flag.startswith("--") and flag not in known))


def not_read(words: list[str]) -> str:
    """Return the error with which the suites refuse these words. Return an empty text if they accept them."""
    try:
        kind = read(filled(words), SUITES, "python -m conformance").said.get("kind")
    except UsageError as error:
        return str(error)
    return "" if kind is None or kind in KINDS else f"no kind {kind}"


def test_commands_exist_with_their_options() -> None:
    found = [(page.name, words) for page in PAGES for words in commands(text_of(page), "txnsegment")]
    assert len(found) > 60
    assert [(page, *words, wrong) for page, words in found if (wrong := unknown(words))] == []


def test_documented_options_of_suites_exist() -> None:
    texts = {page.name: text_of(page) for page in PAGES} | {"Makefile": MAKEFILE}
    program = r"(?:again: )?\S*python -m conformance"
    found = [(name, words) for name, text in texts.items() for words in commands(text, program)]
    found += [(name, ["--mutants", *shlex.split(w[1])]) for name, text in texts.items() for w in made(text, "mutants")]
    assert len(found) > 20
    assert [(name, *words, wrong) for name, words in found if (wrong := not_read(words))] == []


def made(text: str, target: str) -> Iterator[re.Match[str]]:
    """Yield the calls of a Makefile target that a text shows with arguments: `make chaos CHAOS_ARGS="--only topics"`. Group 1 of
    each match has the arguments.
    """
    pattern = re.compile(rf"make {target}(?: [A-Z]+_ARGS=\"?([^\"]*)\"?)?")
    return (found for line in shown(text) if (found := pattern.fullmatch(line)) and found[1])


def test_documented_options_of_other_programs_exist(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option that a page shows is in the `--help` of its program. If the help lists the values of an option, the value on the
    page is one of them.
    """
    texts = {page.name: text_of(page) for page in PAGES} | {"Makefile": MAKEFILE}
    found: list[tuple[str, str, list[str]]] = []
    for name, text in texts.items():
        for line in shown(text):
            start = re.match(r"\S*python -m ((?:conformance\.|benchmarks)[\w.]*)", line)
            found += [] if start is None else [(name, start[1], shlex.split(line[start.end() :]))]
        found += [(name, "conformance.scenarios", shlex.split(given[1])) for given in made(text, "chaos")]
    programs = {program for _, program, _ in found}
    assert programs >= {"conformance.scenarios", "conformance.power", "conformance.scripts", "benchmarks"}
    assert len(found) > 12
    monkeypatch.setenv("COLUMNS", "1000")
    wrong = []
    for program in {program for _, program, _ in found}:
        monkeypatch.setattr("sys.argv", [program, "--help"])
        with suppress(SystemExit):
            is_package = hasattr(importlib.import_module(program), "__path__")
            importlib.import_module(f"{program}.__main__" if is_package else program).main()
        lists = re.split(r"^(?:options|positional arguments):$", capsys.readouterr().out, maxsplit=1, flags=re.MULTILINE)[1]
        flags = set(re.findall(r"--[\w-]+", lists))
        assert "--help" in flags
        choices = {flag: set(names.split(",")) for flag, names in re.findall(r"(--[\w-]+) \{([\w,]+)\}", lists)}
        names = set(re.findall(r"[a-z_]+", lists))
        for page, _, words in (one for one in found if one[1] == program):
            for before, word in zip(["", *words], (w.strip("[]") for w in words), strict=False):
                open_choice = choices.get(before.strip("[]"), {word, *word.split("|")})
                is_known = word in flags if word.startswith("--") else set(word.split("|")) <= open_choice
                if program == "benchmarks" and not word.startswith("--"):
                    is_known = word in names
                wrong += [] if is_known or word.startswith("$") else [(page, program, word)]
    assert wrong == []


def test_targets_of_the_makefile_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    found = [(page.name, line.split()[1]) for page in PAGES for line in shown(text_of(page)) if re.match(r"make [a-z]", line)]
    assert len(found) > 25
    assert [one for one in found if one[1] not in targets] == []


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)


def test_headings_that_links_name_exist() -> None:
    def anchors(page: Path) -> set[str]:
        return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings(page)}

    found = [(page, *link) for page in PAGES for link in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", text_of(page))]
    assert len(found) > 10
    assert [(p.name, link, to) for p, link, to in found if to not in anchors(p.parent / link if link else p)] == []


NUMBERS = r"\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*"


def test_sections_that_the_code_names_exist() -> None:
    """Each heading and section that a text names exists: `(docs/in_stream.md, Reading)`, `protocol.md sections 7 and 8.14`."""
    by_page = {page.name: headings(page) for page in PAGES}
    protocol = text_of(ROOT / "docs" / "protocol.md")
    bodies = {text.partition(".")[0]: text for text in re.split(r"^## ", protocol, flags=re.MULTILINE)}
    sections = bodies.keys() | {f"8.{number}" for number in re.findall(r"^(\d+)\. ", bodies["8"], re.MULTILINE)}
    files = [path for room in (*ROOMS, *OTHERS) for path in sorted((ROOT / room).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): text_of(path) for path in (*files, *PAGES)}
    wrong, seen = [], {"headings": 0, "numbers": 0, "words": 0}
    for name, text in texts.items():
        joined = re.sub(r"\n\s*(?:# )?", " ", text)
        for page, heading in re.findall(r"(?:docs/)?(\w+\.md), ([A-Z][\w -]*?)(?=[).;:,])", joined):
            seen["headings"] += 1
            wrong += [(name, page, heading)] if page in by_page and heading not in by_page[page] else []
        own = r"|\b" if name == "docs/protocol.md" else ""
        for numbers, word in re.findall(rf"(?:protocol\.md\)?,? {own})sections? ({NUMBERS})(?:, ([A-Z]\w+))?", joined):
            each = re.findall(r"\d+(?:\.\d+)?", numbers)
            seen["numbers"] += len(each)
            wrong += [(name, number) for number in each if number not in sections]
            if word:
                seen["words"] += 1
                wrong += [(name, each[-1], word)] if f"**{word}" not in bodies[each[-1]] else []
    assert wrong == []
    assert seen["headings"] > 20
    assert seen["numbers"] > 90
    assert seen["words"] > 5


PLACEHOLDER = re.compile(r"\b(?:[A-Z]+TABLE|TO-?DO|FIXME|TBD|XXX)(?![\w-])")


def prose(text: str) -> str:
    """Return the text outside of blocks and backquotes."""
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def test_pages_contain_no_placeholders() -> None:
    """No page has a placeholder for a missing table or sentence (QUICKTABLE, TODO) outside of code."""
    assert PLACEHOLDER.findall("QUICKTABLE; TODO: FIXME, TBD. (XXX)") == ["QUICKTABLE", "TODO", "FIXME", "TBD", "XXX"]
    texts = {page.name: prose(text_of(page)) for page in PAGES}
    assert min(len(text.split()) for text in texts.values()) > 100, "a page has nearly no words, so the check finds nothing"
    assert [(name, found) for name, text in texts.items() for found in PLACEHOLDER.findall(text)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, look = set[Path](), [ROOT / "README.md"]
    while look:
        page = look.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#:]+\.md)", text_of(page))
        look += [to for link in links if (to := (page.parent / link).resolve()) not in seen]
    assert [page.name for page in PAGES if page.resolve() not in seen] == []
    assert len(seen) > 10


def test_files_and_tests_that_pages_name_exist() -> None:
    modules = {path.name for room in (*ROOMS, *OTHERS) for path in (ROOT / room).rglob("*.py")} | {"pyspark_txnsegment.py"}
    tests = "\n".join(text_of(path) for path in (ROOT / "tests").rglob("*.py"))
    folders = "|".join((*ROOMS, *OTHERS))
    wrong, seen = [], {"paths": 0, "modules": 0, "tests": 0}
    for page in PAGES:
        for code in codes(text_of(page)):
            if re.fullmatch(rf"(?:{folders})/[\w./*]+", code):
                seen["paths"] += 1
                wrong += [] if any(True for _ in ROOT.glob(code)) else [(page.name, code)]
            elif re.fullmatch(r"\w+\.py", code):
                seen["modules"] += 1
                wrong += [] if code in modules else [(page.name, code)]
            elif re.fullmatch(r"test_\w+", code):
                seen["tests"] += 1
                wrong += [] if f"def {code}(" in tests else [(page.name, code)]
    assert wrong == []
    assert seen["paths"] > 50
    assert seen["modules"] > 8
    assert seen["tests"] > 20


PARTS = {
    "": txnsegment,
    "cluster": Cluster,
    "cluster.topics": ClusterTopics,
    "cluster.transactions": ClusterTransactions,
    "cluster.subscriptions": ClusterSubscriptions,
    "cluster.retention": ClusterRetention,
    "cluster.scaling": ClusterScaling,
}


def test_calls_in_the_table_have_these_parameters() -> None:
    """Each call in the table of docs/reference.md exists with its parameters: `cluster.topics.create(name, *, segments=1)`. A call
    such as `.list(pattern=None)` belongs to the object of the call before it.
    """
    wrong, seen, owner = [], 0, ""
    table = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("| call | does |\n")[2].partition("\n\n")[0]
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
