"""Linearizability of single keys: the checker judges histories of threads and processes, also with kills and lost replies."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import Any

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import ContractBroken, holds
from conformance.store.history import KEYS, Operation, Step, random_operations, recorded
from conformance.store.linearizability import check
from metadata.store.contract import MetadataStore

cases = Cases("histories", "get / put / delete: linearizable per key")


@cases.add
def threads(area: Area) -> None:
    """Many threads, on shared and own sessions, work on the same keys. All answers for a key fit one order."""
    _judge(area, area.at_once(lambda store, n: _record(area, store, f"t{n}", area.sizes.operations)))


@cases.add
def processes(area: Area) -> None:
    """Several processes of one machine, and threads beside them, work on the same keys. All answers for a key fit one order."""
    _with_processes(area, killed=0)


@cases.add
def processes_that_are_killed(area: Area) -> None:
    """Processes are killed while they work on the same keys. All answers for a key fit one order. An operation in progress at the
    kill took effect once, at some time, or never.
    """
    _with_processes(area, killed=2)


@cases.add
def lost_replies(area: Area) -> None:
    """Connections are cut, so that replies are lost. All answers for a key fit one order. An operation with an unknown outcome took
    effect once, at some time, or never.
    """
    far, proxy = area.far()
    wanted, ended = threading.Event(), threading.Event()

    def act(store: MetadataStore, n: int) -> list[Operation]:
        return _record(area, store, f"t{n}", area.sizes.operations) if n else until_lost()

    def until_lost() -> list[Operation]:
        try:
            return _until_lost(area, far, wanted)
        finally:
            end()

    def end() -> None:
        ended.set()
        wanted.set()

    def disturb() -> None:
        while wanted.wait() and not ended.is_set():
            wanted.clear()
            with proxy.drop_replies():
                proxy.wait_dropped(1)

    disturber = threading.Thread(target=disturb, name="conformance-disturb", daemon=True)
    disturber.start()
    try:
        histories = area.at_once(act, actors=3)
    finally:
        end()
        disturber.join()
    area.figures["unknown outcomes"] = sum(operation.answer == "unknown" for operation in histories[0])
    _judge(area, histories)


def _until_lost(area: Area, far: MetadataStore, wanted: threading.Event, enough: int = 3) -> list[Operation]:
    """Run operations until the replies to `enough` writes were lost. At each write, this function decides at random whether to
    request a cut of the connection. It may need more than `enough` cuts: if a cut hits the reply to a read, the store only repeats
    the read.
    """
    began, steps = area.clock.monotonic(), list[tuple[Step, Operation]]()
    lost = 0
    for step, operation in random_operations(far, "far", Random(f"{area.seed}:far"), area.clock, count=100_000):
        if step == "begun" and lost == enough:
            break
        steps.append((step, operation))
        if step == "begun" and operation.kind != "get" and area.random.random() < 0.5:
            wanted.set()
        lost += step == "ended" and operation.answer == "unknown"
        waited = area.clock.monotonic() - began
        holds(waited < area.sizes.patience, f"replies of {enough} writes were lost within {area.sizes.patience:g} s")
    return recorded(steps)


def _record(area: Area, store: MetadataStore, actor: str, count: int) -> list[Operation]:
    seed = f"{area.seed}:{actor}"
    return recorded(random_operations(store, actor, Random(seed), area.clock, count))


def _with_processes(area: Area, *, killed: int) -> None:
    count = area.sizes.operations
    # A process that will be killed gets more operations than it can finish.
    lengths = [count * 50 if n < killed else count for n in range(4)]
    children = [area.child("history", actor=f"p{n}", seed=f"{area.seed}:p{n}", count=c) for n, c in enumerate(lengths)]
    for child in children:
        child.wait_ready()
    said: list[list[Any]] = [[] for _ in children]

    def act(store: MetadataStore, n: int) -> list[Operation]:
        return _record(area, store, f"t{n}", count // 2)

    def kill(n: int, after: int) -> None:
        for _ in range(after):
            said[n].append(children[n].line())
        said[n] += children[n].kill()

    for child in children:
        child.go()
    # A process prints one line before each operation and one line after it. The kill comes after an odd number of lines. So it most
    # likely comes during an operation.
    killers = [threading.Thread(target=kill, args=(n, 1 + 2 * area.random.randrange(5, count))) for n in range(killed)]
    for killer in killers:
        killer.start()
    with_us = area.at_once(act, actors=2)
    for killer in killers:
        killer.join()
    for n in range(killed, len(children)):
        said[n] += children[n].done()
    histories = [recorded((line[0], Operation.from_json(line[1])) for line in lines) for lines in said]
    if killed:
        area.figures["operations open at the kill"] = sum(o.answer == "unknown" for history in histories for o in history)
    _judge(area, [*histories, *with_us])


def _judge(area: Area, histories: Sequence[Sequence[Operation]]) -> None:
    """Read the final content of each key and check its history. Raises ContractBroken with the operations around the failure."""
    everything = [operation for history in histories for operation in history]
    # The history of each key ends with a read in a new session. If the last acknowledged write were lost, this read would make the
    # history not linearizable.
    last = area.open()
    for key in KEYS:
        began = area.clock.monotonic()
        found = last.view().get(key)
        value, version = (found.value.decode(), found.version) if found else (None, None)
        everything.append(Operation("end", key.path, "get", began, area.clock.monotonic(), "done", value=value, version=version))
    area.figures["operations"] = len(everything)
    for key in KEYS:
        history = [operation for operation in everything if operation.key == key.path]
        verdict = check(history)
        if not verdict.linearizable:
            raise ContractBroken(
                f"The history of one key is not linearizable.\n{verdict.story(history)}", history=verdict.spans(history)
            )
