"""The check of a migration's workload. The history checker judges the workload's history. In addition, each party that writes must
have rows from before and after the migration.

PURE: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.history.format import Drained, Event, Read, Successor
from conformance.scenarios.history import judged
from metadata.records.names import is_persistent


@dataclass(frozen=True)
class Cast:
    """The parties of a workload, by kind. Each party has its topics, under their old names. A mover has its source and its target.
    `successors`: old name of a topic -> its new name.
    """

    successors: Mapping[str, str]
    writers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    senders: Mapping[str, str] = field(default_factory=dict)
    consumers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    movers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    streams: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lookers: Mapping[str, Sequence[str]] = field(default_factory=dict)


def checked(cast: Cast, histories: Iterable[Sequence[Event]], final: Sequence[Read]) -> list[str]:
    """Return everything that is wrong with a workload. `final`: the last reads, by the old and by the new name of each topic."""
    recorded = list(histories)
    successors = [Successor(0, old, new) for old, new in cast.successors.items()]
    return [*judged([*recorded, final, successors]), *missed(cast, recorded, final)]


def missed(cast: Cast, histories: Iterable[Sequence[Event]], final: Sequence[Read]) -> list[str]:
    """Return the work that the workload should have done and did not do. Each writer, sender and mover needs rows from before and
    after the migration. Each consumer and mover must have reported that no unacknowledged rows are left. If such work is missing, a
    history without findings proves little.
    """
    rows = {topic: read.rows for read in final for topic in read.topics}
    wrote = [(who, topic) for who, topics in cast.writers.items() for topic in topics] + list(cast.senders.items())
    sides = {
        (who, topic): {is_persistent(row.segment) for row in rows[topic] if row.id.startswith(f"{who}.")} for who, topic in wrote
    }
    sides |= {(who, target): {is_persistent(row.segment) for row in rows[target]} for who, (_, target) in cast.movers.items()}
    found = [
        f"{topic} did not migrate under load: it has no row of {who} from {'before' if side else 'after'} it"
        for (who, topic), there in sides.items()
        for side in (True, False)
        if side not in there
    ]
    ended = {event.subscription for history in histories for event in history if isinstance(event, Drained)}
    return found + [f"{who} did not come to an end" for who in (*cast.consumers, *cast.movers) if who not in ended]
