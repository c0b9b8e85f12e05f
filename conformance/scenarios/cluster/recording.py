"""Makes the history of a run, for `conformance.history`: the writers' batches, the times at which these were known to be committed,
and the reads.

All times are `time.monotonic()` of this machine in ms. In the history, the commit of a batch begins when its input file is written,
and ends when the deployment sees that the writer has committed the batch. The real commit happens between these two times. The
readers record their own events.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.history.files import read, repair
from conformance.history.format import Commit, Event, Plan, Poll, Read, Start, Told, Written
from conformance.history.words import topic_of
from conformance.scenarios.cluster.deployment import Deployment
from conformance.scenarios.cluster.input import identity, written
from conformance.scenarios.cluster.loader import APP
from metadata.records.names import is_persistent


def kept(folder: Path) -> list[Event]:
    """Return all events of the histories in a folder, without Start events. Remove incomplete last lines, which kills have left."""
    found: list[Event] = []
    for file in sorted(folder.glob("*.jsonl")):
        repair(file)
        found += [event for event in read(file) if not isinstance(event, Start)] if file.stat().st_size else []
    return found


def events(deployment: Deployment, readers: Iterable[Event], final: Read, seed: int) -> Iterator[Event]:
    """Yield the history of a run whose writers and readers have ended. `readers`: the events that the readers recorded. `final`:
    the last read, after a sweep.
    """
    yield Start(deployment.fed[0], "conformance.cluster", seed=seed)
    for job in deployment.scene.writers:
        query = json.loads((deployment.checkpoint(job.name) / "metadata").read_text())["id"] if job.streams else None
        told = deployment.progress[job.name].at
        for batch, fed in enumerate(deployment.fed):
            given = tuple(Written(identity(job.topic, key, seq), key) for key, seq in written(batch, job.name))
            call = f"{job.name}-{batch}"
            yield Commit(fed, call, job.name, query or APP, job.topic, batch, given, query=query, replays=True)
            if batch < len(told):
                yield Told(told[batch], call, "committed")
    readers = list(readers)
    yield from readers
    yield from ends([event for event in readers if isinstance(event, Poll)], deployment.drained, final.began)
    yield final


def ends(polls: Iterable[Poll], began: float, at: float) -> Iterator[Plan]:
    """Yield a last plan for each stream in each log that the stream reads. The plan says that the stream found no rows after the
    last row that it got. `began`, `at`: the times between which the stream made that plan.
    """
    last: dict[tuple[str, tuple[str, ...]], dict[str, int]] = defaultdict(dict)
    for poll in polls:
        tops = last[poll.stream, poll.topics]
        for row in poll.rows:
            log = topic_of(row.segment) if is_persistent(row.segment) else ""
            tops[log] = max(row.position[0], tops.get(log, 0))
    for (stream, topics), tops in last.items():
        for log in {topic if is_persistent(topic) else "" for topic in topics}:
            yield Plan(at, began, stream, (log,) if log else topics, tops.get(log, 0), tops.get(log, 0), log=log)
