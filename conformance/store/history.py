"""Operations on single keys, and their recorder. A recorded history is the input of the linearizability checker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Literal

from metadata.common.clock import Clock
from metadata.common.errors import BadVersion, SessionLost, Unavailable, UnknownOutcome
from metadata.records.paths import Key
from metadata.store.contract import ABSENT, ANY, MetadataStore

Kind = Literal["get", "put", "delete"]
Answer = Literal["done", "lost race", "unknown"]

KEYS = [Key("/history/a", ""), Key("/history/b", "b"), Key("/history/0_1", "b")]
"""There are few keys, so that the operations of the actors conflict."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an actor on a key.

    `expect`: ANY (None), ABSENT (-1) or a version. `began`, `ended`: seconds of a clock that all actors share. `value`: the value
    that was put or read; None if there was no record. `version`: the version in the answer; None if there was no record or the
    answer has no version.

    An operation without an answer has `ended` = inf and the answer "unknown". It may take effect at any time after it began, or
    never.
    """

    actor: str
    key: str
    kind: Kind
    began: float
    ended: float = math.inf
    answer: Answer = "unknown"
    expect: int | None = ANY
    value: str | None = None
    version: int | None = None

    def label(self) -> str:
        """Return the operation in words, such as `put 'x' if version 3 -> version 4`."""
        condition = "" if self.expect is ANY else " if absent" if self.expect == ABSENT else f" if version {self.expect}"
        what = f"put {self.value!r}{condition}" if self.kind == "put" else f"{self.kind}{condition}"
        if self.answer != "done":
            return f"{what} -> {self.answer}"
        if self.kind == "get":
            return f"{what} -> " + ("absent" if self.version is None else f"{self.value!r}, version {self.version}")
        return f"{what} -> done" if self.kind == "delete" else f"{what} -> version {self.version}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ended": None if math.isinf(self.ended) else self.ended}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Operation:
        return Operation(**{**found, "ended": math.inf if found["ended"] is None else found["ended"]})


Step = Literal["begun", "ended", "void"]


def random_operations(
    store: MetadataStore, actor: str, random: Random, clock: Clock, count: int
) -> Iterator[tuple[Step, Operation]]:
    """Do `count` random operations on KEYS. For each operation yield two steps: "begun" before it, then "ended" or "void".

    "ended" comes with the answer, which is "unknown" if the reply was lost. "void" means that the store raised Unavailable or
    SessionLost, so the operation had no effect and no answer.
    """
    versions: dict[Key, int] = {}
    for n in range(count):
        clock.sleep(random.uniform(0, 0.0005))  # the pause makes operations overlap even if the store answers in microseconds
        key = random.choice(KEYS)
        kind: Kind = random.choice(["get", "get", "put", "put", "delete"])
        seen = versions.get(key, ABSENT)
        expect = None if kind == "get" else random.choice([ANY, ABSENT, seen, seen] if kind == "put" else [ANY, versions.get(key)])
        value = f"{actor}.{n}" if kind == "put" else None
        begun = Operation(actor, key.path, kind, clock.monotonic(), expect=expect, value=value)
        yield "begun", begun
        ended = _do(store, key, begun, clock)
        if ended and ended.answer == "done":
            versions.pop(key, None)
            if ended.version is not None:
                versions[key] = ended.version
        yield ("ended", ended) if ended else ("void", begun)


def recorded(steps: Iterable[tuple[Step, Operation]]) -> list[Operation]:
    """Return the history that an actor's steps describe. An operation that has begun and not ended has an unknown answer."""
    found: list[Operation] = []
    for step, operation in steps:
        if step == "begun":
            found.append(operation)
        elif step == "ended":
            found[-1] = operation
        else:
            found.pop()
    return found


def _do(store: MetadataStore, key: Key, begun: Operation, clock: Clock) -> Operation | None:
    """Do the operation and return it with its answer. Return None for a void operation."""
    try:
        if begun.kind == "get":
            found = store.view().get(key)
            seen = (found.value.decode(), found.version) if found else (None, None)
            return replace(begun, ended=clock.monotonic(), answer="done", value=seen[0], version=seen[1])
        if begun.kind == "delete":
            store.delete(key, expect=begun.expect)
            return replace(begun, ended=clock.monotonic(), answer="done")
        assert begun.value is not None
        made = store.put(key, begun.value.encode(), expect=begun.expect)
        return replace(begun, ended=clock.monotonic(), answer="done", version=made.version)
    except BadVersion:
        return replace(begun, ended=clock.monotonic(), answer="lost race")
    except UnknownOutcome:
        return begun
    except (Unavailable, SessionLost):
        return None
