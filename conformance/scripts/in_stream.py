"""Commands of the marker-based model: persistent topics (docs/in_stream.md). `p` stands for persistent://public/default/p. `txn=N`
stands for the transaction 1000000_N. Most answers show which records and log entries changed. `tc` is the coordinator's log.

    p-topic p q [upgraded=TEXT]          create topics. upgraded=TEXT: as after an upgrade from an older release, which left TEXT as
                                         the property __contains_txn_messages (`none`: no such property)
    d1: p-begin [p q] [s@p] [timeout=5s] [app=q version=1]     begin a transaction, and register these participants
    d1: p-register txn=1 [p] [s@p]       register participants
    d1: p-append txn=1 p:3 q:1           append data of a transaction; without txn=, append plain messages
    d1: p-ack [txn=1] s@p/1:0 s@..p/2:0  acknowledge rows: one entry, or all up to a position (`..`)
    d1: p-end txn=1 commit|abort         log the decision, write markers, log the final state
    d1: p-commit app=q version=7 p:3 [s@p/1:0]                 do all steps of a commit
    d1: p-late-abort app=q version=7 attempt=x1                abort the attempt, as Spark does
    p-read p [uncommitted] [to=3]        show what a reader learns of the topic (up to the number 3), and the visible rows
    p-open p                             show how many log entries a reader replays when it opens the topic
    p-property p [key=K value=V | remove=K]                    list the properties, or set or remove one
    p-subscribe s p | p-unsubscribe s p | p-seek s p to=3      create the subscription s, delete it, or move its cursor
    p-cursor s p                         show the rows that the subscription has acknowledged, and its pending acks
    p-sweep [timeouts|finish|snapshot|compact|all]             do a whole sweep, or these parts: abort expired transactions, finish
                                         decided ones, write snapshots of the topics, compact the coordinator's log
    p-trim p to=3                        trim rows up to the number 3
    p-seal p why=terminate               append a SEAL to the topic's log
    p-leave p                            delete the log entries that were trimmed, or deleted with their topic, longer ago than the
                                         grace period
    p-migrate p to=t [segments=2] [force]                      migrate the topic to the topic:// t
    p-migrated t                         show the cut, the seals and the rows of the successor t, by numbers of the cluster's log
    p-logs                               show all marker-based records of the store
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from conformance.scripts import answers, in_stream_picture
from conformance.scripts.parsing import Command, ScriptError, duration_ms
from conformance.scripts.world import Process, Work, World
from ledgers.model import Part
from metadata.client.providers import Providers, SubscriptionsProvider
from metadata.instream.client import InStream
from metadata.instream.coordinator import InStreamCommitted
from metadata.read.reading import LogSelection
from metadata.records import paths
from metadata.records.names import PersistentName, TopicName, persistent_name
from metadata.records.persistent_records import CONTAINS_TXN, Model
from metadata.records.row_ranges import parse, parse_all, texts
from metadata.rules.acks import Ack, up_to
from metadata.rules.transitions import Claim
from metadata.topics.topic import Topic
from metadata.write.write_set import WriteSet

MOST = 1_000_000
_STAGED = re.compile(r"([a-z]+):([0-9]+)")
_ACK = re.compile(r"([a-z]+)@(\.\.)?([a-z]+)/([0-9:.]+)")
_SUBSCRIPTION = re.compile(r"([a-z]+)@([a-z]+)")


def name_of(word: str) -> PersistentName:
    return PersistentName("public", "default", word)


def _hands(process: Process) -> InStream:
    return process.client.instream


def _changing(world: World, cmd: Command, usual: str, act: Callable[[InStream], object]) -> list[str]:
    process = world.process(cmd.who(usual))
    return world.drive(answers.changing(world, process, lambda: act(_hands(process))))


def _txn(cmd: Command) -> str | None:
    number = cmd.number("txn")
    return None if number is None else f"{MOST}_{number}"


def _taken(cmd: Command, form: re.Pattern[str]) -> list[re.Match[str]]:
    found = {word: match for word in cmd.words if (match := form.fullmatch(word))}
    cmd.words = [word for word in cmd.words if word not in found]
    return list(found.values())


def _parts(world: World, cmd: Command) -> dict[str, list[Part]]:
    """Return one part for each word such as `p:3`, and put its file on the disk. Each row is an entry of ten bytes."""
    parts: dict[str, list[Part]] = {}
    for match in _taken(cmd, _STAGED):
        world.written += 1
        count, path = int(match[2]), f"public/default/{match[1]}/persistent/p{world.written}.parquet"
        world.disk.files[path] = (b"part".ljust(10 * count), world.clock.now)
        parts.setdefault(str(name_of(match[1])), []).append(Part(path, count, 10 * count, 0, (1,) * count, 0))
    return parts


def _acks(cmd: Command) -> list[Ack]:
    found = []
    for match in _taken(cmd, _ACK):
        where = str(name_of(match[3])), match[1]
        found.append(up_to(*where, parse(match[4])[1]) if match[2] else Ack(*where, parse_all([match[4]])))
    return found


def _participants(cmd: Command) -> tuple[list[PersistentName], list[tuple[str, str]]]:
    subscriptions = [(str(name_of(match[2])), match[1]) for match in _taken(cmd, _SUBSCRIPTION)]
    topics, cmd.words = [name_of(word) for word in cmd.words], []
    return topics, subscriptions


# --- topics -----------------------------------------------------------------------------------------------------------


def make_topic(world: World, cmd: Command) -> list[str]:
    upgraded = cmd.get("upgraded")
    names, cmd.words = [name_of(word) for word in cmd.words], []

    def run(hands: InStream) -> None:
        for name in names:
            hands.topics.create(name)
            if upgraded is not None:
                told = {} if upgraded == "none" else {CONTAINS_TXN: upgraded}
                hands.topics.change(name, lambda layout, told=told: layout.model_copy(update={"properties": told}))  # type: ignore[misc]

    return _changing(world, cmd, "admin", run)


def property_(world: World, cmd: Command) -> list[str]:
    name, key, value, removed = name_of(cmd.one()), cmd.get("key"), cmd.get("value"), cmd.get("remove")

    def run(hands: InStream) -> None:
        if removed is not None:
            hands.topics.remove_property(name, removed)
        elif key is not None and value is not None:
            hands.topics.set_property(name, key, value)

    if key is removed is None:
        process = world.process(cmd.who("admin"))
        read = Work(process, lambda: _hands(process).topics.properties(name), lambda found: [f"{k}={v}" for k, v in found.items()])
        return world.drive(read)
    return _changing(world, cmd, "admin", run)


def seal(world: World, cmd: Command) -> list[str]:
    name, why = name_of(cmd.one()), cmd.need("why")
    process = world.process(cmd.who("admin"))

    def said(number: int | None) -> list[str]:
        return [f"sealed at {number}" if number is not None else "not sealed: transactions are ongoing"]

    return world.drive(Work(process, lambda: _hands(process).sealing.seal(name, why), said))


def migrate(world: World, cmd: Command) -> list[str]:
    to, segments, force = TopicName("public", "default", cmd.need("to")), cmd.number("segments") or 1, cmd.flag("force")
    process, name = world.process(cmd.who("admin")), name_of(cmd.one())

    def run() -> Topic:
        return _hands(process).migrator.migrate(name, to, segments=segments, force=force)

    def said(topic: Topic) -> list[str]:
        return [f"goes on as {topic.name}: {', '.join(f'{topic.segment(i)} {i.state}' for i in topic.layout.kept())}"]

    return world.drive(Work(process, run, said))


def migrated(world: World, cmd: Command) -> list[str]:
    """Show the cut, the seals and the rows of the successor of a migrated topic, by numbers of the cluster's log."""
    name, process = TopicName("public", "default", cmd.one()), world.process(cmd.who("r1"))

    def run() -> list[str]:
        reading = process.client.buffer.read(LogSelection((str(name),)))
        names = [(segment, "p" if segment.info.legacy_topic_name else segment.info.segment_id) for segment in reading.segments]
        rows = [
            f"{segment.number(found.id)}={shown}/{found.id}:0..{found.last_entry}"
            for segment, shown in names
            for found in segment.ledgers(0, reading.cut)
        ]
        seals = f"seals {' '.join(map(str, reading.seals(0, reading.cut)))}"
        return [f"cut {reading.cut}, {seals}", f"rows {' '.join(rows)}" if rows else "no rows"]

    return world.drive(Work(process, run, lambda lines: lines))


# --- transactions -----------------------------------------------------------------------------------------------------


def begin(world: World, cmd: Command) -> list[str]:
    timeout, app, version = cmd.get("timeout"), cmd.get("app"), cmd.number("version")
    topics, subscriptions = _participants(cmd)
    process = world.process(cmd.who("d1"))
    claim = None if version is None else Claim(version, None, world.unique(), False)

    def run() -> str:
        return _hands(process).coordinator.begin(
            timeout_ms=None if timeout is None else duration_ms(timeout),
            topics=topics,
            subscriptions=subscriptions,
            app=None if app is None else paths.application(app, "").partition,
            claim=claim,
        )

    return world.drive(Work(process, run, lambda txn: [f"txn {txn} OPEN"]))


def register(world: World, cmd: Command) -> list[str]:
    txn = cmd.need("txn")
    topics, subscriptions = _participants(cmd)
    return _changing(world, cmd, "d1", lambda hands: hands.coordinator.register(f"{MOST}_{txn}", topics, subscriptions))


def append(world: World, cmd: Command) -> list[str]:
    txn, parts = _txn(cmd), _parts(world, cmd)
    named = {name_of(in_stream_picture.named(full)): found for full, found in parts.items()}
    return _changing(world, cmd, "d1", lambda hands: hands.coordinator.append(txn, named))


def ack(world: World, cmd: Command) -> list[str]:
    txn, wanted = _txn(cmd), _acks(cmd)

    def run(hands: InStream) -> None:
        if txn is None:
            hands.acks.acknowledge(wanted)
        else:
            hands.coordinator.acknowledge(txn, wanted)

    return _changing(world, cmd, "c1", run)


def end(world: World, cmd: Command) -> list[str]:
    txn, how = cmd.need("txn"), cmd.one()
    if how not in ("commit", "abort"):
        raise ScriptError(f"{cmd.line!r}: commit or abort")
    return _changing(world, cmd, "d1", lambda hands: hands.coordinator.end(f"{MOST}_{txn}", commit=how == "commit"))


def commit(world: World, cmd: Command) -> list[str]:
    process, since = world.process(cmd.who("d1")), world.clock.now
    world.attempts += 1
    claim = Claim(int(cmd.need("version")), cmd.get("query"), cmd.get("attempt") or f"attempt{world.attempts}", replays=True)
    parts, acks, timeout = _parts(world, cmd), _acks(cmd), cmd.get("timeout")
    parts |= {segment: [] for segment in cmd.words}  # a word that is not `topic:rows` becomes a segment without parts
    work = WriteSet(
        cmd.need("app"),
        "",
        claim,
        parts,
        since,
        world.settings.txn_timeout_ms if timeout is None else duration_ms(timeout),
        acks=acks,
    )

    def said(done: InStreamCommitted) -> list[str]:
        if done.skipped:
            return [f"version {claim.version} is committed already: skipped"]
        where = [f"{in_stream_picture.named(topic)}/{' '.join(map(str, n))}" for topic, n in sorted(done.positions.items())]
        return [f"txn {done.txn_id} committed: {' '.join(where) or 'no rows'}"]

    def run() -> InStreamCommitted:
        return _hands(process).coordinator.commit(work)

    return world.drive(Work(process, run, said))


def late_abort(world: World, cmd: Command) -> list[str]:
    claim, app = Claim(int(cmd.need("version")), None, cmd.need("attempt"), replays=True), cmd.need("app")
    return _changing(world, cmd, "late", lambda hands: hands.coordinator.abort_attempt(app, "", claim))


# --- reading ----------------------------------------------------------------------------------------------------------


def read(world: World, cmd: Command) -> list[str]:
    uncommitted, to = cmd.flag("uncommitted"), cmd.number("to")
    short = cmd.one()
    process, name = world.process(cmd.who("r1")), name_of(short)

    def run() -> list[str]:
        buffer = _hands(process).buffer
        reading = buffer.read(name, uncommitted=uncommitted) if to is None else buffer.read_to(name, to)
        through = reading.cut if to is None else to
        rows = [answers.span(short, found.id, 0, found.last_entry) for found in reading.ledgers(0, through)]
        top = reading.max_read_position()
        more = [f"ongoing {', '.join(f'{txn} from {first}' for txn, first in sorted(reading.ongoing.items()))}"] * bool(
            reading.ongoing
        )
        more += [f"sealed at {reading.sealed_at}"] * (reading.sealed_at is not None)
        more += [f"trimmed up to {reading.trimmed_to}"] * bool(reading.trimmed_to)
        where = "nothing" if top is None else f"{short} up to {top[0]}:{top[1]}"
        return ["; ".join([f"cut {reading.cut} of {reading.end}, {where}", *more]), f"rows {' '.join(rows)}" if rows else "no rows"]

    return world.drive(Work(process, run, lambda lines: lines))


def open_(world: World, cmd: Command) -> list[str]:
    process, name = world.process(cmd.who("r1")), name_of(cmd.one())

    def run() -> list[str]:
        opened = _hands(process).buffer.open(process.store.view(), name)
        return [f"replayed {opened.replayed} entries, cut {opened.cut} of {opened.end}"]

    return world.drive(Work(process, run, lambda lines: lines))


def _where(cmd: Command) -> tuple[str, str]:
    if len(cmd.words) != 2:
        raise ScriptError(f"{cmd.line!r}: {cmd.verb} SUBSCRIPTION TOPIC")
    return str(name_of(cmd.words[1])), cmd.words[0]


def subscribe(world: World, cmd: Command) -> list[str]:
    where = _where(cmd)
    return _changing(world, cmd, "admin", lambda hands: hands.acks.create(*where))


def _subscriptions(process: Process) -> SubscriptionsProvider:
    return Providers(process.client).by_model(Model.IN_STREAM).subscriptions


def unsubscribe(world: World, cmd: Command) -> list[str]:
    topic, name = _where(cmd)
    process = world.process(cmd.who("admin"))
    return world.drive(answers.changing(world, process, lambda: _subscriptions(process).delete(persistent_name(topic), name)))


def seek(world: World, cmd: Command) -> list[str]:
    to, (topic, name) = int(cmd.need("to")), _where(cmd)
    process = world.process(cmd.who("admin"))
    return world.drive(answers.changing(world, process, lambda: _subscriptions(process).seek(persistent_name(topic), name, to=to)))


def cursor(world: World, cmd: Command) -> list[str]:
    where, process = _where(cmd), world.process(cmd.who("c1"))

    def run() -> list[str]:
        found = _hands(process).acks.read([where])[where]
        mark = found.mark_delete
        lines = [] if mark is None else [f"all up to {mark.ledger_id}:{mark.entry_id}"]
        lines += [f"acked {' '.join(texts(found.acked))}"] if found.acked else []
        lines += [f"{txn} claims {' '.join(texts(rows))}" for txn, rows in sorted(found.claims.items())]
        return lines or ["nothing acked"]

    return world.drive(Work(process, run, lambda lines: lines))


# --- sweeping ---------------------------------------------------------------------------------------------------------

_PARTS: dict[str, Callable[[InStream], object]] = {
    "timeouts": lambda hands: hands.sweeper.timeouts(),
    "finish": lambda hands: hands.coordinator.ending.finish_all(),
    "snapshot": lambda hands: [hands.buffer.snapshot(topic.name) for topic in hands.topics.list()],
    "compact": lambda hands: hands.coordinator.log.compact(),
    "all": lambda hands: hands.sweeper.sweep(),
}


def sweep(world: World, cmd: Command) -> list[str]:
    wanted: Sequence[str] = cmd.words or ["all"]
    if unknown := [word for word in wanted if word not in _PARTS]:
        raise ScriptError(f"{cmd.line!r}: there is no {unknown[0]}, but {', '.join(_PARTS)}")
    return _changing(world, cmd, "w1", lambda hands: [_PARTS[word](hands) for word in wanted])


def trim(world: World, cmd: Command) -> list[str]:
    name, to = name_of(cmd.one()), int(cmd.need("to"))
    return _changing(world, cmd, "w1", lambda hands: hands.sweeper.trimmer.trim_to(hands.buffer.read(name), to))


def leave(world: World, cmd: Command) -> list[str]:
    name = name_of(cmd.one())
    return _changing(world, cmd, "w1", lambda hands: hands.sweeper.trimmer.leave(name))


def logs(world: World, cmd: Command) -> list[str]:
    found = in_stream_picture.picture(world)
    return [f"{what}: {text}" for _, (what, text) in sorted(found.items())] or ["none"]


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "p-topic": make_topic,
    "p-property": property_,
    "p-seal": seal,
    "p-migrate": migrate,
    "p-migrated": migrated,
    "p-begin": begin,
    "p-register": register,
    "p-append": append,
    "p-ack": ack,
    "p-end": end,
    "p-commit": commit,
    "p-late-abort": late_abort,
    "p-read": read,
    "p-open": open_,
    "p-subscribe": subscribe,
    "p-unsubscribe": unsubscribe,
    "p-seek": seek,
    "p-cursor": cursor,
    "p-sweep": sweep,
    "p-trim": trim,
    "p-leave": leave,
    "p-logs": logs,
}
