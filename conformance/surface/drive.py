"""Draws the operations of a run from a seed, executes them with the final checks of the run, and shrinks runs that fail."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from conformance.surface import batches, consuming, copies, finale, migrations, sinks, streaming, upkeep, writing
from conformance.surface.bench import Bench
from conformance.surface.model import Fault
from conformance.surface.operations import CATALOGUE, Op, readable
from conformance.surface.preludes import drawn
from metadata.common.errors import TxnSegmentError

MODULES = (writing, consuming, streaming, batches, upkeep, copies, sinks, migrations)
STEPS = (20, 90)
"""A run has at least this first number of random operations, and fewer than the second. Its preludes and the creation of its first
topics are not counted.
"""
PREPARED = 0.7
"""The probability that a theme of a run adds a prelude to the run (`preludes`). A theme is a group of operations."""
APART = "migrations"
"""The theme whose operations occur only in runs that have this theme. The operations of other themes may occur in every run."""
OF_IT = 0.15
"""The share of runs that have the theme APART."""
ALWAYS = ("create_topic", "produce", "persistent_produce", "migrate")
TICK_MS = 7
"""The milliseconds that pass between two operations."""


@dataclass
class Failure:
    """The failure of a run. `oracle`: the rule that was broken, or the kind of the error. `ops`: all operations of the run."""

    oracle: str
    text: str
    ops: list[Op]


@dataclass
class Outcome:
    steps: int = 0
    failure: Failure | None = None
    done: Counter[str] = field(default_factory=Counter)


def draw(seed: str, given: Sequence[str] = ()) -> list[Op]:
    """Return the operations of a run. `given`: themes for the run; if empty, its themes are drawn. A run has few themes and leaves
    out some kinds of operations, so that its operations often work on the same objects.
    """
    random = Random(seed)
    themes = sorted({one.theme for one in CATALOGUE.values()} - {"writing", "upkeep", APART})
    chosen = {"writing", *random.sample(themes, random.choice((1, 1, 2, 2, 3)))}
    if random.random() < 0.5:
        chosen.add("upkeep")
    if given:
        chosen = {"writing", *given}
    # The theme APART has its own random generator. So the other random choices are the same with and without this theme.
    apart = Random(f"{APART}/{seed}")
    if not given and apart.random() < OF_IT:
        chosen.add(APART)
    beside = random.choice((0, 0.1, 0.3))
    weights = {}
    for name, one in CATALOGUE.items():
        if one.theme == APART:
            if APART in chosen and (name in ALWAYS or apart.random() < 0.8):
                weights[name] = one.weight * apart.choice((0.5, 1, 1, 2))
            continue
        weight = one.weight * (1 if one.theme in chosen else beside)
        if name in ALWAYS or random.random() < 0.75:
            weights[name] = weight * random.choice((0.5, 1, 1, 2))
    names = list(weights)
    count = random.randrange(*STEPS)
    ops = [CATALOGUE["create_topic"].draw(random), CATALOGUE["create_topic"].draw(random)][: random.choice((1, 1, 2))]
    if APART in chosen:
        ops.append(CATALOGUE["persistent_create"].draw(apart))
    # The prelude of `upkeep` comes last, because its retention would remove the rows of the other preludes.
    for theme in sorted(chosen, key=lambda one: (one == "upkeep", one)):
        if random.random() < PREPARED:
            ops += drawn(theme, random)
    ops += [CATALOGUE[random.choices(names, list(weights.values()))[0]].draw(random) for _ in range(count)]
    return ops


def execute(ops: Sequence[Op], hosts: str | None, base: str | None, told: Callable[[str], None] | None = None) -> Outcome:
    """Run the operations on a new cluster, and then the final checks."""
    outcome = Outcome()
    bench = Bench.begin(hosts, base)
    try:
        for op in ops:
            name, args = op
            bench.clock.passed_ms += TICK_MS
            for world in bench.worlds:
                world.model.step += 1
                world.model.trimmed(bench.clock.true_ms())
            if told is not None:
                told(readable(op))
            if CATALOGUE[name].run(bench, args) is not False:
                outcome.steps += 1
                outcome.done[name] += 1
            elif told is not None:
                told("    (nothing to do)")
            for world in bench.worlds:
                migrations.note_moves(world)
                world.settle()
                migrations.note_moves(world)
        if told is not None:
            told("the end of the run")
        finale.conclude(bench)
    except Fault as fault:
        outcome.failure = Failure(fault.oracle, fault.text, list(ops))
    except Exception as error:
        kind = type(error).__name__
        ours = isinstance(error, TxnSegmentError)
        where = traceback.extract_tb(error.__traceback__)
        place = next(
            (f"{f.filename.rpartition('/')[2]}:{f.name}" for f in reversed(where) if "site-packages" not in f.filename), ""
        )
        text = f"{kind} at {place}: {error}" if ours else "".join(traceback.format_exception(error)[-12:])
        outcome.failure = Failure(f"{'error' if ours else 'foreign'} {kind}", text, list(ops))
    finally:
        for name, count in bench.met.items():
            outcome.done[f"met {name}"] += count
        try:
            bench.end()
        except Exception as error:
            if outcome.failure is None:
                outcome.failure = Failure("end", f"{type(error).__name__}: {error}", list(ops))
    return outcome


def shrink(failure: Failure, run: Callable[[Sequence[Op]], Outcome], *, most: int = 400) -> Failure:
    """Return a failure with the same oracle, with fewer operations and smaller arguments.

    First operations are dropped, in ever smaller groups (delta debugging). Then each argument is replaced by 0 or 1 if the run
    still fails with this oracle. `run`: executes operations. `most`: the maximum number of runs in which operations are dropped; up
    to 100 more runs have smaller arguments.
    """
    tries = 0

    def fails(ops: Sequence[Op]) -> Failure | None:
        nonlocal tries
        tries += 1
        found = run(ops).failure
        return found if found is not None and found.oracle == failure.oracle else None

    best = failure
    size = max(1, len(best.ops) // 2)
    while size and tries < most:
        start, moved = 0, False
        while start < len(best.ops) and tries < most:
            found = fails(best.ops[:start] + best.ops[start + size :])
            if found is not None:
                best, moved = found, True
            else:
                start += size
        if not moved or size > 1:
            size //= 2
    for i in range(len(best.ops)):
        name, args = best.ops[i]
        for key in args:
            if tries >= most + 100:
                break
            for value in (0, 1):
                now = best.ops[i][1]
                if now[key] <= value:
                    break
                found = fails([*best.ops[:i], (name, {**now, key: value}), *best.ops[i + 1 :]])
                if found is not None:
                    best = found
                    break
    return best
