"""Schedules in which topics with keys are split and merged while actors write, read, acknowledge and sweep. The history checker
judges that the segments of each layout cover all keys exactly once, that the rows of each key keep their order, and that no
micro-batch passes a seal (invariants 12, 13).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from conformance.history.format import Event, Layout
from conformance.simulator.actors.consuming import start_consumer
from conformance.simulator.actors.readers import Stream, start_batch_reader, start_stream
from conformance.simulator.actors.subscribing import start_subscriber
from conformance.simulator.actors.sweepers import start_sweeper
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.acking import SUBSCRIPTIONS, subscribed
from conformance.simulator.casts.casts import PAST_NAMES, Cast, may_nap
from conformance.simulator.casts.pasts import past
from conformance.simulator.store.clock import SimulatedClock
from conformance.simulator.store.faults import GatedStore
from conformance.simulator.store.storage import Disk, GatedStorage
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import SETTINGS, Process, World
from conformance.simulator.world.stage import T, U, staged
from metadata.cluster.cluster import Cluster
from metadata.common.errors import OptionError, TxnSegmentError
from metadata.maintenance.autoscaling import Autoscaler
from metadata.read.reading import LogSelection
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.records import SegmentInfo
from metadata.store.memory import MemoryState
from metadata.topics.policies import set_for_topic
from metadata.topics.topics import Topic, Topics

MANY = 5
"""If a topic has at least this number of active segments, a splitter mostly merges. It is also the limit `max_segments` of T."""


@dataclass
class Splitter:
    """The durable state of an actor that splits and merges. After a crash a new process continues its work."""

    name: str
    topics: tuple[str, ...]
    rounds: int
    tries: int = 0


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a long cast: up to three writers of keyed rows, one splitter, and in some worlds a second splitter or two scalers. One
    writer may write to two topics. Some worlds also have a stream, a batch reader, consumers or sweepers.
    """
    topics, names = ((T, rng.choice((1, 2))), (U, 1)), (T, U)
    update = {"header_retention_ms": rng.choice((0, 5, 500, 4_000)), "fold_after_registrations": rng.choice((1, 3, 64))}
    acks, sweeps_files = rng.random() < 0.35, rng.random() < 0.1
    state = _under_policy(staged(*topics, key="key"))
    world = World(
        rng,
        Plan.draw(rng, small=True),
        SETTINGS.model_copy(update=update),
        state=subscribed(state) if acks else state,
        trace=[] if trace else None,
        files_go=sweeps_files,
        rested=rng.random() < 0.6,
    )
    jobs = [Job("q", "q", T, (T,), (0, 1, 2)[: rng.choice((1, 2, 3))], replays=True, by="query-q", keyed=True)]
    if rng.random() < 0.25:
        jobs.append(Job("q2", "q", T, (T,), jobs[0].versions, replays=True, by="query-q", keyed=True))
    if rng.random() < 0.7:
        jobs.append(Job("m", "m", "", (T, U), (1, 2)[: rng.choice((1, 2))], keyed=True))
    for job in jobs:
        start_driver(world, job, tries=4, within=20)
    start_splitter(world, Splitter("x0", (T,), rng.choice((1, 2, 3))))
    if rng.random() < 0.3:
        for name in ("l0", "l1"):
            _start_scaler(world, name, rng.choice((2, 4)))
    elif rng.random() < 0.5:
        start_splitter(world, Splitter("x1", names if rng.random() < 0.5 else (T,), rng.choice((1, 2))))
    streams = []
    if rng.random() < 0.7:
        streams.append(Stream("s0", rng.choice((None, 6)), selection=LogSelection(names), left=rng.choice((3, 5))))
        start_stream(world, streams[0], within=60)
    if rng.random() < 0.5:
        start_batch_reader(world, "b0", LogSelection((T,)), 2, within=90)
    if acks:
        _with_consumers(world, sought=rng.random() < 0.35)
    for i in range(rng.choice((0, 1, 1, 2))):
        start_sweeper(world, f"w{i}", rng.choice((1, 2)), orphans=sweeps_files, share=rng.random() < 0.3, after=12, within=90)
    return Cast(world, jobs, streams, frozenset(names), forgets=rng.random() < 0.4, orphans=False, topics=2)


def short(rng: random.Random, trace: bool) -> Cast:
    """Return a short cast: one or two processes that split and merge segments, and one or two writers, which continue the jobs of
    the world's past (`pasts`). In some worlds other actors read, acknowledge or sweep meanwhile.
    """
    acks, sweeps_files, names = rng.random() < 0.12, rng.random() < 0.05, (T, U)
    before = past(
        rng.choice(PAST_NAMES),
        (T, rng.choice((1, 2))),
        (U, 1),
        keyed=True,
        then=_under_policy_subscribed if acks else _under_policy,
    )
    update = {"header_retention_ms": rng.choice((0, 0, 5, 4_000)), "fold_after_registrations": rng.choice((1, 3, 64, 64))}
    plan, rested = Plan.draw(rng, small=True), rng.random() < 0.9
    world = before.world(rng, plan, SETTINGS.model_copy(update=update), trace=trace, files_go=sweeps_files, rested=rested)
    jobs = [replace(job, versions=job.versions[: job.at]) for job in before.jobs]
    jobs[0] = replace(before.jobs[0], versions=(0, 1, 2, 3)[: before.jobs[0].at + rng.choice((1, 2))])
    start_driver(world, jobs[0], tries=4, within=8)
    if len(jobs) > 1 and rng.random() < 0.6:
        jobs[1] = replace(before.jobs[1], versions=(1, 2))
        start_driver(world, jobs[1], tries=4, within=8)
    if rng.random() < 0.1:
        for name in ("l0", "l1"):
            _start_scaler(world, name, 2, within=30)
    else:
        start_splitter(world, Splitter("x0", (T,), rng.choice((1, 2, 2, 3))), within=8)
        if rng.random() < 0.15:
            start_splitter(world, Splitter("x1", names if rng.random() < 0.5 else (T,), 1), within=24)
    streams, reads = [], rng.random()
    if reads < 0.55:
        streams.append(Stream("s0", rng.choice((None, 6)), selection=LogSelection(names), left=3))
        start_stream(world, streams[0], within=40)
    elif reads < 0.65:
        may_nap(start_batch_reader(world, "b0", LogSelection((T,)), 1, within=40), 0.35, 15)
    if acks:
        _with_consumers(world, rounds=1, sought=rng.random() < 0.35)
    if rng.random() < 0.25:
        may_nap(start_sweeper(world, "w0", 1, orphans=sweeps_files, share=rng.random() < 0.2, within=50), 0.25, 26)
    return Cast(world, jobs, streams, frozenset(names), forgets=rng.random() < 0.25, orphans=False, topics=2)


def _with_consumers(world: World, *, sought: bool, rounds: int = 2) -> None:
    """Start two consumers, of which one uses no transactions. Whenever a layout of T is written, check that each of its segments
    has cursors.

    `sought`: whether another actor moves, deletes and recreates the subscription of these consumers. In that case only the cursors
    of the subscription that no consumer uses are checked.
    """
    plain = {"c1"}
    world.history.acking = lambda: world.current is not None and world.current.name in plain
    lasting = SUBSCRIPTIONS[1:] if sought else SUBSCRIPTIONS
    world.history.showing = lambda layout: _have_cursors(world, layout, lasting)
    if sought:
        start_subscriber(world, T, SUBSCRIPTIONS[0], 2, within=120)
    for name in ("c0", "c1"):
        start_consumer(world, name, T, SUBSCRIPTIONS[0], rounds=rounds, plain=name in plain, within=60 * rounds)


def _have_cursors(world: World, shown: Event, lasting: tuple[str, ...]) -> None:
    assert isinstance(shown, Layout)
    for segment in shown.segments if shown.topic == T else ():
        for subscription in lasting:
            if paths.cursor(segment.name, subscription) not in world.state.records:
                world.history.bad(f"{segment.name} is shown before its cursor of {subscription} is made", 11)


def start_splitter(world: World, splitter: Splitter, *, within: int = 60) -> None:
    process = Process(world, f"{splitter.name}.{splitter.tries}")

    def run() -> None:
        topics = Topics(process.cluster)
        while splitter.rounds > 0:
            splitter.rounds -= 1
            try:
                _change(world, topics, topics.get(topic_name(world.rng.choice(splitter.topics))))
            except TxnSegmentError:
                # Another process was faster, or the store failed. The next process that finds an incomplete change completes it.
                continue

    def again() -> None:
        splitter.tries += 1
        if splitter.tries < 4:
            start_splitter(world, splitter, within=within)

    world.spawn(process, process.name, run, on_crash=again, delay=world.rng.randrange(within))


def _under_policy(state: MemoryState) -> MemoryState:
    """Set a scaling policy on T and return the state. Its limits are so low that one version of a job makes a split due. A pause of
    the writers makes a merge due.
    """
    clock = SimulatedClock()
    cluster = Cluster("memory://policy", GatedStore(state, clock), GatedStorage(Disk(clock)), SETTINGS, clock)
    limits = {"split_rows_per_second": 10, "min_segments": 1, "max_segments": MANY, "scaling_cool_down_ms": 200}
    set_for_topic(cluster, topic_name(T), limits)
    return state


def _under_policy_subscribed(state: MemoryState) -> MemoryState:
    return subscribed(_under_policy(state))


def _start_scaler(world: World, name: str, rounds: int, *, within: int = 120) -> None:
    """Start a scaler: a process that splits and merges segments by policy while it is the leader. If it crashes, another scaler
    becomes the leader.
    """
    process = Process(world, name)
    autoscaler = Autoscaler(process.cluster, process.buffer)
    start_rounds(world, name, rounds, lambda _: autoscaler.scale(), process=process, pause=0.1, within=within)


def _change(world: World, topics: Topics, topic: Topic) -> None:
    """Split or merge segments of a topic. `topic`: its layout as it was read; others may have changed it since. Sometimes try to
    merge segments that are no neighbours, which must fail. Raises the errors of `Topics`.
    """
    rng, active = world.rng, topic.active()
    if rng.random() < 0.1:
        first, second = rng.choice(active), rng.choice(active)
        if abs(active.index(first) - active.index(second)) != 1:
            try:
                topics.merge(topic.name, first.segment_id, second.segment_id)
            except OptionError:
                return
            world.history.bad(f"{first.segment_id} and {second.segment_id} of {topic.name} were merged, no neighbours", 13)
            return
    if len(active) > 1 and rng.random() < (0.9 if len(active) >= MANY else 0.5):
        at = rng.randrange(len(active) - 1)
        one, other = active[at], active[at + 1]
        _look(world, topics.merge(topic.name, one.segment_id, other.segment_id), (one, other), 1)
    else:
        one = rng.choice(active)
        _look(world, topics.split(topic.name, one.segment_id), (one,), 2)


def _look(world: World, after: Topic, parents: tuple[SegmentInfo, ...], children: int) -> None:
    """Check a split or merge that was reported as done. The parents must be sealed, and the children must cover exactly the hash
    range of the parents.
    """
    for parent in parents:
        now = after.layout.segments[str(parent.segment_id)]
        found = [after.layout.segments[str(child)] for child in now.child_ids]
        ranges = sorted((child.hash_range.start, child.hash_range.end) for child in found)
        wanted = min(p.hash_range.start for p in parents), max(p.hash_range.end for p in parents)
        if now.sealed_at_log is None or len(found) != children or (ranges[0][0], ranges[-1][1]) != wanted:
            world.history.bad(f"a split or merge of {parent} was confirmed, and the layout shows {found}", 13)
