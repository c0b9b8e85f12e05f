"""The errors of txnsegment in Spark's processes reach the user without their tracebacks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator

import pytest

from metadata.common.errors import OptionError, StorageError
from metadata.common.workers import HIDE, RUNTIME, telling, tells_errors

WORKER = dict([RUNTIME])


def test_an_error_of_txnsegment_in_a_worker_of_spark_hides_its_traceback() -> None:
    environment = dict(WORKER)
    with pytest.raises(OptionError), telling(environment):
        raise OptionError("The option x is bad.", advice="Leave it out.")
    assert environment[HIDE]


@pytest.mark.parametrize("environment", [{}, WORKER | {"SPARK_TRACEBACK_WITH_LOCALS": "1"}], ids=["no worker", "asked for"])
def test_a_traceback_is_kept_outside_of_spark_and_if_the_user_asks_for_it(environment: dict[str, str]) -> None:
    found = dict(environment)
    with pytest.raises(OptionError), telling(found):
        raise OptionError("The option x is bad.")
    assert found == environment


def test_an_unexpected_error_keeps_its_traceback() -> None:
    environment = dict(WORKER)
    with pytest.raises(KeyError), telling(environment):
        raise KeyError("x")
    assert environment == WORKER


def test_a_cause_that_the_message_does_not_quote_becomes_a_note() -> None:
    with pytest.raises(StorageError) as unquoted, telling(dict(WORKER)):
        raise StorageError("The disk is bad.") from OSError("no space")
    assert unquoted.value.__notes__ == ["Its cause: OSError: no space"]
    with pytest.raises(StorageError) as quoted, telling(dict(WORKER)):
        raise StorageError("The disk is bad: no space.") from OSError("no space")
    assert not hasattr(quoted.value, "__notes__")


def test_all_methods_that_spark_calls_are_decorated(monkeypatch: pytest.MonkeyPatch) -> None:
    @tells_errors
    class Reader:
        def latestOffset(self, start: int, limit: int) -> int:
            raise OptionError("latestOffset")

        def read(self, partition: int) -> Iterator[int]:
            yield partition
            raise OptionError("read")

    monkeypatch.setenv(*RUNTIME)
    monkeypatch.delenv(HIDE, raising=False)
    assert list(inspect.signature(Reader().latestOffset).parameters) == ["start", "limit"]  # Spark looks at the signature
    with pytest.raises(OptionError, match="latestOffset"):
        Reader().latestOffset(1, 2)
    assert os.environ.pop(HIDE)
    rows = Reader().read(7)
    assert next(rows) == 7
    with pytest.raises(OptionError, match="read"):
        next(rows)
    assert os.environ.pop(HIDE)
