"""The search for Java: each mistake has its own clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata.common.errors import ConfigurationError
from txnsegment.java import find_java


def test_java_is_found() -> None:
    assert find_java().name == "java"


def test_java_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="Install Java 17"):
        find_java()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'openjdk version \"1.8.0_392\"' >&2", "Java 8 is too old"),
        ("echo 'java version \"11.0.2\" 2019-01-15' >&2", "Java 11 is too old"),
        ("echo hello", "prints no version"),
        ("exit 1", "does not run"),
    ],
)
def test_an_unsuitable_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, says: str) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=says) as caught:
        find_java()
    assert "JAVA_HOME" in str(caught.value)


def test_an_empty_java_home_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="JAVA_HOME"):
        find_java()
