"""Reads under load. Writers commit transactions over all segments of a topic, as fast as they can, while readers read the topic.

No read may return a part of a transaction. No read may lack rows that were readable when the read began (`missed`).
"""

from __future__ import annotations

import dataclasses
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from conformance.history import format as history
from conformance.processes import Session
from conformance.scenarios.driver import Place, batch_of, make, planned, unfinished
from conformance.scenarios.following import follow, polls
from conformance.scenarios.forks import Child, Forks
from conformance.scenarios.history import Observation, judged, now
from conformance.scenarios.low_priority import lower_priority
from conformance.scenarios.reading import Following, read_all
from conformance.scenarios.scenario import Scenario
from conformance.scenarios.together import ANSWER_SECONDS, ANSWERS, ENOUGH, LOADED, START, STOP, late, looks, say, wait_until
from metadata.client.client import Client, client
from metadata.cluster.cluster import open_cluster
from metadata.read.reading import LogSelection, Reading
from metadata.records.cluster_records import Settings
from metadata.records.names import topic_name
from metadata.rules.transitions import Claim
from metadata.write.write_set import WriteSet
from spark_txn_sink.planned import WritePlan
from spark_txn_sink.staging import stage

WRITERS = 8
ROWS = 16
POLL_SECONDS = 0.01
"""The interval at which Spark asks an idle stream for new rows (spark.sql.streaming.pollingDelay)."""
PAUSE_SECONDS = 0.01
"""The pause between two plans of the batch reader, so that it does not occupy a whole core."""
WARM = 20
"""How many transactions one further writer commits before the load. The Spark query reads them one by one, so that Java has
compiled the query's code when the load begins.
"""
PER_WRITER = 1_000_000
"""The size of each writer's range of batch numbers, which begins at `writer * PER_WRITER`."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a writer: the number of its registration, and the times (ms) at which the call began and returned."""

    number: int
    began_ms: float
    returned_ms: float
    writer: int = 0
    version: int = 0

    def events(self, topic: str) -> list[history.Event]:
        """Return the two events of the commit in the history: its request and its answer."""
        rows = tuple(history.Written(str(seq), key) for key, seq, _, _ in _rows(self.writer, self.version))
        name = f"writer-{self.writer}"
        call = f"{name}-{self.version}"
        asked = history.Commit(self.began_ms, call, name, name, topic, self.version, rows)
        return [asked, history.Told(self.returned_ms, call, "committed", None, self.number)]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a reader. `began_ms`: the earliest time at which the reader can have asked. `at_ms`: the time at which the
    reader had the answer. `through`: the log number up to which the reader had then read.
    """

    began_ms: float
    at_ms: float
    through: int


@dataclass
class Watched:
    """The answers to one reader, the errors found in these answers, and the events of the reader's reads."""

    answers: list[Answer] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    events: list[history.Event] = field(default_factory=list)


def write_for(place: Place, writer: int, folder: Path) -> list[Commit]:
    """Stage and commit transactions over all segments, one after the other. Begin when the file `START` exists in `folder`, and end
    when the file `ENOUGH` exists there.

    Writers have a lower priority than readers. With eight writers of equal priority on two cores, the run would measure the wait
    for a core, not the wait for a decision.
    """
    lower_priority()
    plan = planned(place)
    mine = client(open_cluster(place.url))
    done: list[Commit] = []
    say("ready", folder)
    while not (folder / START).exists():
        time.sleep(0.005)
    while not (folder / ENOUGH).exists():
        done.append(_commit(mine, plan, writer, len(done)))
        say("writing", folder)
    mine.close()
    return done


def warm_up(place: Place, writer: int, versions: range, seen: Path | None = None) -> list[Commit]:
    """Commit these versions, one after the other. `seen`: the file in which a Spark query records its micro-batches. After each
    commit, wait until this file has a new micro-batch, so that the query runs its slow first micro-batches before the load begins.
    None: do not wait.
    """
    plan, mine = planned(place), client(open_cluster(place.url))
    done = []
    for version in versions:
        before = 0 if seen is None else _lines(seen)
        done.append(_commit(mine, plan, writer, version))
        while seen is not None and _lines(seen) == before:
            time.sleep(POLL_SECONDS)
    mine.close()
    return done


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def _commit(mine: Client, plan: WritePlan, writer: int, version: int) -> Commit:
    staged = stage(plan, [batch_of(_rows(writer, version))])
    assert plan.schema_id is not None
    parts = {segment: [dataclasses.replace(part, schema=plan.schema_id)] for segment, part in staged.parts}
    claim = Claim(version, None, staged.staging_id, replays=False)
    began = now()
    committed = mine.coordinator.commit(
        WriteSet(
            f"writer-{writer}",
            str(plan.topic),
            claim,
            parts,
            staged_ms=staged.staged_ms,
            timeout_ms=30_000,
            keys={str(plan.topic): plan.key},
        )
    )
    assert committed.number is not None
    return Commit(committed.number, began, now(), writer, version)


def _rows(writer: int, version: int) -> list[tuple[str, int, int, int]]:
    """Return the rows of one transaction. No other writer uses their keys, so the rows of a key are written in this order."""
    batch = writer * PER_WRITER + version
    return [(f"writer-{writer}-{seq % ROWS}", seq, batch, ROWS) for seq in range(batch * ROWS, (batch + 1) * ROWS)]


def watch_buffer(place: Place, stop: Path) -> Watched:
    """Run the reader `buffer`: plan batch reads one after the other, without reading their rows."""
    mine = client(open_cluster(place.url))
    name = str(topic_name(place.topic))
    seen = Watched()
    for _ in looks(stop):
        began = now()
        reading = mine.buffer.read(LogSelection(names=(name,)))
        at = now()
        seen.wrong += [f"cut {reading.cut}: {what}" for what in torn(reading)]
        tops = ((s.name, s.last(reading.cut)) for s in reading.segments)
        positions = tuple((segment, top) for segment, top in tops if top is not None)
        seen.events.append(history.Horizon(at, began, "buffer", (name,), reading.cut, positions))
        seen.answers.append(Answer(began, at, reading.cut))
        time.sleep(PAUSE_SECONDS)
    mine.close()
    return seen


def torn(reading: Reading) -> list[str]:
    """Return a text for each registration of several segments that is visible in one of these segments and not in another."""
    found = []
    by_name = {segment.name: segment for segment in reading.segments}
    shown = {name: {n for n, _ in segment.live} for name, segment in by_name.items()}
    for segment in reading.segments:
        for number, registration in segment.live:
            if number > reading.cut:
                continue
            for other in registration.segments:
                if other in by_name and number > by_name[other].folded_to and number not in shown[other]:
                    found.append(f"{number} is visible in {segment.name} and not in {other}")
    return found


def watch_batches(place: Place, stop: Path) -> Watched:
    """Run the reader `batch`: batch reads one after the other, with all of their rows."""
    seen, noted = Watched(), Observation(str(topic_name(place.topic)))
    for _ in looks(stop):
        began = now()
        rows = read_all(place.url, place.topic)
        noted.read(began, rows)
        seen.answers.append(Answer(began, now(), max((r.position[0] for r in rows), default=0)))
    seen.events = noted.events
    return seen


def watch_stream(place: Place, stop: Path) -> Watched:
    """Run the reader `stream`: one streaming read. It pauses only after a micro-batch without rows."""
    following = Following(place.url, place.topic)
    seen, noted = Watched(), Observation(str(topic_name(place.topic)))
    for _ in looks(stop):
        began, start = now(), following.log
        rows = following.next()
        noted.poll(began, start, following.log, rows)
        seen.answers.append(Answer(began, now(), following.log))
        if not rows:
            time.sleep(POLL_SECONDS)
    seen.events = noted.events
    return seen


def missed(commits: Sequence[Commit], answers: Sequence[Answer]) -> list[str]:
    """Return a text for each answer to one reader that lacks rows which were readable when the reader asked. The rows of a commit
    are readable once this commit and all commits with lower numbers have returned.
    """
    ordered = sorted(commits, key=lambda c: c.number)
    readable = list(accumulate((c.returned_ms for c in ordered), max))
    found = []
    for answer in answers:
        known = bisect_left(readable, answer.began_ms)
        if known and answer.through < (number := ordered[known - 1].number):
            found.append(f"an answer asked for at {answer.began_ms:.0f} reached {answer.through}, {number} was readable before")
    return found


@dataclass(frozen=True, slots=True)
class Lag:
    """The longest time (ms) for which a reader had lacked a transaction when it got its next answer. The two fields count this time
    from different moments:

    behind  when the commits of the transaction and of all transactions with lower numbers had returned; so this is the delay of
            the reader itself
    age     when the commit of the transaction began, so that slow commits are included (protocol.md, invariant 9)
    """

    behind: float
    age: float


def lag(commits: Sequence[Commit], answers: Sequence[Answer]) -> Lag:
    """Return the lag of one reader."""
    ordered = sorted(commits, key=lambda c: c.number)
    readable = list(accumulate((c.returned_ms for c in ordered), max))
    behind = age = 0.0
    known = 0  # index of the first commit that the reader lacks
    for before, after in pairwise(answers):
        while known < len(ordered) and ordered[known].number <= before.through:
            known += 1
        age = max([age, *(after.at_ms - c.began_ms for c in ordered[known:] if c.returned_ms <= after.at_ms)])
        if known < len(ordered):
            behind = max(behind, after.at_ms - readable[known])
    return Lag(behind, age)


def _goes_on(query: Session, seen: Path) -> bool:
    """Wait until a Spark streaming query has finished `ANSWERS` further micro-batches. The one that runs now does not count,
    because Spark may have planned it before the load. Return whether enough micro-batches came within `ANSWER_SECONDS`.
    """
    until, enough = time.monotonic() + ANSWER_SECONDS, _lines(seen) + 1 + ANSWERS
    while (few := _lines(seen) < enough) and query.running() and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return not few


def followed(query: Session, folder: Path, topic: str) -> Watched:
    """Wait until a Spark streaming query has ended. Return each of its micro-batches as an answer."""
    seen = Watched()
    code = query.wait(300)
    query.kill()
    if code != 0:
        seen.wrong.append(f"the streaming query ended with {code}: {query.tail()}")
    through, before = 0, 0.0
    seen.events += polls(folder / "spark" / "seen", topic)
    for poll in seen.events:
        assert isinstance(poll, history.Poll)
        through = max([through, *(row.position[0] for row in poll.rows)])
        seen.answers.append(Answer(before, poll.at, through))
        before = poll.at  # Spark plans a micro-batch after the previous one has ended
    return seen


READERS = {"buffer": watch_buffer, "batch": watch_batches, "stream": watch_stream}


class Load(Scenario):
    """The scenario. Writers and readers run together for `seconds`, or longer, until each reader has `ANSWERS` answers under load.

    `folder`: the folder of the files that start and stop the processes. `readers`: names in `READERS`. `spark`: whether a real
    streaming query also reads. `behind_ms`: a reader whose lag (`Lag.behind`) is larger is an error; None: no limit.
    """

    name = "load"

    def __init__(
        self,
        forks: Forks,
        place: Place,
        folder: Path,
        *,
        writers: int = WRITERS,
        seconds: float = 5.0,
        readers: Sequence[str],
        spark: bool = False,
        behind_ms: float | None = None,
    ) -> None:
        self._forks, self._place, self._folder = forks, place, folder
        self._writers, self._seconds, self._readers, self._behind_ms = writers, seconds, readers, behind_ms
        self._stop, self._seen = folder / STOP, folder / "spark" / "seen"
        self._with_spark, self._query = spark, list[Session]()
        self._watching: dict[str, Child] = {}
        self._writing: list[Child] = []
        self._first: list[Commit] = []
        self._commits: list[Commit] = []
        self._watched: dict[str, Watched] = {}

    def setup(self) -> None:
        forks, place = self._forks, self._place
        forks.call(make, place, Settings())
        forks.call(planned, place)
        self._first = forks.call(warm_up, place, self._writers, range(1))
        if self._with_spark:
            self._query.append(follow(place, self._folder, self._stop))
            self._first += forks.call(warm_up, place, self._writers, range(1, WARM), self._seen)

    def start(self) -> None:
        self._watching = {name: self._forks.start(READERS[name], self._place, self._stop) for name in self._readers}
        self._writing = [self._forks.start(write_for, self._place, w, self._folder) for w in range(self._writers)]
        wait_until("ready", (*self._watching.values(), *self._writing), self._folder)

    def check(self) -> list[str]:
        """Let the writers and readers work together, and then end. Check the answers to the readers, and the history."""
        folder = self._folder
        (folder / START).touch()
        until = time.monotonic() + self._seconds
        wait_until("writing", self._writing, folder)
        (folder / LOADED).touch()
        missing = [name for name, child in self._watching.items() if late("answered", [child], folder, ANSWER_SECONDS)]
        missing += ["spark" for query in self._query if not _goes_on(query, self._seen)]
        wrong = [f"{name}: not {ANSWERS} answers within {ANSWER_SECONDS:g} s while others wrote" for name in missing]
        time.sleep(max(0.0, until - time.monotonic()))
        (folder / ENOUGH).touch()
        self._commits = [commit for child in self._writing for commit in child.result()]
        self._stop.touch()
        self._watched = {name: child.result() for name, child in self._watching.items()}
        for query in self._query:
            self._watched["spark"] = followed(query, folder, self._place.topic)
        everything = [*self._first, *self._commits]
        for name, seen in self._watched.items():
            wrong += [f"{name}: {what}" for what in (*seen.wrong, *missed(everything, seen.answers))]
            if self._behind_ms is not None and (behind := lag(self._commits, seen.answers).behind) >= self._behind_ms:
                wrong.append(f"{name} fell {behind:.0f} ms behind")
        left, last = self._forks.call(end_of_load, self._place)
        topic = str(topic_name(self._place.topic))
        asked = [event for commit in everything for event in commit.events(topic)]
        seen_by = [seen.events for seen in self._watched.values()]
        return [*wrong, *left, *judged([asked, *seen_by, last], folder / "history.jsonl")]

    def figures(self) -> str:
        commits = self._commits
        took = sorted(c.returned_ms - c.began_ms for c in commits)
        span = (max(c.returned_ms for c in commits) - min(c.began_ms for c in commits)) / 1000
        lags = ", ".join(
            f"{name} {found.behind:.0f} ms behind ({found.age:.0f} ms since a commit began) over {len(seen.answers)} reads"
            for name, seen in self._watched.items()
            for found in (lag(commits, seen.answers),)
        )
        return (
            f"{self._writers} writers, {len(commits)} commits in {span:.1f} s = {len(commits) / span:.0f}/s (median "
            f"{took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f}, longest {took[-1]:.0f}); {lags}"
        )

    def close(self) -> None:
        for child in (*self._writing, *self._watching.values()):
            child.stop()
        for query in self._query:
            query.kill()


def end_of_load(place: Place) -> tuple[list[str], list[history.Event]]:
    """Sweep once. Return the transactions and op records that the sweep left (`unfinished`), and the event of a final read."""
    left, noted = unfinished(place), Observation(str(topic_name(place.topic)))
    began = now()
    noted.read(began, read_all(place.url, place.topic), final=True)
    return left, noted.events
