"""Those who write to persistent topics in a simulated world: drivers of exactly-once writes, clients that go step by step,
producers of plain messages. They run the code of `metadata.instream` as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from conformance.history.format import Commit, End, Told, Written
from conformance.simulator.scheduler import Process, World
from conformance.simulator.storage import GatedStorage
from conformance.simulator.writers import Job, goes_on, start_again, start_late_abort
from ledgers.model import Part
from metadata.common.errors import OptionError, TopicSealed, TransactionUnfinished, TxnConflict, TxnSegmentError, VersionConflict
from metadata.instream.client import instream
from metadata.records.names import persistent_name
from metadata.rules.transitions import Claim
from metadata.write.write_set import WriteSet


@dataclass
class Party:
    """A process's hands on the persistent topics: its threads share them. `afresh`: others, which know nothing yet."""

    world: World
    process: Process
    afresh: bool = False

    def __post_init__(self) -> None:
        self.hands = instream(self.process.cluster) if self.afresh else self.process.client.instream
        self.buffer, self.coordinator = self.hands.buffer, self.hands.coordinator

    def staged(self, topics: Iterable[str], stem: str, count: int = 1) -> dict[str, list[Part]]:
        """Parts of one row each, so many for each topic; their files are one step, nothing names them yet."""
        storage = self.process.cluster.storage
        assert isinstance(storage, GatedStorage)
        parts = {topic: [Part(f"parts/{stem}/{topic[-1]}-{i}.parquet", 1, 4, 0, (1,), 0) for i in range(count)] for topic in topics}
        storage.publish_all({part.path: b"part" for found in parts.values() for part in found})
        return parts


def written(parts: dict[str, list[Part]]) -> tuple[Written, ...]:
    return tuple(Written(part.path, None, topic) for topic, found in parts.items() for part in found)


# --- exactly-once writes ------------------------------------------------------------------------------------------------


def start_in_stream_driver(world: World, job: Job, *, tries: int = 6, within: int = 30) -> Process:
    """A process that runs the job's versions from its checkpoint on; restarted when it crashes. Without a limit in the calm."""
    process = Process(world, f"{job.name}.{job.tries}")
    start = partial(start_in_stream_driver, world, job, tries=tries, within=within)
    again = partial(start_again, world, job, tries, start)

    def run() -> None:
        _drive(world, Party(world, process), job, again, tries)

    world.spawn(process, process.name, run, on_crash=again, delay=world.rng.randrange(within))
    return process


def _drive(world: World, party: Party, job: Job, again: Callable[[], None], tries: int) -> None:
    history = world.history
    while not job.done:
        version, attempt = job.versions[job.at], world.unique()
        claim = Claim(version, job.by, attempt, job.replays)
        asked, txn = False, None
        try:
            staged_ms = party.process.store.view().now_ms()
            empty = version in job.empty
            parts = party.staged(() if empty else job.topics, f"{job.app}/{version}/{attempt}", 1 + version % 2)
            history.asked(
                Commit(
                    history.now(),
                    attempt,
                    party.process.name,
                    job.app,
                    job.app_topic,
                    version,
                    written(parts),
                    job.by,
                    attempt,
                    job.replays,
                    job.random,
                )
            )
            asked = True
            timeout_ms = world.rng.choice((200, 1_000))
            done = party.coordinator.commit(
                WriteSet(job.app, job.app_topic, claim, parts, staged_ms, timeout_ms, random=job.random)
            )
            said, txn = ("skipped" if done.skipped else "committed"), done.txn_id
        except VersionConflict:
            said = job.stopped = "VersionConflict"
        except (TopicSealed, TransactionUnfinished) as error:  # what a seal does to the older model
            said = job.stopped = type(error).__name__
        except OptionError as error:  # of its topics some were migrated, and others were not (yet)
            said = type(error).__name__
            job.stopped = said if world.calm else ""
        except TxnSegmentError as error:
            said = type(error).__name__
        if asked:
            history.told(attempt, said, txn)
        if not goes_on(world, job, said, tries, again=again, late_abort=partial(_abort_late, world, job, claim)):
            return


def _abort_late(world: World, job: Job, claim: Claim) -> None:
    process = Process(world, f"{job.name}.abort")

    def abort() -> None:
        Party(world, process).coordinator.abort_attempt(job.app, job.app_topic, claim)

    start_late_abort(world, process, claim.attempt, abort)


# --- step by step -------------------------------------------------------------------------------------------------------


def start_client(world: World, name: str, topics: Sequence[str], rounds: int, *, within: int = 80) -> None:
    """Begins transactions, registers topics, writes to them, ends them; now and then again, the other way, or it writes on."""
    process = Process(world, name)

    def run() -> None:
        party = Party(world, process)
        for i in range(rounds):
            try:
                _transaction(world, party, f"{name}/{i}", topics)
            except TxnSegmentError:
                continue

    world.spawn(process, name, run, delay=world.rng.randrange(within))


def _transaction(world: World, party: Party, stem: str, topics: Sequence[str]) -> None:
    rng, coordinator = world.rng, party.coordinator
    names = {topic: persistent_name(topic) for topic in rng.sample(topics, rng.randint(1, len(topics)))}
    at_once = rng.random() < 0.5
    txn = coordinator.begin(timeout_ms=rng.choice((200, 1_000)), topics=list(names.values()) if at_once else ())
    if not at_once:
        coordinator.register(txn, list(names.values()))
    for i in range(rng.choice((0, 1, 1, 2, 3))):
        some = rng.sample(sorted(names), rng.randint(1, len(names)))
        parts = party.staged(some, f"{stem}/{world.unique()}/{i}")
        coordinator.append(txn, {names[topic]: found for topic, found in parts.items()})
    commit = rng.random() < 0.6
    try:
        _end(world, party, txn, commit=commit)
    finally:
        if rng.random() < 0.3:  # nobody has told this thread that it is over
            parts = party.staged(names, f"{stem}/{world.unique()}/late")
            coordinator.append(txn, {names[topic]: found for topic, found in parts.items()})
    if rng.random() < 0.3:
        _end(world, party, txn, commit=commit if rng.random() < 0.6 else not commit)


def _end(world: World, party: Party, txn: str, *, commit: bool) -> None:
    history, call = world.history, world.unique()
    history.events.append(End(history.now(), call, party.process.name, txn, "commit" if commit else "abort"))
    said, error = "committed" if commit else "aborted", None
    try:
        party.coordinator.end(txn, commit=commit)
    except TxnConflict as conflict:
        said, error = "failed", type(conflict).__name__
        raise
    except TxnSegmentError as other:
        said, error = "unknown", type(other).__name__
        raise
    finally:
        if party.process.alive:
            history.events.append(Told(history.now(), call, said, txn, None, error))


# --- plain messages -----------------------------------------------------------------------------------------------------


def start_producer(world: World, name: str, topic: str, count: int, *, within: int = 120) -> None:
    process = Process(world, name)

    def run() -> None:
        party = Party(world, process)
        for i in range(count):
            try:
                parts = party.staged((topic,), f"{name}/{i}")
                party.coordinator.append(None, {persistent_name(topic): parts[topic]})
            except TxnSegmentError:
                continue  # lost, or perhaps there: whoever sends plain messages cannot tell

    world.spawn(process, name, run, delay=world.rng.randrange(within))
