"""Commands of writers (protocol.md section 5).

    topic a [segments=2]                 create a topic
    d1: stage a:3 t.0:1                  tasks write parts: three rows for a, one for segment 0 of t; each row is an entry
    d1: stage a:2x4                      tasks write a part of two entries with four rows each
    d1: open app=q version=7 [a:3]       do only the first step of a commit (section 5). Each later step is a command of its own:
                                         register, check, claim (if there are acknowledgements), record, decide, tell
    d1: commit app=q version=7 a:3       do all steps of a commit except `tell`
    d1: tell                             do the background work: events, settling
    d1: late-abort app=q version=7 attempt=x1        abort the attempt, as Spark does
    d1: abort 0_3                        abort the transaction, as an operator does
    plain a:2                            append a registration without a transaction, as a later release of txnsegment will
    split-segment t.0 | merge-segments t.2 t.3
    delete-topic a
    seal t.0 why=rebucket                append a seal for a reason that only a later release knows

Kinds of writes: `app=` and `version=` stand for a batch write with txnAppId and txnVersion. `query=` and `version=` stand for a
stream, which may also have `app=` as its txnAppId. `random` stands for a batch write without txnAppId and txnVersion, whose
application id is generated. `topic=` names the topic of an empty batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from conformance.scripts import answers
from conformance.scripts.names import records, segment, short
from conformance.scripts.parsing import Command, ScriptError, duration_ms
from conformance.scripts.stepping import acks_of, step
from conformance.scripts.world import Process, Work, World
from ledgers.model import Part
from metadata.records import paths
from metadata.records.folders import folder_of
from metadata.records.names import segment_name, topic_name
from metadata.records.records import Registration, SegmentWrite
from metadata.rules.transitions import Claim
from metadata.write.write_set import Committed, WriteSet

_STAGED = re.compile(r"([a-z0-9-]+(?:\.[0-9]+)?):([0-9]+)(?:x([0-9]+))?")


def make_topic(world: World, cmd: Command) -> list[str]:
    number = cmd.number("segments") or 1
    process = world.process(cmd.who("admin"))
    names = cmd.words or [cmd.one()]

    def run() -> None:
        for name in names:
            process.client.topics.create(topic_name(name), segments=number)

    return world.drive(Work(process, run, lambda _: []))


def delete_topic(world: World, cmd: Command) -> list[str]:
    process, name = world.process(cmd.who("admin")), topic_name(cmd.one())
    return world.drive(answers.changing(world, process, lambda: process.client.topics.delete(name)))


def split_segment(world: World, cmd: Command) -> list[str]:
    process, name = world.process(cmd.who("admin")), segment_name(segment(world.state, cmd.one()))
    return world.drive(answers.changing(world, process, lambda: process.client.topics.split(name.topic, name.segment_id)))


def merge_segments(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("admin"))
    first, second = (segment_name(segment(world.state, word)) for word in cmd.words)
    merged = (first.topic, first.segment_id, second.segment_id)
    return world.drive(answers.changing(world, process, lambda: process.client.topics.merge(*merged)))


def plain(world: World, cmd: Command) -> list[str]:
    parts = parts_of(world, staged_words(cmd))
    body = Registration(publish_ms=world.clock.now, segments={s: _write(p) for s, p in parts.items()}).to_bytes()
    process = world.process(cmd.who("d1"))
    return world.drive(answers.changing(world, process, lambda: process.store.append(paths.LOG, body)))


def seal(world: World, cmd: Command) -> list[str]:
    full = tuple(segment(world.state, s) for s in cmd.words)
    name = segment_name(full[0]).topic
    process = world.process(cmd.who("admin"))
    epoch = cmd.number("epoch")
    body = Registration(
        publish_ms=world.clock.now,
        seal=full,
        topic=str(name),
        why=cmd.need("why"),
        epoch=process.client.topics.get(name).layout.epoch if epoch is None else epoch,
        children=() if cmd.get("why") == "delete" else (7, 8),
    ).to_bytes()
    return world.drive(answers.changing(world, process, lambda: process.store.append(paths.LOG, body)))


def _write(parts: list[Part]) -> SegmentWrite:
    return SegmentWrite(
        parts=tuple(parts),
        rows=sum(p.rows for p in parts),
        bytes=sum(p.bytes for p in parts),
        entries=sum(len(p.entries) for p in parts),
    )


# --- staging -------------------------------------------------------------------------------------------------------


def stage(world: World, cmd: Command) -> list[str]:
    name = cmd.who("d1")
    parts, since = world.staged.get(name, ({}, world.clock.now))
    added = parts_of(world, staged_words(cmd))
    world.staged[name] = ({s: parts.get(s, []) + added.get(s, []) for s in parts | added}, since)
    return ["staged " + " ".join(sorted(answers.file_name(p.path) for found in added.values() for p in found))]


def staged_words(cmd: Command) -> list[tuple[str, int, int]]:
    """Remove the words for rows from a command. Return for each of them (segment, entries, rows of each entry)."""
    found = [m for w in cmd.words if (m := _STAGED.fullmatch(w))]
    words = {m[0] for m in found}
    cmd.words = [w for w in cmd.words if w not in words]
    return [(m[1], int(m[2]), int(m[3] or 1)) for m in found]


def parts_of(world: World, wanted: list[tuple[str, int, int]]) -> dict[str, list[Part]]:
    """Return one part for each word, and put its file on the disk. A row has ten bytes."""
    parts: dict[str, list[Part]] = {}
    for word, entries, size in wanted:
        full = segment(world.state, word)
        world.written += 1
        path = f"{folder_of(full)}/p{world.written}.parquet"
        world.disk.files[path] = (b"part".ljust(10 * entries * size), world.clock.now)
        parts.setdefault(full, []).append(Part(path, entries * size, 10 * entries * size, 0, (size,) * entries, 0))
    return parts


# --- a commit --------------------------------------------------------------------------------------------------------


def _identity(world: World, cmd: Command, parts: dict[str, list[Part]]) -> tuple[str, str, Claim, bool]:
    query, app, is_random = cmd.get("query"), cmd.get("app"), cmd.flag("random")
    world.attempts += 1
    attempt = cmd.get("attempt") or f"attempt{world.attempts}"
    version = 1 if is_random else int(cmd.need("version"))
    if is_random:
        app = cmd.get("id") or f"random{world.attempts}"
    topic = cmd.get("topic")
    topics = {str(segment_name(s).topic) for s in parts} if topic is None else {str(topic_name(topic))}
    named = app or query
    if named is None:
        raise ScriptError(f"{cmd.line!r}: who writes? app=, query= or random")
    return named, topics.pop() if len(topics) == 1 else "", Claim(version, query, attempt, replays=query is not None), is_random


def _commit(world: World, cmd: Command) -> Work:
    name = cmd.who("d1")
    process = world.process(name)
    wanted = staged_words(cmd)
    parts, since = (parts_of(world, wanted), world.clock.now) if wanted else world.staged.pop(name, ({}, world.clock.now))
    app, app_topic, claim, is_random = _identity(world, cmd, parts)
    timeout = cmd.get("timeout")
    work = WriteSet(
        app=app,
        app_topic=app_topic,
        claim=claim,
        parts=parts,
        acks=acks_of(world, cmd),
        staged_ms=since,
        timeout_ms=world.settings.txn_timeout_ms if timeout is None else duration_ms(timeout),
        random=is_random,
        retried=cmd.flag("retried"),
    )
    done = Work(process, lambda: process.client.coordinator.commit(work), lambda c: _committed(world, c, claim))
    done.attempt = claim.attempt
    return done


def _committed(world: World, found: Committed, claim: Claim) -> list[str]:
    if found.skipped:
        return [f"version {claim.version} is committed already: skipped"]
    if found.txn_id is None:
        return [f"version {claim.version} committed without rows"]
    if found.number is None:
        return [f"txn {found.txn_id} COMMITTED: acks alone"]
    text = answers.log(world).get(found.number, "").removeprefix(f"{found.txn_id} ")
    state = next((h["state"] for k, h in records(world.state, "/txn/id/") if k.partition == found.txn_id), "gone")
    return [f"txn {found.txn_id} {state}, commit {found.number}: {text}"]


def commit(world: World, cmd: Command) -> list[str]:
    return world.drive(_commit(world, cmd))


def open_(world: World, cmd: Command) -> list[str]:
    work = _commit(world, cmd)
    work.stop = lambda called: called in ("register", "cursors")

    def reached() -> list[str]:
        work.txn = next(k.partition for k, h in records(world.state, "/txn/id/") if h.get("attempt") == work.attempt)
        return [f"txn {work.txn} OPEN"]

    work.reached = reached
    world.opened[work.process.name] = work
    return world.drive(work)


def register(world: World, cmd: Command) -> list[str]:
    return step(
        world,
        cmd,
        lambda called: True,
        lambda work: [f"log {n} {t}" for n, t in answers.log(world).items() if t.startswith(f"{work.txn} ")],
    )


def check(world: World, cmd: Command) -> list[str]:
    return step(world, cmd, lambda called: called in ("record", "cursors"), lambda work: ["no seal below it"])


def record(world: World, cmd: Command) -> list[str]:
    def reached(work: Work) -> list[str]:
        ops = [(int(k.path[-20:]), op) for k, op in records(world.state, f"/txn/op/{work.txn}-")]
        return [f"op {n} {op['kind']} {_op(world, op)}" for n, op in ops]

    return step(world, cmd, lambda called: called == "decide", reached)


def _op(world: World, op: Any) -> str:
    where = f"{short(world.state, op['segment'])}/{op['ledgerId']}:{op['entryId']}"
    if op["kind"] != "ACK":
        return where
    rows = f", rows {' '.join(op['rows'])}" if "rows" in op else ""
    return f"{op['subscription']}@{'..' if op.get('cumulative') else ''}{where}{rows}"


def decide(world: World, cmd: Command) -> list[str]:
    return step(world, cmd, None, lambda work: [])


def tell(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("d1"))
    return world.drive(answers.changing(world, process, lambda: _run_behind(process)))


def _run_behind(process: Process) -> None:
    while process.behind:
        process.behind.pop(0)()


# --- aborts ----------------------------------------------------------------------------------------------------------


def abort(world: World, cmd: Command) -> list[str]:
    process, txn = world.process(cmd.who("operator")), cmd.one()
    return world.drive(answers.changing(world, process, lambda: process.client.coordinator.abort(txn)))


def late_abort(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("late"))
    query, topic = cmd.get("query"), cmd.get("topic")
    claim = Claim(int(cmd.need("version")), query, cmd.need("attempt"), replays=query is not None)
    app, app_topic = cmd.get("app") or query or cmd.need("app"), "" if topic is None else str(topic_name(topic))
    coordinator = process.client.coordinator
    return world.drive(answers.changing(world, process, lambda: coordinator.abort_attempt(app, app_topic, claim)))


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "topic": make_topic,
    "delete-topic": delete_topic,
    "split-segment": split_segment,
    "merge-segments": merge_segments,
    "plain": plain,
    "seal": seal,
    "stage": stage,
    "open": open_,
    "register": register,
    "check": check,
    "record": record,
    "decide": decide,
    "commit": commit,
    "tell": tell,
    "abort": abort,
    "late-abort": late_abort,
}
