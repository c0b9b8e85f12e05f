"""Tests of `python -m conformance --store URL`. Some run it as a user does, on a store that another distribution registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.command.main import main
from conformance.results import Outcome
from conformance.store.area import Sizes
from conformance.store.prefixed import PrefixedStore
from conformance.store.run import run
from conformance.store.site import Traits
from metadata.common.errors import ConfigurationError, OptionError
from metadata.records.paths import Key, KeyRange
from metadata.store import open_store
from metadata.store.contract import MetadataStore

ROOT = Path(__file__).parents[3]
THIRD_PARTY = """
from conformance.store.faults import FAULTS
from metadata.store import open_store

def opened(url, *, clock, create):
    store = open_store("file://" + url.partition("://")[2], clock=clock, create=create)
    for fault in FAULTS:
        if url.startswith(fault.name + "://"):
            return fault.wrap(store)
    return store
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution with a correct store and two faulty stores, as pip would. Return the folder for their data."""
    installed, data = tmp_path / "installed", tmp_path / "data"
    info = installed / "third_party-1.0.dist-info"
    info.mkdir(parents=True)
    data.mkdir()
    (installed / "third_party.py").write_text(THIRD_PARTY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    names = ("third", "index-scan-by-prefix", "numbers-are-used-again")
    lines = "".join(f"{name} = third_party:opened\n" for name in names)
    (info / "entry_points.txt").write_text(f"[txnsegment.metadata_stores]\n{lines}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), str(ROOT)]))
    monkeypatch.syspath_prepend(str(installed))
    return data


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "conformance", *arguments], capture_output=True, text=True, timeout=120)


def test_a_third_partys_store_passes_with_processes_and_leaves_nothing(third_party: Path) -> None:
    store = open_store(f"file://{third_party}")
    mine = store.put(Key("/mine", "p"), b"kept")
    ran = command("--store", f"third://{third_party}", "--seed", "5", "--only", "[rs]e[cq]*")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 failed, 0 not applicable" in ran.stdout
    assert store.view().scan(KeyRange("/", "/~", "")) == [mine]
    store.close()


@pytest.mark.parametrize(
    ("scheme", "case"),
    [
        ("index-scan-by-prefix", "indexes/index-ranges-are-exact"),
        ("numbers-are-used-again", "crashes/numbers-of-killed-processes-are-not-used-again"),
    ],
)
def test_a_third_partys_store_with_a_fault_fails_by_name(third_party: Path, scheme: str, case: str) -> None:
    ran = command("--store", f"{scheme}://{third_party}", "--seed", "5", "--only", case)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"failed: {case}" in ran.stdout
    assert f"python -m conformance --store {scheme}://{third_party} --only {case} --seed 5" in ran.stdout


def test_the_command_on_memory() -> None:
    ran = command("--store", "memory://", "--only", "[rc]*")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "not applicable: crashes/records-and-indexes-agree-after-a-kill" in ran.stdout
    assert "This store lives in one process" in ran.stdout


def test_a_case_that_cannot_run_is_not_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", "memory://x", "--only", "crashes/*"]) == 2
    assert "2 not applicable" in capsys.readouterr().out


def test_bad_arguments_of_the_store_command_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("x")
    assert main(["--store", f"file://{tmp_path}/taken"]) == 2
    assert "cannot be created" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="nobody://"):
        run("nobody://x", 0)
    with pytest.raises(OptionError, match="nothing-like-it"):
        run("memory://x", 0, only="nothing-like-it")


def test_a_store_without_groups_is_not_asked_for_them() -> None:
    found = {r.name: r for r in run("memory://x", 0, only="groups/*", traits=Traits(processes=False, groups=False))}
    assert found["groups/or-nothing-of-it"].outcome is Outcome.NOT_APPLICABLE
    assert found["groups/a-group-does-all-of-it"].outcome is Outcome.OK


def test_an_unexpected_error_is_a_failure() -> None:
    def opener(url: str) -> MetadataStore:
        store = open_store(url)
        store.append = None  # type: ignore[assignment, method-assign]
        return store

    (found,) = run("memory://x", 0, only="sequences/two*", opener=opener)
    assert found.outcome is Outcome.OK
    (found,) = run("memory://x", 3, only="sequences/each*", opener=opener)
    assert found.outcome is Outcome.FAILED
    assert "TypeError" in found.detail
    assert (found.seed, found.suite, found.ok) == (3, "store", False)


def test_the_same_seed_does_the_same() -> None:
    def values(seed: int) -> list[object]:
        seen: list[object] = []

        class Watched(PrefixedStore):
            def write(self, *writes: object) -> list[object]:  # type: ignore[override]
                seen.append(writes)
                return super().write(*writes)  # type: ignore[return-value]

        (found,) = run(
            "memory://x", seed, only="ranges/any*", sizes=Sizes(rounds=2), opener=lambda url: Watched(open_store(url), "/w")
        )
        assert found.outcome is Outcome.OK, found.detail
        return seen

    assert values(1) == values(1)
    assert values(1) != values(2)
