"""Subscriptions and consumers: all ways to leave and continue a generator of a consumer, and all kinds of acknowledgements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.surface.bench import Bench
from conformance.surface.common import SUBSCRIPTIONS, Open, attempt, claimed, known_as, unfinished
from conformance.surface.model import Fault
from conformance.surface.operations import PICK, Args, one_of, operation
from conformance.surface.world import Process, World
from conformance.surface.writing import topic_of
from metadata.common.errors import AckConflict, DataLoss, NotDelivered, SubscriptionExists, SubscriptionNotFound, TopicNotFound
from txnsegment import Batch, Message

LOST = (TopicNotFound, SubscriptionNotFound, DataLoss)


@dataclass
class Following:
    """A consumer, and what the model knows about it. A reset is the moment from which the consumer delivers all unacknowledged rows
    again.

    `handed`: the delivered rows since the last reset, each with its message or batch. `acked`: the rows that the subscription had
    acknowledged at that reset. `generators`: the generators of the consumer that have not ended. `stale`: whether one of its topics
    or its subscription was deleted, or it has reported a loss. The model then no longer predicts what the consumer delivers.
    `several`: whether it was opened by persistent names and reads several topics.
    """

    world: World
    process: Process
    consumer: Any
    topics: tuple[str, ...]
    subscription: str
    acked: set[int] = field(default_factory=set)
    handed: list[tuple[int, Message | Batch]] = field(default_factory=list)
    generators: list[Any] = field(default_factory=list)
    stale: bool = False
    several: bool = False
    joined: bool = False
    """Whether the consumer is `several`, and one of its topics was migrated after the consumer was opened."""
    last: int | None = None
    """The log number of the row that was delivered last. Rows without a log number are left out."""
    due: bool = False
    """Whether a transaction with acks of this consumer has ended without a commit. If so, its next delivery resets the consumer."""
    skipped: bool = False
    """Whether a transaction with acks of this consumer was skipped. Until its next delivery, its cumulative acks fail."""
    floors: list[tuple[Open | None, set[int]]] = field(default_factory=list)
    """(transaction, rows) of each cumulative ack since the last reset. Transaction None: the ack was made outside a transaction."""

    owed: set[int] = field(default_factory=set)
    """Undelivered rows of a deleted topic. The consumer must report their loss before it delivers rows of later commits."""
    committed_before: set[int] = field(default_factory=set)
    """All rows that were committed when the topic of the rows in `owed` was deleted."""

    def deleted(self, name: str) -> None:
        """Record that one of the topics of the consumer was deleted."""
        model = self.world.model
        if not (self.stale or self.several or self.joined or unfinished(self.world) or claimed(self.world)):
            rows = {row.n for row in model.rows_of(model.topics[name])} - model.gone.keys() - model.acked[name, self.subscription]
            self.owed = rows - self.acked - {n for n, _ in self.handed}
            self.committed_before = set(model.committed)
        self.stale = True

    def counted(self) -> set[int]:
        """Return the rows of all cumulative acks that have taken effect: acks outside a transaction, and acks in committed
        transactions. A later cumulative ack of the consumer does not acknowledge these rows again.
        """
        return {n for one, rows in self.floors if one is None or one.written.state == "committed" for n in rows}

    def begun(self, *, by_itself: bool = False) -> None:
        """Record that the consumer was reset. `by_itself`: whether the consumer reset itself, without a call of `rewind`. In that
        case it must still report the loss of the rows in `owed`.
        """
        owed = self.owed if by_itself else set()
        self.due = self.skipped = False
        self.acked = set()
        for topic in self.topics:
            self.acked |= self.world.model.acked.get((topic, self.subscription), set())
        self.handed, self.last, self.floors, self.owed = [], None, [], owed

    def close(self) -> None:
        self.consumer.close()

    def hand(self, given: Message | Batch) -> None:
        found = [given.value["n"]] if isinstance(given, Message) else given.rows.column("n").to_pylist()
        model = self.world.model
        where = f"consumer {self.topics} {self.subscription}"
        model.check_real(found, where)
        before = {n for n, _ in self.handed}
        for n in found:
            if n in self.acked and not self.stale:
                raise Fault("consumer: again", f"{where} delivers row {n}, which was acknowledged before it began")
            if n in before:
                raise Fault("consumer: twice", f"{where} delivers row {n} twice without a rewind")
            if self.owed - before and n not in self.committed_before:
                raise Fault("consumer: lost", f"{where} delivers row {n}; rows {sorted(self.owed)} went with their topic, unsaid")
            self._in_order(n, where)
            self.handed.append((n, given))

    def _in_order(self, n: int, where: str) -> None:
        model = self.world.model
        number = model.committed[n].number
        # A consumer of several topics may have read rows ahead when one of the topics migrates. It delivers these rows first. Rows
        # of the migrated topic may have lower numbers and follow them. So the order is not checked for such a consumer (`joined`).
        if number is not None and not self.stale and not self.joined:
            if self.last is not None and number < self.last:
                raise Fault("consumer: order", f"{where} delivers row {n} of {number} behind {self.last}")
            self.last = number

    def check_all(self) -> None:
        """Check, after a generator has ended, that every committed row was delivered or is acknowledged, trimmed or deleted."""
        if self.stale or unfinished(self.world):
            return
        model = self.world.model
        expected = {row.n for topic in self.topics for row in model.rows_of(model.topics[topic])} - self.acked
        for topic in self.topics:
            expected -= model.acked.get((topic, self.subscription), set())
        missing = {n for n in expected - {n for n, _ in self.handed} if n not in model.gone}
        if missing:
            where = f"consumer {self.topics} {self.subscription}"
            raise Fault(
                "consumer: lost",
                f"{where} came to its end without rows {sorted(missing)}, which are committed and not acknowledged",
            )


@operation(4, t=PICK, s=len(SUBSCRIPTIONS), start=3, p=PICK)
def subscribe(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name, sub = topic_of(world, a["t"]), SUBSCRIPTIONS[a["s"]]
    if name is None:
        return False
    start, acked = place(world, name, a["start"], a["p"])
    if start is None:
        return False
    with attempt(bench, SubscriptionExists) as tried:
        world.process(a["p"]).cluster.subscriptions.create(name, sub, start=start)
    if tried.failed != ((name, sub) in world.model.acked):
        raise Fault("subscription", f"create({name}, {sub}): {tried.error}; the model has {sorted(world.model.acked)}")
    if not tried.failed:
        world.model.acked[name, sub] = acked
    return None


def place(world: World, name: str, how: int, pick: int) -> tuple[str | int | None, set[int]]:
    """Return a start for a subscription, and the rows that a subscription with this start does not deliver. The start is None if
    the topic has no log numbers to select, or if the model cannot tell these rows. `how`: 0 for "earliest", 1 for "latest", else a
    log number that `pick` selects.
    """
    rows = world.model.rows_of(world.model.topics[name])
    if how == 0:
        return "earliest", set()
    if unfinished(world):
        return None, set()
    if how == 1:
        return "latest", {row.n for row in rows}
    numbers = sorted({number for row in rows if (number := world.model.committed[row.n].number) is not None})
    if not numbers:
        return None, set()
    number = numbers[pick % len(numbers)]
    return number, {row.n for row in rows if (world.model.committed[row.n].number or 0) <= number}


@operation(0.7, i=PICK, start=3, p=PICK)
def seek(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    found = one_of(sorted(world.model.acked), a["i"])
    if found is None or claimed(world):
        return False
    start, acked = place(world, found[0], a["start"], a["p"])
    if start is None:
        return False
    world.process(a["p"]).cluster.subscriptions.seek(found[0], found[1], start)
    world.model.acked[found] = acked
    for following in world.consumers:
        if found[0] in following.topics and following.subscription == found[1]:
            with attempt(bench, *LOST) as tried:
                following.consumer.rewind()
            if tried.failed:
                following.stale = True
            following.begun()
    for query in world.queries:
        query.sought(found)
    return None


@operation(0.5, i=PICK, p=PICK)
def unsubscribe(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    found = one_of(sorted(world.model.acked), a["i"])
    if found is None:
        return False
    world.process(a["p"]).cluster.subscriptions.delete(*found)
    del world.model.acked[found]
    for following in world.consumers:
        if found[0] in following.topics and following.subscription == found[1]:
            following.stale = True
    return None


@operation(4, t=PICK, t2=PICK, both=4, s=len(SUBSCRIPTIONS), p=PICK)
def consumer_open(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    sub = SUBSCRIPTIONS[a["s"]]
    picks = (a["t"], a["t2"]) if a["both"] == 0 else (a["t"],)
    names = tuple(dict.fromkeys(name for pick in picks if (name := topic_of(world, pick)) is not None))
    if not names or len(world.consumers) >= 3:
        return False
    process = world.process(a["p"])
    with attempt(bench, DataLoss) as tried:
        consumer = process.cluster.consumer(names, sub, start="earliest")
    for name in names:
        world.model.acked.setdefault((name, sub), set())
    if tried.failed:
        justify_loss(world, names, sub, tried.error)
        return None
    following = Following(world, process, consumer, names, sub)
    following.begun()
    world.consumers.append(following)
    return None


def justify_loss(world: World, names: tuple[str, ...], sub: str, error: object) -> None:
    """Raise Fault if `error`, a DataLoss, cannot be right. It can be right if retention or a deletion may have removed a row that
    `sub` had not acknowledged.
    """
    model = world.model
    for name in names:
        rows = {row.n for row in model.rows_of(model.topics[name])} if name in model.topics else set()
        if any(n in model.gone for n in rows - model.acked.get((name, sub), set())):
            return
    raise Fault("false loss", f"DataLoss, though retention can have taken nothing that {sub} of {names} needs: {error}")


def consumer_of(world: World, pick: int) -> Following | None:
    found: Following | None = one_of([one for one in world.consumers if one.process.held is None], pick)
    return found


@operation(18, c=PICK, count=6, kind=3, leave=4, g=PICK, old=3)
def consume(bench: Bench, a: Args) -> object:
    """Take some messages or batches from a new generator or from one that was left earlier. Leave the generator in one of several
    ways (`take`).
    """
    world = bench.world(a["w"])
    following = consumer_of(world, a["c"])
    if following is None:
        return False
    if a["old"] == 0 and following.generators:
        made = following.generators[a["g"] % len(following.generators)]
    else:
        consumer = following.consumer
        made = consumer.messages(timeout=0) if a["kind"] < 2 else consumer.batches(timeout=0)
        following.generators.append(made)
    take(bench, following, made, a["count"] if 0 < a["count"] < 4 else 1_000, a["leave"])
    return None


class _InBody(Exception):
    pass


def take(bench: Bench, following: Following, made: Any, count: int, leave: int) -> bool:
    """Take up to `count` messages or batches from a generator in a loop. Return whether the generator ended.

    `leave`: how the loop ends if the generator has not ended. 0: with `break`. 1 or 3: with `break`, and the generator is closed.
    2: with an error in the body of the loop.
    """
    ended = True
    if following.due:
        following.begun(by_itself=True)
    with attempt(bench, *LOST) as tried:
        try:
            for taken, given in enumerate(made, 1):
                following.hand(given)
                if taken >= count:
                    ended = False
                    if leave == 2:
                        raise _InBody
                    break
        except _InBody:
            pass
        if leave in (1, 3) and not ended:
            made.close()
    if tried.failed:
        if not following.stale:
            justify_loss(following.world, following.topics, following.subscription, tried.error)
        following.stale = True
    if (ended or tried.failed or leave in (1, 3)) and made in following.generators:
        following.generators.remove(made)
    if ended and not tried.failed:
        following.check_all()
    return ended


@operation(3, c=PICK)
def rewind(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    following = consumer_of(world, a["c"])
    if following is None:
        return False
    with attempt(bench, *LOST) as tried:
        following.consumer.rewind()
    if tried.failed:
        if not following.stale:
            justify_loss(world, following.topics, following.subscription, tried.error)
        following.stale = True
    following.begun()
    return None


@operation(1, c=PICK)
def consumer_close(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    following = consumer_of(world, a["c"])
    if following is None:
        return False
    following.close()
    world.consumers.remove(following)
    return None


def rows_of(given: Message | Batch) -> frozenset[int]:
    if isinstance(given, Message):
        return frozenset([given.value["n"]])
    return frozenset(given.rows.column("n").to_pylist())


@operation(10, c=PICK, what=4, i=PICK, x=PICK, txn=3)
def ack(bench: Bench, a: Args) -> object:
    """Acknowledge delivered messages or batches: one, several, those of one segment, or all. The call is made outside or in a
    transaction.
    """
    world = bench.world(a["w"])
    following = consumer_of(world, a["c"])
    if following is None or not following.handed:
        return False
    given = list({id(one): one for _, one in following.handed}.values())
    one = given[a["i"] % len(given)]
    done = world.model.acked
    fresh = [g for g in given if not any(n in done.get((_name(world, g), following.subscription), ()) for n in rows_of(g))]
    chosen: list[Message | Batch] = [one]
    if a["what"] == 1:
        chosen = fresh[: 1 + a["i"] % 4]
    elif a["what"] == 2:
        chosen = [g for g in fresh if g.segment == one.segment]
    elif a["what"] == 3:
        chosen = fresh
    if not chosen:
        return False
    rows: dict[str, set[int]] = {}
    for g in chosen:
        rows.setdefault(_name(world, g), set()).update(rows_of(g))
    into: Open | None = one_of(fitting(world, following), a["x"]) if a["txn"] == 0 else None
    with attempt(bench, AckConflict, *LOST) as tried:
        following.consumer.ack(chosen, txn=None if into is None else into.txn)
    judge_ack(world, following, rows, into, tried.error)
    return None


def _name(world: World, given: Message | Batch) -> str:
    return known_as(world, given.topic)


def fitting(world: World, following: Following) -> list[Open]:
    """Return the open transactions in which rows of this consumer may be acknowledged. They have the transaction model of the
    consumer's topics.
    """
    there = world.model.topics
    kinds = {there[name].persistent if name in there else name.startswith("persistent://") for name in following.topics}
    return [o for o in world.transactions if o.process.held is None and kinds <= {o.persistent} and not (o.persistent and o.moved)]


def judge_ack(world: World, following: Following, rows: dict[str, set[int]], into: Open | None, error: object) -> None:
    model, sub = world.model, following.subscription
    if into is not None:
        mine = {(t, s, n) for t, s, found in into.written.acks for n in found}
        twice = {(t, sub, n) for t, found in rows.items() for n in found} & mine
        if error is None:
            into.written.acks += [(t, sub, frozenset(found)) for t, found in rows.items()]
            into.consumers.append(following)
        elif isinstance(error, AckConflict) and not twice and not following.stale:
            raise Fault("conflict", f"AckConflict within one transaction, which had acknowledged none of {rows}: {error}")
        return
    if error is None:
        for topic, found in rows.items():
            if (topic, sub) not in model.acked:
                continue
            twice_rows = found & model.acked[topic, sub]
            if twice_rows:
                raise Fault(
                    "ack", f"rows {sorted(twice_rows)} of {topic} were acknowledged for {sub} a second time, without an AckConflict"
                )
            model.acked[topic, sub] |= found
    elif isinstance(error, AckConflict):
        taken = {(t, s, n) for (t, s), found in model.acked.items() for n in found} | claimed(world)
        if not taken & {(t, sub, n) for t, found in rows.items() for n in found} and not following.stale:
            raise Fault("conflict", f"AckConflict, though nobody had acknowledged or claimed any of {rows} for {sub}: {error}")
    elif not following.stale and not isinstance(error, DataLoss):
        raise Fault("error", f"an ack failed: {error}")


@operation(8, c=PICK, i=PICK, x=PICK, txn=4)
def ack_cumulative(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    following = consumer_of(world, a["c"])
    if following is None or not following.handed or following.stale:
        return False
    _, given = following.handed[a["i"] % len(following.handed)]
    last = max(i for i, (n, _) in enumerate(following.handed) if n in rows_of(given))
    if any(world.model.topics[name].persistent for name in following.topics) and len(following.topics) > 1:
        return False  # each persistent topic has its own order, so a cumulative ack over two has no meaning
    if following.joined:
        return False
    upto = {n for n, _ in following.handed[: last + 1]}
    rows: dict[str, set[int]] = {}
    for n in upto:
        row = next(row for row in world.model.committed[n].rows if row.n == n)
        name = world.model.persistent.named(row.topic.partition("#")[0])
        if n not in world.model.acked.get((name, following.subscription), set()):
            rows.setdefault(name, set()).add(n)
    into: Open | None = one_of(fitting(world, following), a["x"]) if a["txn"] == 0 else None
    with attempt(bench, AckConflict, *LOST, *((NotDelivered,) if following.skipped else ())) as tried:
        following.consumer.ack_cumulative(given, txn=None if into is None else into.txn)
    if following.skipped and tried.error is None:
        raise Fault("ack", f"a cumulative ack of {sorted(upto)} behind a transaction that was skipped and gave rows back")
    if into is not None and tried.error is None:
        into.written.acks += [(t, following.subscription, frozenset(found)) for t, found in rows.items()]
        into.consumers.append(following)
        segments: dict[str, tuple[str, set[int]]] = {}
        for n, one in following.handed[: last + 1]:
            segments.setdefault(one.segment, (_name(world, one), set()))[1].add(n)
        counted = following.counted()
        into.covered += [(name, following.subscription, frozenset(found)) for name, found in segments.values() if found - counted]
        following.floors.append((into, upto))
    elif tried.error is None:
        following.floors.append((None, upto))
        for topic, found in rows.items():
            world.model.acked[topic, following.subscription] |= found
    return None
