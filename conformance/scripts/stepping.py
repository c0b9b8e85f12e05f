"""Parses the acknowledgements in a command, and runs a transaction step by step. `writing` and `acking` use both functions."""

from __future__ import annotations

import re
from collections.abc import Callable

from conformance.scripts.names import segment
from conformance.scripts.parsing import Command, ScriptError
from conformance.scripts.world import Work, World
from metadata.records.row_ranges import parse, parse_all
from metadata.rules.acks import Ack, up_to

_ACK = re.compile(r"([a-z0-9-]+)@(\.\.)?([a-z0-9-]+(?:\.[0-9]+)?)/([0-9:.]+)")


def acks_of(world: World, cmd: Command) -> list[Ack]:
    """Remove the words for acknowledgements from a command. Return the acknowledgements."""
    found = [(word, match) for word in cmd.words if (match := _ACK.fullmatch(word))]
    taken = {word for word, _ in found}
    cmd.words = [word for word in cmd.words if word not in taken]
    return [_ack(world, *match.groups()) for _, match in found]


def _ack(world: World, name: str, cumulative: str | None, short: str, where: str) -> Ack:
    full = segment(world.state, short)
    return Ack(full, name, parse_all([where])) if cumulative is None else up_to(full, name, parse(where)[1])


def step(world: World, cmd: Command, stop: Callable[[str], bool] | None, reached: Callable[[Work], list[str]]) -> list[str]:
    """Run an open transaction until `stop` returns true for its next call, or to its end if `stop` is None. `reached`: makes the
    answer when the transaction stops before that call.
    """
    name = cmd.who("d1")
    work = world.opened.get(name)
    if work is None or work.done:
        raise ScriptError(f"{cmd.line!r}: {name} has nothing open")
    work.stop = stop
    work.reached = lambda: reached(work)
    return world.drive(work)
