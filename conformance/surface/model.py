"""The expected content of a cluster, in plain Python: topics, committed rows, acknowledgements, and rows that may be trimmed.

The model shares no code with the product. A row is identified by its number `n`, which it has as a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


class Fault(AssertionError):
    """The product broke a rule of the model. `oracle`: the name of the rule. When a failing run is shrunk, it must still break the
    same rule.
    """

    def __init__(self, oracle: str, text: str) -> None:
        super().__init__(f"{oracle}: {text}")
        self.oracle, self.text = oracle, text


@dataclass
class Row:
    """A row that was given to the product. `topic`: the incarnation of its topic (`Topic.incarnation`), so that a recreated topic
    counts as another topic.
    """

    n: int
    topic: str
    key: str | None


@dataclass
class Written:
    """One transaction. `number`: the log number of its registration; None before the registration, and for persistent topics."""

    rows: list[Row] = field(default_factory=list)
    acks: list[tuple[str, str, frozenset[int]]] = field(default_factory=list)
    """The acknowledgements of the transaction: topic, subscription and rows of each."""
    number: int | None = None
    state: str = "staged"
    ledgers: dict[str, int] = field(default_factory=dict)
    """Name of a persistent topic -> the number that the transaction's rows have in the log of this topic."""


@dataclass
class Topic:
    """A topic. `incarnation`: its name, `#`, and how often a topic of this name was created so far. `keep_ms`, `keep_bytes`: the
    limits of its retention. `despite`: whether retention ignores subscriptions.
    """

    name: str
    incarnation: str
    key: str | None
    keep_ms: int | None = None
    keep_bytes: int | None = None
    despite: bool = False
    persistent: bool = False
    came_from: str | None = None
    """The incarnation of the persistent topic that was migrated to this topic. The rows of that topic belong to this one."""

    @property
    def incarnations(self) -> set[str]:
        return {self.incarnation} | ({self.came_from} if self.came_from else set())


@dataclass
class Persistent:
    """What the model knows of persistent topics, by their full names.

    `data`: the number of the newest rows in the log of the topic. `seals`: the number of the newest migration seal in this log.
    `shifts`: the amount by which a completed migration raises the numbers of the rows in this log. `onto`: the successor of a
    migrated topic. `moving`: the successor that a migration in progress names.
    """

    data: dict[str, int] = field(default_factory=dict)
    seals: dict[str, int] = field(default_factory=dict)
    shifts: dict[str, int] = field(default_factory=dict)
    onto: dict[str, str] = field(default_factory=dict)
    moving: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> str:
        """Return the name of the topic to which `name` resolves."""
        return self.onto.get(name, name)

    def all_names(self, names: Iterable[str]) -> set[str]:
        """Return the names, and for each successor among them also the old name of the migrated topic."""
        known = set(names)
        return known | {name for name, onto in self.onto.items() if onto in known}


@dataclass
class Model:
    """The model of one cluster."""

    topics: dict[str, Topic] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    committed: dict[int, Written] = field(default_factory=dict)
    """Row (its number `n`) -> the committed transaction that wrote it."""
    published: dict[int, int] = field(default_factory=dict)
    """Committed row -> the time in ms from which the model counts its age."""
    acked: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """(topic name, subscription) -> the acknowledged rows."""
    gone: dict[int, int] = field(default_factory=dict)
    """Row that retention or a deletion may have removed -> the first step of the run at which it may be missing."""
    deleted_ms: dict[str, int] = field(default_factory=dict)
    """Name -> the earliest time that the clock showed when a topic of this name was deleted."""
    versions: dict[str, int] = field(default_factory=dict)
    persistent: Persistent = field(default_factory=Persistent)
    step: int = 0

    # --- topics ----------------------------------------------------------------------------------------------------------

    def make(self, name: str, key: str | None, *, persistent: bool = False) -> Topic:
        count = self.made[name] = self.made.get(name, 0) + 1
        topic = self.topics[name] = Topic(name, f"{name}#{count}", key, persistent=persistent)
        return topic

    def delete(self, name: str, shown_ms: int) -> None:
        """Delete a topic with its rows and acknowledgements. `shown_ms`: the time that the clock shows."""
        topic = self.topics.pop(name)
        self.deleted_ms[name] = min(shown_ms, self.deleted_ms.get(name, shown_ms))
        for row in self.rows_of(topic):
            self.gone.setdefault(row.n, self.step)
        for key in [key for key in self.acked if key[0] == name]:
            del self.acked[key]

    def migrated(self, name: str, onto: str) -> Topic:
        """Turn a persistent topic into the new `topic://` named `onto`. Its rows keep their order, and their numbers become higher
        by `Persistent.shifts`.
        """
        before = self.topics.pop(name)
        after = self.make(onto, None)
        after.came_from = before.incarnation
        after.keep_ms, after.keep_bytes, after.despite = before.keep_ms, before.keep_bytes, before.despite
        self.persistent.onto[name] = onto
        shift = self.persistent.shifts[name]
        for written in self.transactions():
            mine = [row for row in written.rows if row.topic == before.incarnation]
            if not mine or written.number is not None:
                continue  # it has a log number, so it committed after the seal, and its rows are in the successor
            # The rows of a transaction over several persistent topics become visible in each topic separately. So from now on the
            # model has the rows in this topic as a transaction of their own.
            if len(mine) < len(written.rows):
                written.rows = [row for row in written.rows if row.topic != before.incarnation]
                written = Written(mine, state="committed", ledgers=written.ledgers)
                self.committed.update({row.n: written for row in mine})
            written.number = written.ledgers[name] + shift
        for key in [key for key in self.acked if key[0] == name]:
            self.acked[onto, key[1]] = self.acked.pop(key)
        return after

    def rows_of(self, topic: Topic) -> list[Row]:
        """Return the committed rows of a topic, in the order of their commits."""
        return [row for row in self._all() if row.topic in topic.incarnations]

    def _all(self) -> Iterator[Row]:
        for written in self.transactions():
            yield from written.rows

    def transactions(self) -> list[Written]:
        """Return the committed transactions, in the order of their commits."""
        return list({id(written): written for written in self.committed.values()}.values())

    # --- transactions ----------------------------------------------------------------------------------------------------

    def commit(self, written: Written, number: int | None, now_ms: int) -> None:
        """Record the commit of a transaction. From now on the model expects its rows and acknowledgements."""
        written.state, written.number = "committed", number
        for name in {row.topic.partition("#")[0] for row in written.rows} & self.persistent.data.keys():
            written.ledgers.setdefault(name, self.persistent.data[name])
        for row in written.rows:
            if row.n in self.committed:
                raise AssertionError(f"the driver committed row {row.n} twice")
            self.committed[row.n] = written
            self.published[row.n] = now_ms
            if row.topic not in {inc for topic in self.topics.values() for inc in topic.incarnations}:
                # The topic was deleted before the commit. If the transaction was registered before the deletion, the row is gone.
                # Otherwise the row is in the recreated topic. The model does not know which case it is, so the row may be missing.
                self.gone.setdefault(row.n, 0)
                again = self.topics.get(self.persistent.named(row.topic.partition("#")[0]))
                row.topic = row.topic if again is None else again.incarnation
        for topic, subscription, rows in written.acks:
            if (topic, subscription) in self.acked:
                self.acked[topic, subscription] |= rows

    def between(self, topics: Iterable[Topic], start: int, end: int) -> set[int]:
        """Return the rows of these topics with start < number <= end. Rows of deleted incarnations of the topics are included."""
        names = self.persistent.all_names(topic.name for topic in topics)
        found = set()
        for written in self.transactions():
            if written.number is not None and start < written.number <= end:
                found |= {row.n for row in written.rows if row.topic.partition("#")[0] in names}
        return found

    # --- rules -----------------------------------------------------------------------------------------------------------

    def check_real(self, found: Iterable[int], where: str) -> None:
        """Raise Fault if a read returned a row that no transaction committed."""
        ghosts = sorted(n for n in found if n not in self.committed)
        if ghosts:
            raise Fault("ghost", f"{where} shows rows {ghosts} that no transaction committed")

    def check_once(self, found: list[int], where: str) -> None:
        twice = sorted({n for n in found if found.count(n) > 1}) if len(set(found)) < len(found) else []
        if twice:
            raise Fault("twice", f"{where} shows rows {twice} twice")

    def check_whole(self, found: Iterable[int], where: str) -> None:
        """Raise Fault if a read returned only a part of the rows that a transaction wrote to a topic."""
        seen = set(found)
        for written in {id(self.committed[n]): self.committed[n] for n in seen}.values():
            by_topic: dict[str, set[int]] = {}
            for row in written.rows:
                by_topic.setdefault(row.topic, set()).add(row.n)
            for topic, rows in by_topic.items():
                if rows & seen and rows - seen:
                    raise Fault(
                        "torn",
                        f"{where} shows {len(rows & seen)} of {len(rows)} rows of a transaction in {topic}: {sorted(rows & seen)}",
                    )

    def check_rows(self, found: list[int], expected: set[int], where: str, *, gone_by: int | None, what: str) -> None:
        """Raise Fault if a read did not return exactly the expected rows. `gone_by`: rows that may have been removed at or before
        this step of the run may be missing (None: no row may be missing). `what`: the kind of the read, with which the oracle
        begins.
        """
        self.check_real(found, where)
        self.check_once(found, where)
        more = set(found) - expected
        if more:
            raise Fault(f"{what}: more", f"{where} shows rows {sorted(more)}, which are not in its range")
        missing = {n for n in expected - set(found) if gone_by is None or self.gone.get(n, gone_by + 1) > gone_by}
        if missing:
            raise Fault(
                f"{what}: lost", f"{where} does not show rows {sorted(missing)}, which are committed; it shows {sorted(found)}"
            )

    # --- retention -------------------------------------------------------------------------------------------------------

    def trimmed(self, now_ms: int) -> None:
        """Record the rows that a trim may remove now: those that no subscription needs and that may be beyond the retention of
        their topic. If the retention has a limit of bytes, every row of the topic may be beyond it.
        """
        for topic in self.topics.values():
            if topic.keep_ms is None and topic.keep_bytes is None:
                continue
            needed: set[int] = set()
            rows = self.rows_of(topic)
            if not topic.despite:
                for (name, _), acked in self.acked.items():
                    if name == topic.name:
                        needed |= {row.n for row in rows} - acked
            for row in rows:
                old = topic.keep_ms is not None and self.published[row.n] + topic.keep_ms < now_ms
                if (old or topic.keep_bytes is not None) and row.n not in needed:
                    self.gone.setdefault(row.n, self.step)
