"""How each kind of fault of the plan is done, with real signals to real processes and real connections.

A strike returns when the fault is over (healed, where it lasts) and says what it has hit. Raises Missed if there was nothing
to hit.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from conformance.processes import send
from conformance.scenarios.cluster.clock_shim import set_shift
from conformance.scenarios.cluster.deployment import SESSION_MS, Deployment, Late
from conformance.scenarios.cluster.party import Party
from conformance.scenarios.cluster.plan import Planned
from conformance.servers import ZooKeeperServer

T = TypeVar("T")
TARGET_SECONDS = 240.0
"""How long a strike waits for what it wants to hit: an executor, say, just after the driver was replaced."""
SUCCESSOR_SECONDS = 180.0
ZOMBIE_SECONDS = 20.0
"""How long a driver that was woken may go on beside its successor before the supervisor ends it."""
SHIFTS = (-7_200.0, -90.0, -20.0, -3.0, 3.0, 20.0, 90.0, 7_200.0)
"""Of a party's clock, in seconds: within and beyond the allowance (5 s) and the transaction's timeout (10 s)."""


class Missed(Exception):
    """There was nothing to hit."""


def strike(deployment: Deployment, fault: Planned) -> str:
    """Do it."""
    return STRIKES[fault.kind.name](deployment, fault, random.Random(fault.seed))


def _some(what: str, deployment: Deployment, look: Callable[[], Sequence[T]]) -> Sequence[T]:
    """What there is to hit, once there is something."""
    found: list[T] = []

    def any_there() -> bool:
        found[:] = look()
        return bool(found)

    try:
        deployment.wait(what, any_there, TARGET_SECONDS)
    except Late as late:
        raise Missed(f"{what}: there was none for {TARGET_SECONDS:g} s") from late
    return found


def _stopped(pids: Sequence[int], seconds: float) -> int:
    """SIGSTOP, then SIGCONT so many seconds later; how many were stopped."""
    hit = [pid for pid in pids if send(pid, signal.SIGSTOP)]
    try:
        time.sleep(seconds)
    finally:
        for pid in hit:
            send(pid, signal.SIGCONT)
    return len(hit)


# --- processes of Spark ---


def driver_kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    driver = deployment.parties[fault.party].driver
    members = driver.members()
    driver.kill()
    return f"{len(members)} processes"


def driver_stop(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    driver = deployment.parties[fault.party].driver
    return f"{_stopped(_some('a driver', deployment, driver.members), fault.seconds)} processes"


def driver_zombie(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    with party.unattended():
        zombie = party.driver
        zombie.send(signal.SIGSTOP)
        before = deployment.committed(party.name)
        replaced = 0
        successor = party.start(deployment.chroot)

        def committed() -> bool:
            nonlocal replaced, successor
            if not successor.running():  # as a supervisor would, and he keeps out now
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


def changing_kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    """Within one change, whichever it is: a short while after some of it was done."""
    time.sleep(rng.uniform(0.0, 2.0))
    changing = deployment.changing
    members = changing.members()
    changing.kill()
    return f"{len(members)} processes"


def executor_kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    chosen = rng.choice(_some("an executor", deployment, party.executors))
    if not send(chosen.pid, signal.SIGKILL):
        raise Missed(f"executor {chosen.number} of {party.name} ended by itself")
    return f"executor {chosen.number}"


def executor_stop(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    chosen = rng.choice(_some("an executor", deployment, party.executors))
    hit = _stopped([chosen.pid, *deployment.spark.below(chosen.pid)], fault.seconds)
    return f"executor {chosen.number}, {hit} processes"


def python_kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    chosen = rng.choice(_some("a Python worker", deployment, party.task_workers))
    if not send(chosen, signal.SIGKILL):
        raise Missed(f"the Python worker {chosen} of {party.name} ended by itself")
    return "1 process"


def python_stop(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    return f"{_stopped(_some('a Python worker', deployment, party.task_workers), fault.seconds)} processes"


def planner_kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    chosen = rng.choice(_some("a Python worker of the driver", deployment, party.driver_workers))
    if not send(chosen, signal.SIGKILL):
        raise Missed(f"the Python worker {chosen} of {party.name}'s driver ended by itself")
    return "1 process"


# --- processes of ZooKeeper ---


def _kill(server: ZooKeeperServer, seconds: float) -> str:
    server.kill()
    try:
        time.sleep(seconds)
    finally:
        server.start()
    return server.hosts


def _stop(server: ZooKeeperServer, seconds: float) -> str:
    server.suspend()
    try:
        time.sleep(seconds)
    finally:
        server.resume()
    return server.hosts


def follower_kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    return _kill(deployment.ensemble.follower(), fault.seconds)


def follower_stop(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    return _stop(deployment.ensemble.follower(), fault.seconds)


def leader_kill(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    return _kill(deployment.ensemble.leader(), fault.seconds)


def leader_stop(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    return _stop(deployment.ensemble.leader(), fault.seconds)


# --- connections ---


def session_expiry(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
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
    """The ids of the sessions whose connections come from these ports, as `dump` writes them."""
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


def refused(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]
    hit = _some("a connection to ZooKeeper", deployment, party.ports)
    with party.each_proxy("refuse"):
        time.sleep(fault.seconds)
    return f"{len(hit)} connections"


def lost_reply(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party = deployment.parties[fault.party]

    def lost() -> int:
        return sum(proxy.wait_dropped(0) for proxy in party.proxies)

    while True:
        _some("a connection to ZooKeeper", deployment, party.ports)
        with party.each_proxy("drop_replies"):  # which lets nobody in: a driver that ends now has to be waited for outside
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


def disk_full(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    def writers() -> list[int]:
        parties = [deployment.parties[name] for name in deployment.writers]
        return [pid for party in parties for e in party.executors() for pid in deployment.spark.below(e.pid)]

    with deployment.disk.full(writers):
        time.sleep(fault.seconds)
    return deployment.disk.how


def clock(deployment: Deployment, fault: Planned, rng: random.Random) -> str:
    party: Party = deployment.parties[fault.party]
    shift = rng.choice([s for s in SHIFTS if s != party.shift])
    party.shift = shift
    set_shift(party.clock, shift)
    return f"{shift:+.0f} s"


Strike = Callable[[Deployment, Planned, random.Random], str]
STRIKES: dict[str, Strike] = {
    one.__name__.replace("_", "-"): one
    for one in (
        driver_kill,
        driver_stop,
        driver_zombie,
        executor_kill,
        executor_stop,
        python_kill,
        python_stop,
        planner_kill,
        follower_kill,
        follower_stop,
        leader_kill,
        leader_stop,
        session_expiry,
        cut,
        refused,
        lost_reply,
        delay,
        disk_full,
        changing_kill,
        clock,
    )
}
