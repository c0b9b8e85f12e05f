"""Schedules in which backups are taken while other actors write, acknowledge and sweep persistent topics. The content that each
restored backup must have is derived from the history alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.history.findings import Findings
from conformance.history.format import Ack, Entry, Event
from conformance.history.in_stream import InStream
from conformance.simulator.actors.consuming import start_consumer
from conformance.simulator.actors.in_stream_clients import start_client, start_producer
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.backups import Backups, Taken, start_backup, wrong_backups
from conformance.simulator.casts.casts import Cast
from conformance.simulator.casts.in_stream import SUBSCRIPTION, finish_in_stream, settle_in_stream, start_keeper
from conformance.simulator.seen.cursors import acknowledged, common, covered
from conformance.simulator.seen.in_stream_logs import SYSTEM
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import SETTINGS, World
from conformance.simulator.world.stage import P, Q, T, U, staged
from metadata.cluster.cluster import Cluster
from metadata.instream.client import InStream as Hands
from metadata.instream.client import instream
from metadata.records.names import persistent_name
from metadata.records.paths import Key, decode, encode
from metadata.rules.strides import MARKED_STRIDE


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a cast of drivers, a client, a producer, consumers and sweepers of persistent topics, a driver of topic://, and three
    actors that take backups.
    """
    return cast_of(rng, trace)[0]


def cast_of(rng: random.Random, trace: bool) -> tuple[Cast, Backups]:
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500))})
    state = staged((T, 1), (U, 1), persistent=(P, Q), subscription=SUBSCRIPTION)
    world = World(rng, Plan.draw(rng, small=True), settings, state=state, trace=[] if trace else None, files_go=False, rested=True)
    backups = Backups(world)
    jobs = [
        Job("q", "q", "", (P, Q), (0, 1, 2), replays=True, by="query-q"),
        Job("m", "m", "", (P, Q), (1, 2)),
        Job("r", "r-random", "", (Q,), (1,), random=True),
    ]
    for job in jobs:
        start_driver(world, job, tries=6, within=150)
    other = Job("t", "t", T, (T,), (0, 1), replays=True, by="query-t")
    start_driver(world, other)
    start_client(world, "c0", (P, Q), 2, within=200)
    start_producer(world, "plain", P, 3, within=200)
    for i in range(3):
        start_consumer(world, f"u{i}", P, SUBSCRIPTION, rounds=3, plain=i == 2, within=250, cumulative=0.3)
    for i in range(rng.choice((0, 1, 2))):
        start_keeper(world, f"w{i}", 2, within=250)
    for i in range(3):
        start_backup(backups, f"k{i}", within=350)

    def wrong() -> Iterator[str]:
        yield from wrong_backups(backups)
        for i, one in enumerate(backups.taken):
            yield from (f"backup {i}: {what}" for what in _Judged(world, one).wrong())

    cast = Cast(world, [other], [], frozenset({T, U}), forgets=False, orphans=False, topics=2, also_wrong=wrong)
    cast.settle, cast.finish = lambda: settle_in_stream(world, jobs), lambda: finish_in_stream(world, jobs)
    return cast, backups


@dataclass
class _Judged:
    """Compares one restored backup with all log entries in the history, also those that were appended after the backup."""

    world: World
    one: Taken
    logs: InStream = field(default_factory=lambda: InStream(Findings()))
    committed: dict[str, Entry] = field(default_factory=dict)
    """For each committed transaction, its COMMITTING entry that took effect."""

    @property
    def events(self) -> Sequence[Event]:
        return self.world.history.events

    def wrong(self) -> Iterator[str]:
        for event in self.events:
            if isinstance(event, Entry):
                for header in self.logs.entry(event):
                    if header.state == "COMMITTED":
                        self.committed[header.txn] = event
        kept = self._transactions()
        cut = 0 if kept is None else kept["at"]
        for txn, entry in self.committed.items():
            if entry.at < self.one.began and entry.number > cut:
                yield f"{txn} was COMMITTING before the backup began, whose transaction log ends at {cut}"
        counting = {txn for txn, entry in self.committed.items() if entry.number <= cut}
        cluster = self.one.cluster(self.world)
        hands = instream(cluster)
        for topic in (P, Q):
            yield from self._wrong_rows(hands, topic, counting)
        yield from self._wrong_acks(hands, counting)
        yield from self._wrong_versions({} if kept is None else kept["apps"], cut)
        yield from self._wrong_numbers(cluster)

    def _transactions(self) -> Any:
        tenant, namespace, name = SYSTEM.removeprefix("persistent://").split("/")
        record = self.one.state.get(Key(f"/persistent/topics/{tenant}/{namespace}/{name}0", ""))
        if record is None:
            return None
        found = json.loads(record.value)
        return json.loads(self.one.disk.files[found["txnLogPath"]][0]) if "txnLogPath" in found else found["txnLog"]

    def _wrong_rows(self, hands: Hands, topic: str, counting: set[str]) -> Iterator[str]:
        reading = hands.buffer.read(persistent_name(topic))
        if reading.ongoing or reading.cut != reading.end:
            yield f"{topic} is read up to {reading.cut} of {reading.end}, ongoing are {reading.ongoing}"
        shown = {found.id for found in reading.ledgers()}
        log = self.logs.topics.get(topic)
        there = {} if log is None else log.truth.committed
        appended = {e.number: e.at for e in self.events if isinstance(e, Entry) and e.log == topic}
        for number, batch in there.items():
            at, decided = appended[number], self.committed.get(batch.txn or "")
            if batch.txn is None:
                wanted = True if at < self.one.began else False if at >= self.one.ended else None
            elif batch.txn not in counting:
                wanted = False
            else:  # the backup may lack an entry that was appended after the decision
                wanted = True if decided is not None and at < decided.at else None
            if wanted is not None and wanted is not (number in shown):
                yield f"{topic} {number} of {batch.txn or 'nobody'} is {'missing' if wanted else 'shown'}"
        if shown - there.keys():
            yield f"{topic} shows {sorted(shown - there.keys())}, which never counted"
        plain = sorted(number for number, batch in there.items() if batch.txn is None)
        if [n for n in plain if n in shown] != plain[: sum(n in shown for n in plain)]:
            yield f"{topic} shows of the plain messages {plain} those of {sorted(shown)}: not the first ones"

    def _wrong_acks(self, hands: Hands, counting: set[str]) -> Iterator[str]:
        """Yield the differences between the restored subscription of P and the history. Its acknowledgements are computed from its
        record without code of the product. A reader of the restored cluster must find the same acknowledgements.
        """
        where, name = (P, SUBSCRIPTION), f"{encode(P)}:{encode(SUBSCRIPTION)}"
        record = self.one.state.get(Key(f"/persistent/subscriptions/{name}", name))
        cursor = {} if record is None else json.loads(record.value)["snapshot"].get("cursor", {})
        done = acknowledged(cursor)
        if cursor.get("claims"):
            yield f"claims of {sorted(cursor['claims'])} are left"
        read = json.loads(hands.acks.read([where])[where].to_bytes())
        if read.get("claims") or acknowledged(read) != done:
            yield f"whoever reads finds {read}, restored was {cursor}"
        must: set[tuple[int, int]] = set()
        may: set[tuple[int, int]] = set()
        places = [(e.number, i) for e in self.events if isinstance(e, Entry) and e.log == P for i in range(len(e.rows))]
        for event in self.events:
            if not isinstance(event, Ack) or event.segment != P:
                continue
            found = {place for place in places if any(low <= place <= high for low, high in event.ranges)}
            if event.txn is None:
                must |= found if event.at < self.one.began else set()
                may |= found if event.at < self.one.ended else set()
            elif event.state == "pending" and event.txn in counting:
                must |= found
        shown = {(number, i) for number, i in places if common(done, covered([f"{number}:{i}:0"]))}
        if not must <= shown <= must | may:
            yield f"acknowledged are {sorted(shown)}, not {sorted(must)} and of {sorted(may)}"

    def _wrong_versions(self, apps: dict[str, Any], cut: int) -> Iterator[str]:
        wanted: dict[str, int | None] = {}
        for txn, entry in sorted(self.committed.items(), key=lambda found: found[1].number):
            new = self.logs.txns[txn].new
            if entry.number <= cut and new.app in ("q", "m"):
                wanted[new.app] = new.version
        found = {decode(name.partition(":")[0]): written["version"] for name, written in apps.items()}
        if found != wanted:
            yield f"applications have committed {found}, not {wanted}"

    def _wrong_numbers(self, cluster: Cluster) -> Iterator[str]:
        hands = instream(cluster)
        least = int(hands.coordinator.begin(topics=[persistent_name(P)]).partition("_")[2])
        number = hands.coordinator.append(None, {persistent_name(P): []})[P]
        if min(least, number) < MARKED_STRIDE:
            yield f"the restored logs go on at {least} and {number}"
