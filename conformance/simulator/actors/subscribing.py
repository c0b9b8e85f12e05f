"""An actor that deletes, creates and moves a subscription. Meanwhile consumers use the subscription and segments are split."""

from __future__ import annotations

from conformance.simulator.actors.working import start_rounds
from conformance.simulator.world.scheduler import Process, World
from metadata.read.reading import LogSelection
from metadata.records.names import topic_name


def start_subscriber(world: World, topic: str, subscription: str, rounds: int, *, within: int = 200) -> None:
    """Start an actor that moves, deletes or recreates the subscription once in each round. It does not repeat a change that failed
    halfway. Other actors that find such a change complete it, or work correctly in spite of it.
    """
    process, rng, aims = Process(world, "subscriber"), world.rng, list[int]()
    world.history.moving = lambda: tuple(aims) if world.current is not None and world.current.process is process else ()
    where = topic_name(topic)

    def number(top: int) -> int:
        """Return a log number from 0 to `top`, often 0 or `top`."""
        return rng.choice((0, top, rng.randint(0, top)))

    def change(process: Process) -> None:
        client = process.client
        what = rng.choice(("seek", "seek", "delete", "renew"))
        aims.append(number(client.buffer.read(LogSelection((topic,))).cut))
        if what == "seek":
            client.subscriptions.seek(where, subscription, to=aims[-1])
            return
        client.subscriptions.delete(where, subscription)
        if what == "renew":
            client.subscriptions.create(where, subscription, at=aims[-1])

    start_rounds(world, process.name, rounds, change, process=process, within=within)
