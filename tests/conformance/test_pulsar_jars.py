"""The class path of the Pulsar broker: Maven is asked once, and a missing or failing Maven gives an error that says what to do.

A program of the test stands in for Maven.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.pulsar_jars import POM, VERSION, classpath_in
from metadata.common.errors import ConfigurationError

MAVEN = """#!/bin/sh
echo asked >> "{folder}/asked"
{then}
for word in "$@"; do case "$word" in -Dmdep.outputFile=*) printf '%s' "{folder}/a.jar:{folder}/b.jar" > "${{word#*=}}";; esac; done
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a Maven that finds two jars. It notes each call in the file `asked`."""
    for jar in ("a.jar", "b.jar"):
        (tmp_path / jar).touch()
    stand_in(tmp_path, then=":")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def stand_in(folder: Path, then: str) -> None:
    program = folder / "bin" / "mvn"
    program.parent.mkdir(exist_ok=True)
    program.write_text(MAVEN.format(folder=folder, then=then))
    program.chmod(0o755)


def asked(folder: Path) -> int:
    return (folder / "asked").read_text().count("asked")


def test_maven_is_asked_once(maven: Path) -> None:
    expected = f"{maven}/a.jar:{maven}/b.jar"
    assert [classpath_in(maven / "kept") for _ in range(3)] == [expected] * 3
    assert asked(maven) == 1


def test_maven_is_asked_again_if_a_jar_is_gone(maven: Path) -> None:
    classpath_in(maven / "kept")
    (maven / "b.jar").unlink()
    stand_in(maven, then=f"touch {maven}/b.jar")
    assert classpath_in(maven / "kept").endswith("b.jar")
    assert asked(maven) == 2


def test_a_failing_maven_is_an_error_with_its_output(maven: Path) -> None:
    stand_in(maven, then="echo 'Unknown host nowhere.invalid'; exit 1")
    with pytest.raises(ConfigurationError, match=r"ended with 1: Unknown host nowhere\.invalid") as refused:
        classpath_in(maven / "kept")
    assert refused.value.advice is not None
    assert "check the network" in refused.value.advice
    assert list((maven / "kept").glob("*.classpath")) == []


def test_a_machine_without_maven_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=f"no mvn on PATH. It downloads Pulsar {VERSION}") as refused:
        classpath_in(tmp_path / "kept")
    assert refused.value.advice is not None
    assert "apt install maven" in refused.value.advice


def test_the_version_is_that_of_the_pom() -> None:
    assert VERSION == "5.0.0-M1"
    assert POM.read_text().count(VERSION) == 1
