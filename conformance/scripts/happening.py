"""Commands that inject faults and let time pass. `CALL` is a word of `conformance.scripts.calls`.

    crash d1 before CALL | crash d1 after CALL | crash d1        the process d1 dies at this call; without a call: it dies now
    sleep d1 before CALL | wake d1       the process stops before this call, and continues at `wake`, as a zombie
    lose-reply d1 CALL                   the call takes effect, but its reply is lost
    lose-request d1 CALL                 the call does not take effect, and its reply is lost
    delay d1 CALL | arrive               the reply is lost, and the call takes effect at `arrive`
    split d1 CALL                        of a group of writes only the first half takes effect, and the reply is lost
    refuse d1 CALL                       the call raises Unavailable: it is known that it took no effect
    lose-session r1 CALL                 the session ends at this call
    lag r1                               from now on, reads of r1 are as stale as the store contract allows: they show the store as
                                         it was when their view began
    clock +30s                           move the clock on (with `-30s`: back)
    lose a/index                         delete the files whose short names begin with this text
    damage manifests/0_3                 change digits in the files whose short names begin with this text
    erase /txn/op/0_10                   delete the records below this path directly in the store, without the product's code
    put cluster.json                     write a file of this name, with content that the product did not write
    inline 100                           registrations of more bytes than this keep their parts in a manifest file
    settings txn_timeout_ms=1000 ..      change settings of the cluster; this command must be the first of a script

A fault strikes the first call that CALL names. With `after=1` it strikes the second one. A script fails if one of its faults
strikes no call.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.scripts import answers
from conformance.scripts.parsing import Command, ScriptError, duration_ms
from conformance.scripts.world import BEGIN_MS, Fault, World
from conformance.simulator.store.faults import Fate
from metadata.records.paths import KeyRange
from metadata.store.contract import Delete
from metadata.write import coordinator

_FATES = {
    "lose-reply": Fate.LOSE_REPLY,
    "lose-request": Fate.LOSE_REQUEST,
    "delay": Fate.LATE,
    "split": Fate.SPLIT,
    "refuse": Fate.UNAVAILABLE,
    "lose-session": Fate.SESSION_LOST,
}


def _arm(world: World, cmd: Command, name: str, word: str, fate: Fate | None) -> list[str]:
    world.process(name).arm(Fault(cmd.line, word, fate, cmd.number("after") or 0))
    return []


def crash(world: World, cmd: Command) -> list[str]:
    match cmd.words:
        case [name]:
            world.crash(world.process(name))
            return []
        case [name, "before", word]:
            return _arm(world, cmd, name, word, Fate.CRASH_BEFORE)
        case [name, "after", word]:
            return _arm(world, cmd, name, word, Fate.CRASH_AFTER)
    raise ScriptError(f"{cmd.line!r}: crash WHO [before|after CALL]")


def sleep(world: World, cmd: Command) -> list[str]:
    match cmd.words:
        case [name, "before", word]:
            return _arm(world, cmd, name, word, None)
    raise ScriptError(f"{cmd.line!r}: sleep WHO before CALL")


def wake(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.one())
    if not process.asleep:
        raise ScriptError(f"{cmd.line!r}: {process.name} does not sleep")
    return world.drive(process.asleep.pop(0))


def fault(world: World, cmd: Command) -> list[str]:
    if len(cmd.words) != 2:
        raise ScriptError(f"{cmd.line!r}: {cmd.verb} WHO CALL")
    return _arm(world, cmd, cmd.words[0], cmd.words[1], _FATES[cmd.verb])


def arrive(world: World, cmd: Command) -> list[str]:
    if not world.late:
        raise ScriptError("nothing is under way")
    due, world.late[:] = list(world.late), []
    before = answers.picture(world)
    for effect in due:
        effect()
    return answers.changes(before, answers.picture(world))


def clock(world: World, cmd: Command) -> list[str]:
    world.clock.now += duration_ms(cmd.one())
    seconds, ms = divmod(world.clock.now - BEGIN_MS, 1000)
    return [f"+{seconds}s" if not ms else f"+{seconds}.{ms:03}s"]


def lag(world: World, cmd: Command) -> list[str]:
    world.process(cmd.one()).lags = True
    return []


def lose(world: World, cmd: Command) -> list[str]:
    """Delete the files whose short names begin with the word of the command."""
    start = cmd.one()
    gone = [path for path in world.disk.files if answers.file_name(path).startswith(start)]
    for path in gone:
        del world.disk.files[path]
    return [f"lost {answers.file_name(path)}" for path in gone] or ["nothing is lost"]


def erase(world: World, cmd: Command) -> list[str]:
    start, before = cmd.one(), answers.picture(world)
    doomed = [record.key for record in world.state.scan(KeyRange(start, start + "~", ""))]
    world.state.apply([Delete(key) for key in doomed], 0)
    return answers.changes(before, answers.picture(world))


def put(world: World, cmd: Command) -> list[str]:
    world.disk.files[cmd.one()] = (b"somebody's", world.clock.now)
    return []


def inline(world: World, cmd: Command) -> list[str]:
    world.limits.append((coordinator, "MAX_INLINE", coordinator.MAX_INLINE))
    coordinator.MAX_INLINE = int(cmd.one())
    return []


def damage(world: World, cmd: Command) -> list[str]:
    start = cmd.one()
    found = [path for path in world.disk.files if answers.file_name(path).startswith(start)]
    for path in found:
        data, since = world.disk.files[path]
        world.disk.files[path] = (data.replace(b"1", b"2"), since)
    return [f"damaged {answers.file_name(path)}" for path in found] or ["nothing is damaged"]


def settings(world: World, cmd: Command) -> list[str]:
    if world.processes:
        raise ScriptError("settings come before everything else in a script")
    for name in cmd.options:
        cmd.taken.add(name)
    world.settings = world.settings.model_copy(update={k: int(v) for k, v in cmd.options.items()})
    return []


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "crash": crash,
    "sleep": sleep,
    "wake": wake,
    "arrive": arrive,
    "clock": clock,
    "inline": inline,
    "lag": lag,
    "lose": lose,
    "damage": damage,
    "put": put,
    "erase": erase,
    "settings": settings,
    **dict.fromkeys(_FATES, fault),
}
