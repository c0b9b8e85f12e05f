"""Tests of `python -m conformance`: its output, its errors, its files, and its commands that repeat a failure."""

from __future__ import annotations

import io
import itertools
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conformance.command.main import main
from conformance.command.progress import EVERY, Bar, Lines, shown
from conformance.command.suites import SUITES
from conformance.command.words import COMMON, Suite, UsageError, Word, count, parser, read
from conformance.mutants.catalogue import by_name
from conformance.mutants.hunting import LIMIT
from conformance.mutants.planting import Mutant, planted
from conformance.mutants.seams import Swap
from conformance.report.document import from_json
from conformance.report.run import Report
from conformance.results import Outcome, Result
from conformance.scenarios.cluster.plan import BY_NAME
from conformance.simulator.search.exhaustive import CRASHES, PREEMPTIONS
from conformance.store.area import Sizes
from txnsegment.cli.app import build


def _raises(real: Callable[..., int], undecided: Iterable[int], end_of_log: int) -> int:
    return 1 // 0


RAISES = Mutant("raises", ("6",), "The cut is a number.", (Swap("metadata.rules.transitions:cut", _raises),))


@dataclass
class Ran:
    code: int
    out: str
    err: str


def run(*arguments: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    return Ran(main(arguments, out=out, err=err, draw=lambda: 4711), out.getvalue(), err.getvalue())


def reported(folder: Path, *arguments: str) -> tuple[Ran, Report]:
    ran = run(*arguments, "--report", str(folder / "report.json"))
    return ran, from_json((folder / "report.json").read_text())


# --- arguments ----------------------------------------------------------------------------------------------------


def test_without_a_suite_the_command_prints_help() -> None:
    ran = run()
    assert ran.code == 2
    assert ran.out == ""
    assert all(suite.chosen_by.flag in ran.err for suite in SUITES)
    assert run("--seed", "3").code == 2
    asked = run("--help")
    assert (asked.code, asked.out, asked.err) == (0, ran.err, "")
    assert run("--store", "memory://", "--help").out == ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--sead 3", "There is no option --sead. Did you mean --seed?"),
        ("--exaustive", "There is no option --exaustive. Did you mean --exhaustive?"),
        ("--simulat=4", "There is no option --simulat. Did you mean --simulate?"),
        ("--zzz", "There is no option --zzz. --help lists those there are."),
        ("frob", "'frob' stands alone"),
        ("--simulate 0", "--simulate: 0 is not above 0"),
        ("--simulate many", "--simulate: invalid"),
        ("--simulate", "--simulate: expected one argument"),
        ("--simulate 1 --seed -4", "--seed"),
        ("--cluster --quiet-seconds inf", "inf is no number of seconds"),
        ("--store memory:// --cores 2", "--cores belongs to --simulate and --exhaustive and --mutants, not to --store"),
        ("--simulate 5 --only x", "--only belongs to --store, not to --simulate"),
        ("--simulate 5 --trace", "--trace shows one schedule"),
        ("--simulate 5 --report r.pdf", ".pdf is no form of a report"),
        ("--simulate 5 --report /nowhere/at/all/r.txt", "its folder does not exist"),
        ("--store nobody://x", "nobody://"),
        ("--store memory:// --only nothing-like-it", "nothing-like-it"),
        ("--check /nowhere/history", "is no history"),
        ("--scripts no_such_script", "There is no script"),
        ("--cluster --kinds earthquake", "There is no fault earthquake"),
        ("--cluster --scaling --domain persistent", "--scaling is of topic://"),
        ("--mutants no-such-mutant", "no-such-mutant"),
    ],
)
def test_mistakes_are_named(arguments: str, says: str) -> None:
    ran = run(*shlex.split(arguments))
    assert ran.code == 2, ran.out
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_words_are_the_same_in_all_suites() -> None:
    def nothing(given: object, progress: object) -> list[Result]:
        return []

    def suite(name: str, *words: Word) -> Suite:
        return Suite(name, name, Word(f"--{name}", name, None), words, nothing)

    same, other = Word("--size", "how big", count), Word("--size", "how wide", count)
    assert read(["--a", "--b", "--size", "3"], [suite("a", same), suite("b", same)], "p").said["size"] == 3
    with pytest.raises(ValueError, match="another word"):
        parser([suite("a", same), suite("b", other)], "p")
    with pytest.raises(UsageError, match="--size belongs to --a, not to --b"):
        read(["--b", "--size", "3"], [suite("a", same), suite("b")], "p")


def test_defaults_are_those_of_the_suites() -> None:
    defaults = {word.name: word.default for suite in SUITES for word in suite.words}
    assert defaults["records"] == Sizes().records
    assert defaults["limit"] == LIMIT
    assert (defaults["preemptions"], defaults["crashes"]) == (PREEMPTIONS, CRASHES)
    kinds = next(word for suite in SUITES for word in suite.words if word.name == "kinds")
    assert all(name in kinds.says for name in BY_NAME)
    assert {word.name for word in COMMON}.isdisjoint(defaults)


# --- results ------------------------------------------------------------------------------------------------------


def test_the_seed_comes_first() -> None:
    assert run("--simulate", "1", "--seed", "7").out.splitlines()[0] == "seed 7"
    assert run("--simulate", "1").out.splitlines()[0] == "seed 0"
    drawn = run("--simulate", "1", "--seed", "random").out.splitlines()
    assert drawn[0] == "seed 4711"
    assert "schedules 4711 to 4711" in drawn[1]


def test_exit_codes() -> None:
    sound = run("--store", "memory://", "--only", "records/*")
    assert (sound.code, "0 failed" in sound.out) == (0, True)
    not_shown = run("--store", "memory://", "--only", "crashes/*")
    assert (not_shown.code, "2 not applicable" in not_shown.out) == (2, True)
    with planted(by_name("version-ignored")):
        assert run("--store", "memory://", "--only", "records/*").code == 1


def test_several_suites_in_one_go(tmp_path: Path) -> None:
    script = "a01_late_commit_hits_no_successor"
    ran, report = reported(tmp_path, "--simulate", "3", "--scripts", script, "--store", "memory://", "--only", "groups/*")
    assert ran.code == 0, ran.out
    assert [name for name, _ in itertools.groupby(result.suite for result in report.results)] == ["scripts", "store", "simulator"]
    assert report.command[:2] == ("--simulate", "3")
    assert next(result for result in report.results if result.suite == "scripts").says.startswith("A1. A late commit")


def test_a_failing_store_case_has_a_timeline_and_a_command_that_fails_again(tmp_path: Path) -> None:
    with planted(by_name("version-ignored")):
        ran, report = reported(tmp_path, "--store", "memory://", "--only", "histories/*", "--seed", "3")
        assert ran.code == 1
        failed = next(result for result in report.results if result.outcome is Outcome.FAILED)
        assert failed.name == "histories/threads"
        assert any(span.wrong for span in failed.history)
        assert "again: python -m conformance --store memory:// --only histories/threads --seed 3\n" in ran.out
        again = run(*failed.again)
        assert again.code == 1
        assert f"failed: {failed.name}" in again.out
    assert run(*failed.again).code == 0


def test_a_failing_schedule_is_done_again_exactly(tmp_path: Path) -> None:
    history, page = tmp_path / "history.jsonl", tmp_path / "page.html"
    with planted(by_name("cut-at-the-end")):
        ran, report = reported(tmp_path, "--simulate", "100", "--seed", "5", "--record", str(history), "--report", str(page))
        assert ran.code == 1
        whole, first, *_ = report.results
        assert whole.again == ("--simulate", "100", "--seed", "5")
        line = next(
            line for line in ran.out.splitlines() if f"again: python -m conformance --simulate 1 --seed {first.seed}" in line
        )
        assert shlex.split(line)[4:] == list(first.again)
        _, second = reported(tmp_path, *first.again)
    one, same = second.results
    assert one.name == f"schedules {first.seed} to {first.seed}"
    assert (same.name, same.detail, same.history, same.figures) == (first.name, first.detail, first.history, first.figures)
    assert first.clock == "events"
    assert any(span.wrong for span in first.history)
    assert page.read_text().count('class="timeline"') == len(report.results) - 1
    judged = run("--check", str(history))
    assert judged.code == 1
    assert any(text in judged.out for text in first.detail.splitlines())
    assert run(*first.again).code == 0


def test_an_error_of_the_product_is_a_failure_of_its_seed(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with planted(RAISES):
        ran = run("--simulate", "150", "--record", str(history))
        assert ran.code == 1
        lines = ran.out.splitlines()
        assert any(line.strip() == "the code raised ZeroDivisionError: integer division or modulo by zero" for line in lines)
        again = next(line for line in lines if "--simulate 1 --seed" in line)
        repeated = run(*shlex.split(again)[4:])
    assert repeated.code == 1
    assert "ZeroDivisionError" in repeated.out
    assert "it has no history" in ran.err
    assert not history.exists()


def test_a_schedule_step_by_step_and_its_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--trace", "--seed", "3").code == 0
    first = capsys.readouterr().out
    assert first.splitlines()[-1].startswith("digest ")
    assert len(first.splitlines()) > 20
    run("--simulate", "1", "--trace", "--seed", "3")
    assert capsys.readouterr().out == first
    ran = run("--record", str(tmp_path / "history"), "--seed", "3")
    assert "the history of schedule 3 is in" in ran.err
    judged, report = reported(tmp_path, "--check", str(tmp_path / "history"))
    assert judged.code == 0, judged.out
    assert report.results[0].seed == 3


def test_cores_change_nothing_but_the_time(tmp_path: Path) -> None:
    def figures(cores: str) -> dict[str, float]:
        _, report = reported(tmp_path, "--simulate", "250", "--seed", "50", "--cores", cores)
        return {name: value for name, value in report.results[0].figures.items() if name != "schedules_per_s"}

    assert figures("1") == figures("2")


def test_an_empty_history_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text('{"event":"start","at":0,"recorder":"test","format":1}\n')
    ran = run("--check", str(tmp_path / "empty"))
    assert ran.code == 2
    assert "there is nothing to judge" in ran.out


def test_the_exhaustive_search_prints_its_bounds() -> None:
    ran = run("--exhaustive", "--preemptions", "0", "--crashes", "0")
    assert ran.code == 0
    assert "preemptions: 0; crashes: 0; schedules: " in ran.out


def test_a_script_that_fails_shows_the_difference(tmp_path: Path) -> None:
    script = tmp_path / "wrong.txt"
    script.write_text("# A topic is not made twice.\n\ntopic a\n----\nno such answer\n")
    ran = run("--scripts", str(script))
    assert ran.code == 1
    assert "    : A topic is not made twice." not in ran.out
    assert "    A topic is not made twice." in ran.out
    assert "-no such answer" in ran.out
    assert f"again: python -m conformance --scripts {script}" in ran.out


def test_a_mutant_report_names_the_detecting_suite(tmp_path: Path) -> None:
    ran, report = reported(tmp_path, "--mutants", "version-ignored", "--limit", "10")
    assert ran.code == 0, ran.out + ran.err
    (found,) = report.results
    assert found.name == "version-ignored"
    assert found.note
    assert found.again == ("--mutants", "version-ignored", "--limit", "10", "--seed", "0")


# --- as a process -------------------------------------------------------------------------------------------------


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_a_suite_loads_only_what_it_runs() -> None:
    code = "import sys; from conformance.command.main import main; main(%r); print([m for m in %r if m in sys.modules])"
    assert python(code % (["--help"], ["pyspark", "greenlet", "pyarrow", "kazoo"])).stdout.splitlines()[-1] == "[]"
    store = python(code % (["--store", "memory://", "--only", "records/*"], ["pyspark", "greenlet"]))
    assert store.stdout.splitlines()[-1] == "[]", store.stderr


def test_a_missing_package_is_named() -> None:
    code = (
        "import sys; sys.modules['greenlet'] = None\nfrom conformance.command.main import main; sys.exit(main(['--simulate', '1']))"
    )
    ran = python(code)
    assert ran.returncode == 2
    assert "needs the package greenlet, which is not installed. Install what the suites need: pip install" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("words", [["--simulate", "10000000"], ["--mutants", "keep-tail", "--beside", "10000000"]], ids=" ".join)
@pytest.mark.parametrize(("number", "code", "says"), [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "")])
def test_a_run_can_be_ended(number: signal.Signals, code: int, says: str, words: list[str]) -> None:
    """A signal ends a run with all of its processes. If a process remained, it would keep the standard error open, and
    `communicate` would raise TimeoutExpired.
    """
    arguments = [sys.executable, "-m", "conformance", *words]
    # The run must obey SIGINT, as in a terminal. If the process that runs the tests ignored SIGINT, the run would ignore it, too.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: heed() and None
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "seed 0\n"
        assert " to do" in running.stderr.readline()
        running.send_signal(number)
        out, err = running.communicate(timeout=120)
    assert running.returncode == code, err
    assert says in err
    assert "ok" not in out


def test_the_command_line_has_the_conformance_command() -> None:
    shown = CliRunner().invoke(build(), ["conformance", "--help"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("usage: txnsegment conformance SUITE")
    assert CliRunner().invoke(build(), ["conformance"]).exit_code == 2
    wrong = CliRunner().invoke(build(), ["conformance", "--sead", "1"])
    assert (wrong.exit_code, "Did you mean --seed?" in wrong.stderr) == (2, True)
    done = subprocess.run(
        [Path(sys.executable).with_name("txnsegment"), "conformance", "--store", "memory://", "--only", "groups/*"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "0 failed, 0 not applicable" in done.stdout


# --- progress -----------------------------------------------------------------------------------------------------


class Hand:
    """A clock that only `sleep` moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_progress_lines_are_printed_at_intervals() -> None:
    out, clock = io.StringIO(), Hand()
    assert not out.isatty()
    with shown(out, clock) as progress:
        assert isinstance(progress, Lines)
        progress.begin("store", 40)
        for step in range(30):
            progress.at(f"case {step}")
            clock.sleep(EVERY / 10)
            progress.advance()
        progress.say("a fault struck")
    assert out.getvalue() == (
        "     0 s  store: 40 to do\n"
        "    10 s  store: 10 of 40 done\n"
        "    20 s  store: 20 of 40 done\n"
        "    30 s  store: 30 of 40 done\n"
        "    30 s  a fault struck\n"
    )


def test_a_terminal_has_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    with shown(out, Hand()) as progress:
        assert isinstance(progress, Bar)
        progress.begin("store", 4)
        progress.at("records/[bold]")
        progress.advance(3)
        progress.say("[red] is no markup")
    assert "[red] is no markup" in out.getvalue()
    assert "store: records/[bold]" in out.getvalue()
    assert "3/4" in out.getvalue()
