"""Streaming queries. The operations kill them, start them again, run them with limits or with `AvailableNow`, and remove entries of
their commit log.
"""

from __future__ import annotations

import json

from conformance.harness.spark_driver import MicroBatchExecution, numbers
from conformance.surface.bench import Bench
from conformance.surface.common import SUBSCRIPTIONS, attempt, unfinished
from conformance.surface.model import Fault, Topic
from conformance.surface.operations import PICK, Args, one_of, operation
from conformance.surface.world import Process, World
from conformance.surface.writing import topic_of
from metadata.common.errors import (
    AckConflict,
    DataLoss,
    OffsetOutOfRange,
    SchemaError,
    SubscriptionNotFound,
    TopicNotFound,
)


class Query:
    """A streaming query and its output. `output`: the rows of each micro-batch. `since`: the step of the run at which the engine
    last asked the reader for the initial offset. `begun`: the rows that the query's subscription had acknowledged at that time.
    `read`: whether the current micro-batch has been read. `over`: whether the model has stopped predicting what the query
    acknowledges.
    """

    persistent = False
    """Whether the query reads persistent names."""

    def __init__(self, world: World, options: dict[str, str], names: tuple[str, ...], subscription: str | None) -> None:
        self.world, self.options, self.names, self.subscription = world, options, names, subscription
        self.engine = MicroBatchExecution()
        self.process: Process | None = None
        self.output: dict[int, list[int]] = {}
        self.since: int | None = None
        self.begun: set[int] = set()
        self.read = False
        self.over = False

    @property
    def where(self) -> str:
        more = {k: v for k, v in self.options.items() if k != "serviceUrl"}
        return f"batch {self.engine.batch} ({self.engine.initial} .. {self.engine.offsets}) of the stream {more}"

    def topics(self) -> list[Topic]:
        model = self.world.model
        if self.names == ("*",):
            return [Topic(name, f"{name}#", None) for name in model.made if name.startswith("t")]
        return [model.topics.get(name) or Topic(name, f"{name}#", None) for name in self.names]

    def sought(self, found: tuple[str, str]) -> None:
        """Stop predicting acknowledgements if a seek moved this query's cursor. `found`: topic and subscription of the seek."""
        if found[0] in self.names and found[1] == self.subscription:
            self.over = True

    def stop(self) -> None:
        self.engine.stop()
        self.process, self.read = None, False

    def ensure(self, process: Process, *, available_now: bool = False) -> None:
        if self.engine.reader is None:
            self.process, self.read = process, False
            with self.world.inside(process):
                self.engine.start(self.options, available_now=available_now)

    def stage(self) -> str | None:
        """Run the next step of the engine and return its name; None if there is nothing to do."""
        engine = self.engine
        assert self.process is not None
        with self.world.inside(self.process):
            acked = self._acked()
            if engine.look():
                self.since, self.begun = self.world.model.step, acked
                return "looked"
            if not engine.constructed:
                logged = len(engine.offsets)
                behind = engine.offsets[-1] if engine.offsets else None
                constructed = engine.construct()
                if len(engine.offsets) > logged and behind is not None:
                    self._acknowledge(behind)
                return "planned" if constructed else None
            if not self.read:
                found = engine.run()
                if found is not None:
                    self._check(numbers(found))
                self.read = True
                return "read"
            engine.done()
            self.read = False
            return "committed"

    def _acked(self) -> set[int]:
        if self.subscription is None:
            return set()
        return {n for name in self.names for n in self.world.model.acked.get((name, self.subscription), ())}

    def _acknowledge(self, text: str) -> None:
        """Record in the model that the reader's `commit` moved the cursors. `text`: the offset up to which it acknowledges rows."""
        model = self.world.model
        if self.subscription is None:
            return
        end = json.loads(text)["log"]
        for name in self.names:
            if name in model.topics and (name, self.subscription) in model.acked:
                rows = {row.n for row in model.rows_of(model.topics[name]) if (model.committed[row.n].number or 0) <= end}
                unread = rows - model.acked[name, self.subscription] - {n for out in self.output.values() for n in out}
                lost = {n for n in unread if n not in model.gone}
                if lost and not self.over:
                    raise Fault("stream: acked unread", f"{self.where} acknowledges rows {sorted(lost)}, which it has not read")
                model.acked[name, self.subscription] |= rows

    def _check(self, found: list[int]) -> None:
        engine, model = self.engine, self.world.model
        assert engine.initial is not None
        start = json.loads(engine.offsets[engine.batch - 1] if engine.batch else engine.initial)["log"]
        end = json.loads(engine.offsets[engine.batch])["log"]
        expected = model.between(self.topics(), start, end) - self.begun
        lenient = self.options.get("failOnDataLoss") == "false"
        gone_by = model.step if lenient else self.since
        model.check_rows(found, expected, self.where, gone_by=gone_by, what="stream")
        if not self.begun:
            model.check_whole(found, self.where)
        earlier = self.output.get(engine.batch)
        if earlier is not None and sorted(earlier) != sorted(found) and not lenient:
            raise Fault("stream: replay", f"{self.where} had rows {sorted(earlier)}, and has {sorted(found)} when it is run again")
        if self.over and self.subscription:
            return
        self.output[engine.batch] = found

    def check_ended(self, rows: set[int]) -> None:
        """Do nothing. Queries of persistent names override this (`persistent_streams.py`)."""

    def justified(self, error: object) -> bool:
        """Return whether the model permits this error of the query."""
        model = self.world.model
        if isinstance(error, TopicNotFound | SubscriptionNotFound):
            return any(name not in model.topics or (name, self.subscription) not in model.acked for name in self.names)
        if isinstance(error, OffsetOutOfRange):  # permitted if the starting timestamp came from a clock that was ahead
            return int(self.options.get("startingTimestamp", 0)) > self.world.clock.now_ms()
        if isinstance(error, SchemaError):
            return True
        if isinstance(error, AckConflict):
            return self.subscription is not None
        names = model.persistent.all_names(topic.name for topic in self.topics())
        if any(self.world.forgotten(name) for name in names):
            return True  # a topic was deleted long ago, and the record that tells whether it had rows may have expired
        return any(row.topic.partition("#")[0] in names for n in model.gone for row in model.committed[n].rows if row.n == n)


ERRORS = (DataLoss, TopicNotFound, SubscriptionNotFound, OffsetOutOfRange, SchemaError, AckConflict)


@operation(5, t=PICK, t2=PICK, what=4, start=6, number=PICK, limit=4, ago=PICK)
def stream(bench: Bench, a: Args) -> object:
    """Add a streaming query with a new checkpoint. The query is not started yet."""
    world = bench.world(a["w"])
    if len(world.queries) >= 3:
        return False
    names = tuple(dict.fromkeys(n for pick in (a["t"], a["t2"]) if (n := topic_of(world, pick)) is not None))
    if not names:
        return False
    if a["what"] < 2:
        names = names[:1]
    options = {"serviceUrl": world.url}
    if a["what"] == 3:
        names = ("*",)
        options |= {"topicsPattern": "topic://public/default/t.*"}
    elif len(names) == 1:
        options |= {"path": names[0]}
    else:
        options |= {"paths": json.dumps(names)}
    subscription = None
    if a["start"] == 1:
        options |= {"startingOffsets": "earliest"}
    elif a["start"] == 2:
        known = sorted({w.number for w in world.model.transactions() if w.number is not None})
        if known:
            options |= {"startingOffsets": json.dumps({"log": known[a["number"] % len(known)]})}
    elif a["start"] == 3:
        options |= {"startingTimestamp": str(world.clock.now_ms() - a["ago"] % 300)}
    elif a["start"] == 4 and names != ("*",):
        subscription = SUBSCRIPTIONS[a["number"] % len(SUBSCRIPTIONS)]
        if any((name, subscription) not in world.model.acked for name in names):
            return False
        options |= {"subscription": subscription}
    if a["limit"] == 1:
        options |= {"maxRowsPerTrigger": str(1 + a["number"] % 5)}
    elif a["limit"] == 2:
        options |= {"maxBytesPerTrigger": str(1 + a["number"] % 4000)}
    world.queries.append(Query(world, options, names, subscription))
    return None


def query_of(world: World, pick: int) -> Query | None:
    found: Query | None = one_of([q for q in world.queries if q.process is None or q.process.held is None], pick)
    return found


def drive(bench: Bench, query: Query, process: Process, steps: int, *, available_now: bool = False) -> bool:
    """Run up to `steps` steps of the engine. Return False if the query failed with a permitted error or had nothing more to do."""
    with attempt(bench, *ERRORS) as tried:
        query.ensure(process, available_now=available_now)
        for _ in range(steps):
            if query.stage() is None:
                return False
    if tried.error is None:
        return True
    query.stop()
    if isinstance(tried.error, SchemaError) and not query.engine.offsets:
        return False  # before the first row is written there is no schema; a later operation starts the query again
    if not query.justified(tried.error):
        raise Fault("stream error", f"{query.where} failed: {type(tried.error).__name__}: {tried.error}")
    if not isinstance(tried.error, AckConflict):
        query.world.queries.remove(query)
    return False


@operation(22, q=PICK, steps=5, p=PICK)
def stream_run(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    query = query_of(world, a["q"])
    if query is None:
        return False
    drive(bench, query, world.process(a["p"]), 1 + a["steps"])
    return None


@operation(5, q=PICK)
def stream_kill(bench: Bench, a: Args) -> object:
    """Stop a query. Its checkpoint stays, and a later operation starts it again."""
    world = bench.world(a["w"])
    running = [q for q in world.queries if q.engine.reader is not None]
    query: Query | None = one_of(running, a["q"])
    if query is None:
        return False
    query.stop()
    return None


@operation(1, q=PICK, p=PICK)
def stream_lose_commit(bench: Bench, a: Args) -> object:
    """Stop a query and remove the last entry of its commit log."""
    world = bench.world(a["w"])
    query = query_of(world, a["q"])
    if query is None or not query.engine.commits:
        return False
    query.stop()
    query.engine.commits.discard(max(query.engine.commits))
    return None


@operation(3, q=PICK, p=PICK, most=6)
def stream_available_now(bench: Bench, a: Args) -> object:
    """Start a query with Trigger.AvailableNow. Run it to its end, or stop it after some steps."""
    world = bench.world(a["w"])
    query = query_of(world, a["q"])
    if query is None:
        return False
    query.stop()
    rows = {row.n for t in query.topics() for row in world.model.rows_of(t)} if query.names != ("*",) else set()
    quiet = not unfinished(world)
    more = drive(bench, query, world.process(a["p"]), 3 * (a["most"] or 200) + 1, available_now=True)
    if not more and query in world.queries and query.engine.reader is not None and quiet:
        check_caught_up(query, rows)
    if more and not a["most"]:
        raise Fault("endless", f"{query.where} with AvailableNow did not end after 200 batches")
    query.stop()
    return None


def check_caught_up(query: Query, rows: set[int]) -> None:
    """Check that a query that has read to its end has read far enough. `rows`: the rows that existed when it began. Its last offset
    must not lie below any of these rows, unless they may have been removed.
    """
    if query.persistent:
        query.check_ended(rows)
        return
    model, engine = query.world.model, query.engine
    if engine.initial is None or not engine.offsets or (query.over and query.subscription):
        return
    start, end = json.loads(engine.initial)["log"], json.loads(engine.offsets[-1])["log"]
    beyond = {n for n in rows if (model.committed[n].number or 0) > max(start, end)}
    if beyond - model.gone.keys():
        raise Fault("stopped short", f"{query.where} ended before rows {sorted(beyond)}, which were committed when it began")
