"""The jobs of a deployment, the topics that they write and read, and the number of segments of these topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.domains import MIXED, PERSISTENT, TOPIC, named
from metadata.common.errors import ConfigurationError

SCALING = "one topic, split 4 -> 16 and merged 16 -> 4 under three streaming writers and three readers"
"""The help text of the option `--scaling`."""


@dataclass(frozen=True)
class Writes:
    """A job that writes every batch of the input into one topic. `streams`: whether the job is a streaming query; otherwise it runs
    one batch write for each batch. `cores`: how many cores its executors have.
    """

    name: str
    topic: str
    streams: bool
    cores: int


@dataclass(frozen=True)
class Reads:
    """A job with a streaming query over all topics of the scene. `batches`: whether it also runs batch reads. `limit`: the soft
    limit of rows in a micro-batch (0: no limit).
    """

    name: str
    cores: int
    batches: bool = True
    limit: int = 0


@dataclass(frozen=True)
class Scene:
    """The topics and jobs of a deployment.

    `roles`: the plan aims a fault at a role: writer (streaming), loader (batch) or reader. For each role, `roles` has the names of
    the jobs of which the fault then strikes one. `first`: how many segments a new topic has. `fewest`, `most`: how few and how many
    active segments a topic may have later. `rounds`: the first topic is split until it has `most`, then merged until it has
    `fewest`, and so on; otherwise splits and merges are random.
    """

    topics: tuple[str, ...]
    writers: tuple[Writes, ...]
    readers: tuple[Reads, ...]
    roles: Mapping[str, Sequence[str]]
    first: int = 2
    fewest: int = 1
    most: int = 4
    rounds: bool = False

    @property
    def jobs(self) -> tuple[Writes | Reads, ...]:
        return (*self.writers, *self.readers)

    @property
    def cores(self) -> int:
        """The number of cores of all jobs together."""
        return sum(job.cores for job in self.jobs)


def usual(domain: str = TOPIC) -> Scene:
    """Return a scene with a streaming job and a batch job, each of which writes a topic of its own, and a reader of both topics.

    The topics have few segments. Each batch leaves one file for each task and segment, and every batch read opens all files.
    """
    first, second = (PERSISTENT, TOPIC) if domain == MIXED else (domain, domain)
    streamed, loaded = named(first, "streamed"), named(second, "loaded")
    return Scene(
        (streamed, loaded),
        (Writes("writer", streamed, streams=True, cores=2), Writes("loader", loaded, streams=False, cores=1)),
        (Reads("reader", cores=2),),
        {"writer": ("writer",), "loader": ("loader",), "reader": ("reader",)},
    )


def scaling() -> Scene:
    """Return a scene with three streaming writers and three readers of one topic. Meanwhile the topic is split from 4 to 16
    segments and merged back to 4.
    """
    topic = named(TOPIC, "scaled")
    writers = tuple(Writes(f"writer{i}", topic, streams=True, cores=1) for i in (1, 2, 3))
    readers = (Reads("reader1", 1), Reads("reader2", 1, batches=False), Reads("reader3", 1, batches=False, limit=500))
    names = tuple(job.name for job in writers)
    roles = {"writer": names, "loader": names, "reader": tuple(job.name for job in readers)}
    return Scene((topic,), writers, readers, roles, first=4, fewest=4, most=16, rounds=True)


def chosen(*, scale: bool, domain: str | None) -> Scene:
    """Return the scene that the command line selects. Raises ConfigurationError for `--scaling` of a persistent topic."""
    if not scale:
        return usual(domain or TOPIC)
    if domain not in (None, TOPIC):
        raise ConfigurationError(f"--scaling is of topic://, not of --domain {domain}.", advice="Give one of both.")
    return scaling()
