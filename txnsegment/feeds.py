"""What a consumer follows: all `topic://` topics together, which one log orders, and each `persistent://` topic by itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from metadata import backlog
from metadata.client import Client
from metadata.instream import paths
from metadata.names import PersistentName, is_persistent, persistent_name
from metadata.providers import Model, Providers, one_model
from metadata.row_ranges import Rows
from metadata.transaction_buffer import Reading, Selection
from spark_txn_source.following import Following
from spark_txn_source.plan import acknowledged, check_cursors


class _Follows(Protocol):
    def read(self) -> Reading: ...

    def close(self) -> None: ...


class _FollowingOne:
    """A persistent topic: its log wakes, and is listed at each look."""

    def __init__(self, client: Client, name: PersistentName, wake: threading.Event) -> None:
        self._name, self._buffer = str(name), Providers(client).by_model(Model.IN_STREAM).buffer
        self._watch = client.cluster.store.watch(paths.log(name), wake.set)

    def read(self) -> Reading:
        return self._buffer.read(self._name)

    def close(self) -> None:
        self._watch.close()


class Feed:
    """One log's part of a consumer. `after`: the number in that log up to which all has been delivered."""

    def __init__(self, client: Client, names: Sequence[str], follows: _Follows, subscription: str) -> None:
        self._client, self._follows, self._subscription = client, follows, subscription
        self.model = one_model(names)
        self.after = 0
        self.guards: Mapping[str, int] = {}
        self.reading = self.look()

    def look(self) -> Reading:
        """A reading with all that was decided before this call; it stays in `reading`. Raises TopicNotFound."""
        self.reading = self._follows.read()
        return self.reading

    def begin(self) -> dict[str, Rows]:
        """Begin anew where the subscription stands; what it has done of each segment. Raises SubscriptionNotFound, DataLoss."""
        reading = self.look()
        done = self.done(reading)
        check_cursors(reading, done, self._subscription)
        self.after = backlog.first_pending(reading, done, reading.cut)
        self.guards = reading.guards()
        return done

    def done(self, reading: Reading) -> dict[str, Rows]:
        return acknowledged(self._client, reading, self._subscription)

    def onward(self, wake: threading.Event) -> Feed | None:
        """What goes on once a `persistent://` topic was migrated and all of it is delivered; None: it was not, or is not (yet)."""
        ended = next((s for s in self.reading.segments if is_persistent(s.name) and s.sealed_at is not None), None)
        if ended is None or self.model is Model.METADATA or self.after < self.reading.cut:
            return None
        to = full_name(self._client, ended.name)
        if is_persistent(to):
            return None  # terminated
        found = Feed(self._client, [to], Following(self._client, Selection((to,)), wake.set), self._subscription)
        found.guards = found.reading.guards()
        beginning = next((s for s in found.reading.segments if s.name == ended.name), None)
        if beginning is None:
            return found  # retention has taken all of it since: what is there stands above it
        if beginning.sealed_at is None:
            found.close()
            return None  # whoever migrates it has the last step before it
        found.after = beginning.sealed_at
        return found

    def covers(self, segment: str) -> bool:
        """Whether the segment's rows come in the order of this log."""
        return any(segment == found.name for found in self.reading.segments)

    def close(self) -> None:
        self._follows.close()


def feeds(client: Client, names: Sequence[str], subscription: str, wake: threading.Event) -> list[Feed]:
    """Of topics and segments by full name. `wake` is set when something may have come. Raises TopicNotFound."""
    scalable = [name for name in names if not is_persistent(name)]
    older = list(dict.fromkeys(persistent_name(name) for name in names if is_persistent(name)))
    for name in older:
        client.instream.topics.get(name)  # before anything watches a log
    with ExitStack() as opened:
        found: list[Feed] = []
        if scalable:
            following = Following(client, Selection(tuple(scalable)), wake.set)
            opened.callback(following.close)
            found.append(Feed(client, scalable, following, subscription))
        for name in older:
            one = _FollowingOne(client, name, wake)
            opened.callback(one.close)
            found.append(Feed(client, [str(name)], one, subscription))
        opened.pop_all()  # they are the feeds' now
    return found


def full_name(client: Client, text: str) -> str:
    """A segment's name as it is, of a topic the one that it goes by. Raises OptionError."""
    return text if text.startswith("segment:") else str(Providers(client).resolve(text))
