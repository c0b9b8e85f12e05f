"""Carries out the faults of the plan, with real signals to real processes and on real connections.

The functions in `STRIKES` each carry out one kind of fault. Such a function returns when the fault is over, with a text that says
what was hit. It raises Missed if there was nothing to hit.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from conformance.processes import Session, send
from conformance.scenarios.cluster.clock_shim import set_shift
from conformance.scenarios.cluster.deployment import SESSION_MS, Deployment, Late
from conformance.scenarios.cluster.party import Party
from conformance.scenarios.cluster.plan import Planned
from conformance.scenarios.faults import Fault
from conformance.servers import ZooKeeperServer

T = TypeVar("T")
TARGET_SECONDS = 240.0
"""How long a fault waits for its target, for example until a new driver has an executor."""
SUCCESSOR_SECONDS = 180.0
ZOMBIE_SECONDS = 20.0
"""How long a driver that was stopped and resumed may run beside its successor before it is killed."""
SHIFTS = (-7_200.0, -90.0, -20.0, -3.0, 3.0, 20.0, 90.0, 7_200.0)
"""The shifts of a party's clock, in seconds. Some are smaller and some are larger than the allowance (5 s) and the transaction
timeout (10 s).
"""


class Missed(Exception):
    """The fault found nothing to hit."""


def strike(deployment: Deployment, fault: Planned) -> str:
    """Carry out a planned fault. Return what it hit, in words. Raises Missed if there was nothing to hit."""
    return STRIKES[fault.kind.does](deployment, fault, random.Random(fault.seed))


def _some(what: str, deployment: Deployment, look: Callable[[], Sequence[T]]) -> Sequence[T]:
    """Return the possible targets of a fault, as soon as there are any. Raises Missed if there are none for `TARGET_SECONDS`."""
    found: list[T] = []

    def any_there() -> bool:
        found[:] = look()
        return bool(found)

    try:
        deployment.wait(what, any_there, TARGET_SECONDS)
    except Late as late:
        raise Missed(f"{what}: there was none for {TARGET_SECONDS:g} s") from late
    return found


# --- processes ---


def kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    target = fault.kind.target
    if target in SERVERS:
        server = SERVERS[target](deployment)
        return _away(server, fault.seconds, server.kill, server.start)
    if target == "changing":  # wait a moment, so that the kill strikes in the middle of some change
        time.sleep(rng.uniform(0.0, 2.0))
    if target in ("driver", "changing"):
        session: Session = deployment.changing if target == "changing" else deployment.parties[fault.party].driver
        members = session.members()
        session.kill()
        return f"{len(members)} processes"
    pid = rng.choice(_some(f"a process ({target})", deployment, lambda: _processes(deployment, fault)))[0]
    if not send(pid, signal.SIGKILL):
        raise Missed(f"the process {pid} ({target} of {fault.party}) ended by itself")
    return f"process {pid}"


def stop(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    target = fault.kind.target
    if target in SERVERS:
        server = SERVERS[target](deployment)
        return _away(server, fault.seconds, server.suspend, server.resume)
    if fault.kind.makes_zombie:
        return _zombie(deployment, deployment.parties[fault.party])
    there = _some(f"a process ({target})", deployment, lambda: _processes(deployment, fault))
    pids = rng.choice(there) if target == "executor" else [pid for group in there for pid in group]
    hit = [pid for pid in pids if send(pid, signal.SIGSTOP)]
    try:
        time.sleep(fault.seconds)
    finally:
        for pid in hit:
            send(pid, signal.SIGCONT)
    return f"{len(hit)} processes"


def _processes(deployment: Deployment, fault: Planned) -> list[list[int]]:
    """Return the process ids of a party that a fault can strike. Each inner list has a process and those that stop with it."""
    party = deployment.parties[fault.party]
    match fault.kind.target:
        case "driver":
            return [[pid] for pid in party.driver.members()]
        case "executor":
            return [[one.pid, *deployment.spark.below(one.pid)] for one in party.executors()]
        case "python":
            return [[pid] for pid in party.task_workers()]
        case _:
            return [[pid] for pid in party.driver_workers()]


def _zombie(deployment: Deployment, party: Party) -> str:
    """Stop the party's driver and start a new driver. After two commits of the new driver, resume the old driver. Kill the old
    driver if it does not end within `ZOMBIE_SECONDS`.
    """
    with party.unattended():
        zombie = party.driver
        zombie.send(signal.SIGSTOP)
        before = deployment.committed(party.name)
        replaced = 0
        successor = party.start(deployment.chroot)

        def committed() -> bool:
            nonlocal replaced, successor
            if not successor.running():  # the party is unattended, so the supervisor does not replace its drivers
                replaced += 1
                successor = party.start(deployment.chroot)
            return deployment.committed(party.name) > before + 1

        try:
            deployment.wait("the successor's commits", committed, SUCCESSOR_SECONDS)
        finally:
            zombie.send(signal.SIGCONT)
        code = zombie.wait(ZOMBIE_SECONDS)
        zombie.kill()
    return f"the zombie {'went on until it was killed' if code is None else f'ended with {code}'}, {replaced} successors died"


SERVERS: dict[str, Callable[[Deployment], ZooKeeperServer]] = {
    "follower": lambda deployment: deployment.ensemble.follower(),
    "leader": lambda deployment: deployment.ensemble.leader(),
}


def _away(server: ZooKeeperServer, seconds: float, go: Callable[[], object], come_back: Callable[[], object]) -> str:
    go()
    try:
        time.sleep(seconds)
    finally:
        come_back()
    return server.hosts


# --- connections ---


def expire(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]

    def sessions() -> list[str]:
        return [sid for server in deployment.ensemble.servers for sid in _sessions_of(server, party.ports())]

    before = _some("a ZooKeeper session", deployment, sessions)

    def expired() -> bool:
        alive = deployment.ensemble.leader().ask("dump").lower()
        return not any(sid in alive for sid in before)

    with party.each_proxy("silence"):
        took = deployment.wait("the sessions' expiry", expired, 10 * SESSION_MS / 1000)
    return f"{len(before)} sessions, after {took:.1f} s"


def _sessions_of(server: ZooKeeperServer, ports: Sequence[int]) -> list[str]:
    """Return the ids of the sessions whose connections come from these ports, as lower-case hexadecimal text."""
    found = re.findall(r":(\d+)\[.*?sid=(0x[0-9a-fA-F]+)", server.ask("cons"))
    return [sid.lower() for port, sid in found if int(port) in ports]


def cut(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    until = time.monotonic() + fault.seconds
    times = hit = 0
    _some("a connection to ZooKeeper", deployment, party.ports)
    while not times or time.monotonic() < until:
        hit += len(party.ports())
        for proxy in party.proxies:
            proxy.cut()
        times += 1
        time.sleep(rng.uniform(0.05, 0.5))
    return f"{times} times, {hit} connections"


def refuse(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    hit = _some("a connection to ZooKeeper", deployment, party.ports)
    with party.each_proxy("refuse"):
        time.sleep(fault.seconds)
    return f"{len(hit)} connections"


def lose_reply(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]

    def lost() -> int:
        return sum(proxy.wait_dropped(0) for proxy in party.proxies)

    while True:
        _some("a connection to ZooKeeper", deployment, party.ports)
        # Replies are dropped only now, when the driver is connected: while they are dropped, no connection can be opened.
        with party.each_proxy("drop_replies"):
            deployment.wait("a reply to lose", lambda: bool(lost() or not party.ports()), TARGET_SECONDS)
        if lost():
            return f"{lost()} connections lost one"


def delay(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    hit = _some("a connection to ZooKeeper", deployment, party.ports)
    late = rng.choice((0.02, 0.1, 0.4))
    with party.each_proxy("delay", late):
        time.sleep(fault.seconds)
    return f"{len(hit)} connections, {late * 1000:.0f} ms each way"


# --- disk and clock ---


def fill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    def writers() -> list[int]:
        parties = [deployment.parties[name] for name in deployment.writers]
        return [pid for party in parties for e in party.executors() for pid in deployment.spark.below(e.pid)]

    with deployment.disk.full(writers):
        time.sleep(fault.seconds)
    return deployment.disk.how


def shift(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party: Party = deployment.parties[fault.party]
    seconds = rng.choice([s for s in SHIFTS if s != party.shift])
    party.shift = seconds
    set_shift(party.clock, seconds)
    return f"{seconds:+.0f} s"


STRIKES: dict[Fault, Callable[[Deployment, Planned, random.Random], str]] = {
    Fault.KILL: kill,
    Fault.STOP: stop,
    Fault.CUT: cut,
    Fault.REFUSE: refuse,
    Fault.DELAY: delay,
    Fault.LOSE_REPLY: lose_reply,
    Fault.EXPIRE: expire,
    Fault.FILL: fill,
    Fault.SHIFT: shift,
}
