"""Every golden script is a test. `make scripts` rewrites the answers for review."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.scripts import FOLDER, ScriptError, check, rewrite, scripts

NOT_YET = {15}
"""The numbers of the failures of protocol.md section 9 that have no golden script. Failure A15 needs a sharded store, which does
not exist yet.
"""


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    failure = check(path)
    if failure is not None:
        pytest.fail(failure.difference, pytrace=False)


def test_each_named_failure_has_a_script() -> None:
    named = [int(found[1]) for path in scripts() if (found := re.match(r"a(\d\d)_", path.name))]
    assert set(named) == set(range(1, 37)) - NOT_YET


def test_a_wrong_answer_fails_readably_and_can_be_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("# Why.\n\ntopic a\nd1: commit app=q version=7 a:3\n----\ntxn 0_0 ABORTED\n\n# The end.\n")
    failure = check(path)
    assert failure is not None
    assert "-txn 0_0 ABORTED" in failure.difference
    assert "+txn 0_0 COMMITTED, commit 1: a/1:0..2" in failure.difference
    assert rewrite(path)
    text = path.read_text()
    assert text.startswith("# Why.\n")
    assert text.endswith("commit 1: a/1:0..2\n\n# The end.\n")
    assert check(path) is None
    assert not rewrite(path)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("topic a\n", "no line ----"),
        ("topic a\n\n----\n", "an empty line"),
        ("vanish a\n----\n", "no command vanish"),
        ("topic a colour=red\n----\n", "topic knows no colour"),
        ("topic a\ncrash d1 before nirvana\n----\n", "no call nirvana"),
        ("topic a\ncrash d1 after decide\n----\n", "nobody met"),
        ("topic a\ndelay d1 register\nd1: commit app=q version=1 a:1\n----\n", "never arrived"),
        ("topic a\nread\n----\n", "read what?"),
        ("d1: register\n----\n", "nothing open"),
        ("topic a segments=2\nd1: commit app=q version=1 a:1\n----\n", "a is not one segment"),
    ],
)
def test_a_script_with_an_unknown_or_ineffective_command_fails(script: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(script)
    failure = check(path)
    assert failure is not None
    assert says in failure.difference
    with pytest.raises(ScriptError):
        rewrite(path)


def test_a_folder_without_scripts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="no scripts"):
        scripts(tmp_path)
    assert scripts()[0].parent == FOLDER
