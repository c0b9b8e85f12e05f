"""The preludes with which runs begin. A prelude is a short list of operations of a theme. It creates the state that other
operations of the theme need.

Without preludes few random runs would create, say, a trimmed topic with a lagging consumer, and the operations that need such a
topic would do nothing. Arguments that a prelude does not give are drawn at random. If it does not give `t` (the topic), all
operations of the prelude get the same random `t`.
"""

from __future__ import annotations

from random import Random

from conformance.surface.operations import CATALOGUE, PICK, Args, Op

Prelude = tuple[tuple[str, Args], ...]

_ROWS: Args = {"rows": 4}
_ALL: Args = {"count": 0, "leave": 0, "old": 1}
"""The arguments with which `consume` reads to the end."""

PRELUDES: dict[str, tuple[Prelude, ...]] = {
    "consuming": (
        (("consumer_open", {"both": 1}), ("produce", _ROWS), ("consume", {"old": 1})),
        (
            ("consumer_open", {"both": 1}),
            ("produce", {}),
            ("consume", _ALL),
            ("produce", {}),
            ("consume", _ALL),
            ("ack_cumulative", {}),
        ),
        (
            ("subscribe", {"start": 0}),
            ("produce", _ROWS),
            ("produce", _ROWS),
            ("consumer_open", {"both": 1}),
            ("consume", _ALL),
            ("ack", {}),
        ),
        (("produce", _ROWS), ("consumer_open", {"both": 1, "s": 0}), ("consume", _ALL), ("ack", {"what": 2, "txn": 1})),
        (
            ("consumer_open", {"both": 1}),
            ("begin", {"app": 0, "version": 2}),
            ("commit", {}),
            ("produce", _ROWS),
            ("begin", {"app": 0, "version": 1}),
            ("consume", _ALL),
            ("ack", {"what": 3, "txn": 0}),
            ("commit", {}),
            ("consume", _ALL),
        ),
        (("consumer_open", {"both": 0}), ("begin", {"app": 5}), ("produce", {}), ("consume", _ALL), ("ack", {"what": 3, "txn": 0})),
    ),
    "streaming": (
        (("stream", {}), ("stream_run", {"steps": 0}), ("produce", {}), ("stream_run", {}), ("produce", {})),
        (("produce", {}), ("stream", {"limit": 1}), ("produce", _ROWS), ("stream_run", {"steps": 3})),
        (
            ("subscribe", {"start": 0, "s": 0}),
            ("produce", {}),
            ("stream", {"what": 0, "start": 4, "number": 0}),
            ("stream_run", {}),
        ),
        (("produce", {}), ("hold", {}), ("stream", {"start": 3}), ("stream_run", {})),
    ),
    "batches": (
        (
            ("produce", {}),
            ("chain", {"time": 1}),
            ("hold", {"fresh": 0}),
            ("wait", {"by": 3}),
            ("extend", {"end": 0}),
            ("resume", {}),
        ),
        (
            ("produce", {}),
            ("chain", {"time": 1}),
            ("wait", {"by": 3}),
            ("extend", {"end": 0}),
            ("produce", {}),
            ("extend", {"end": 0}),
        ),
        (("produce", {}), ("produce", {}), ("chain", {"time": 0}), ("extend", {}), ("read_range", {}), ("hold", {})),
    ),
    "sinks": (
        (("sink", {}), ("sink_batch", {"rows": 3}), ("sink_batch", {"rows": 2})),
        (("produce", _ROWS), ("consumer_open", {"both": 1}), ("consume", _ALL), ("transaction", {"acks": 0})),
        (("write", {}), ("write", {"app": 0, "how": 0}), ("transaction", {"app": 0})),
    ),
    "copies": (
        (("produce", _ROWS), ("copy_folder", {}), ("produce", {}), ("wait", {"by": 8})),
        (("produce", _ROWS), ("backup", {}), ("produce", {}), ("restore", {})),
        (("hold", {}), ("backup", {}), ("produce", {}), ("compact", {})),
    ),
    "migrations": (
        (
            ("persistent_create", {}),
            ("persistent_produce", _ROWS),
            ("persistent_consumer", {"both": 3}),
            ("consume", _ALL),
            ("ack", {}),
            ("migrate", {}),
        ),
        (
            ("persistent_create", {}),
            ("persistent_produce", {}),
            ("persistent_stream", {"what": 0, "start": 0, "limit": 1}),
            ("stream_run", {"steps": 3}),
            ("persistent_produce", {}),
            ("migrate", {}),
            ("persistent_produce", {}),
        ),
        (
            ("persistent_create", {}),
            ("persistent_produce", {}),
            ("persistent_hold", {}),
            ("migrate", {"how": 0}),
            ("persistent_produce", {}),
        ),
        (
            ("persistent_create", {}),
            ("persistent_produce", {}),
            ("persistent_produce", {}),
            ("migrate_hold", {}),
            ("die", {}),
            ("persistent_produce", {}),
        ),
        (
            ("persistent_create", {}),
            ("persistent_write", {"app": 1}),
            ("persistent_begin", {"app": 0, "version": 2}),
            ("commit", {}),
            ("migrate", {}),
            ("persistent_write", {"app": 2}),
            ("persistent_begin", {"app": 0, "version": 1}),
            ("commit", {}),
        ),
        (
            ("persistent_create", {}),
            ("persistent_subscribe", {"start": 0, "s": 0}),
            ("persistent_produce", {}),
            ("persistent_stream", {"what": 0, "start": 2, "number": 0}),
            ("stream_run", {"steps": 4}),
        ),
    ),
    "upkeep": (
        (("retain", {"what": 4, "bytes": 0}), ("produce", _ROWS), ("trim", {})),
        (("retain", {"what": 5, "bytes": 1}), ("produce", _ROWS), ("produce", _ROWS), ("sweep", {}), ("trim", {})),
        (("retain", {"what": 2}), ("wait", {"by": 4}), ("produce", _ROWS), ("leap", {"by": 3}), ("sweep", {})),
        (("retain", {"what": 1}), ("produce", _ROWS), ("wait", {"by": 5}), ("produce", _ROWS), ("trim", {})),
        (("produce", {}), ("split", {}), ("produce", {}), ("compact", {}), ("sweep", {})),
    ),
}


def drawn(theme: str, random: Random) -> list[Op]:
    """Return a random prelude of a theme, with all arguments. Return an empty list if the theme has none, like `writing`."""
    found = PRELUDES.get(theme)
    if found is None:
        return []
    topic = random.randrange(PICK)
    ops = []
    for name, given in random.choice(found):
        _, args = CATALOGUE[name].draw(random)
        ops.append((name, {**args, **({"t": topic} if "t" in args else {}), **given}))
    return ops
