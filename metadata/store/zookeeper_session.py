"""One ZooKeeper session. This module connects, authenticates, and reacts to lost connections.

Reads are sent in flights. A flight is a list of requests that are sent back to back on one connection, and the server answers them
in order. After a lost connection a flight is sent again. The flight of a view is sent again only within the view's session. A group
of writes is one multi. A multi is sent only once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotReadOnlyCallError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from metadata.common.clock import Clock
from metadata.common.errors import ConfigurationError, SessionLost, StoreError, Unavailable, UnknownOutcome
from metadata.store.zookeeper_connection import Connections
from metadata.store.zookeeper_connection import log as kazoo_log
from metadata.store.zookeeper_credentials import Credentials, credentials
from metadata.store.zookeeper_paths import CLOCK, is_era
from metadata.store.zookeeper_refusal import REFUSED, refusal
from metadata.store.zookeeper_time import TIME_SECONDS, ServerTime, learned

log = logging.getLogger(__name__)

LOST = (ConnectionLoss, SessionExpiredError, OperationTimeoutError, ConnectionClosedError, KazooTimeoutError)
AUTH_TRIES = 2
FIRST_TRY = 0.25
"""Share of the connect time that the first connection gets. If no answer has come by then, another connection replaces it."""
QUORUM = "/zookeeper/config"
KNOWN = (NoNodeError, NodeExistsError, BadVersionError)
Request = Callable[[KazooClient], Any]
Outcome = Any
"""The result of a request. The exceptions NoNodeError, NodeExistsError and BadVersionError are returned as results, not raised."""


def get(path: str) -> Request:
    """Return a request for the data and the stat of a znode."""
    return lambda client: client.get_async(path)


def stat(path: str) -> Request:
    """Return a request for the stat of a znode. Its result is None if the znode does not exist."""
    return lambda client: client.exists_async(path)


def children(path: str) -> Request:
    """Return a request for the names of a znode's children, in no order."""
    return lambda client: client.get_children_async(path)


def change(path: str, data: bytes, version: int = -1) -> Request:
    """Return a request that changes the data of a znode. Its result is the new stat. A repeated change must do no harm, because
    flights are repeated.
    """
    return lambda client: client.set_async(path, data, version)


class Session:
    """One session with its kazoo client and credentials. The client reconnects by itself."""

    def __init__(
        self,
        hosts: str,
        root: str,
        *,
        clock: Clock,
        connect_seconds: float,
        session_seconds: float,
        known: Credentials | None = None,
    ) -> None:
        """`known`: the credentials to use. None: those that the environment gives."""
        self.hosts = hosts
        self.root = root
        self.clock = clock
        self._connect_seconds = connect_seconds
        self._session_seconds = session_seconds
        self._credentials = known or credentials()
        self.acl = CREATOR_ALL_ACL if self._credentials.given else OPEN_ACL_UNSAFE
        self._on_connect: Callable[[KazooClient], None] | None = None
        self._closed = False
        self.time_seconds = TIME_SECONDS
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._changed = threading.Condition()
        self._client: Any = None  # kazoo has no types
        self._ended: Any = None  # the last client that does not reconnect any more, because it failed to authenticate or was closed
        self._auth_failures = 0
        self._no_sasl = False
        self._connections: Connections | None = None
        self._alone = False
        self.id: int | None = None
        self._measured: ServerTime | None = None
        self._known: ServerTime | None = None

    def on_connect(self, call: Callable[[KazooClient], None]) -> None:
        """Register a function to call after each connect. It runs in kazoo's thread and must not wait."""
        self._on_connect = call

    # --- connecting ---

    def client(self) -> KazooClient:
        """Return the connected client. Raises Unavailable if no server answers in time, ConfigurationError for bad credentials."""
        if os.getpid() != self._pid:
            self._begin_process()  # kazoo's threads do not survive a fork, and the session belongs to the parent
        while True:
            with self._guard:
                if self._closed:  # perhaps during the wait below
                    raise Unavailable(f"The store at {self.hosts} was closed.", advice="Open it again.")
                client = self._client
                if client is None or client is self._ended:
                    client = self._start(client)
            if not client.connected:
                with self._changed:
                    self._changed.wait_for(partial(self._settled, client), self._connect_seconds)
            if client.connected:
                return client
            if (reason := self._refusal()) is not None:
                raise ConfigurationError(reason.message, advice=reason.advice)
            if client is self._client and client is not self._ended:
                # A client that is CLOSED after the whole wait has stopped without a notification.
                if client.client_state == KeeperState.CLOSED:
                    self._ended = client
                raise self._unreachable()
            self._check_failures()

    def connected(self) -> KazooClient | None:
        """Return the client if it is connected now, without waiting. None: it connects again, or this session is closed."""
        client = self._client
        return client if client is not None and client.connected and not self._closed else None

    def _check_failures(self) -> None:
        """Raise ConfigurationError after `AUTH_TRIES` failed authentications in a row.

        A single failure does not prove that the password is wrong, because kazoo reports the same error for a connection that
        breaks during SASL.
        """
        if self._auth_failures >= AUTH_TRIES:
            self._auth_failures = 0
            raise self._refused(AuthFailedError())

    def _start(self, dead: KazooClient | None) -> KazooClient:
        if dead is not None:
            dead.stop()
            dead.close()
        connections = Connections(self._credentials.tls, self._notify, FIRST_TRY * self._connect_seconds)
        client: Any = KazooClient(
            hosts=self.hosts,
            handler=connections,
            logger=kazoo_log,
            use_ssl=self._credentials.tls is not None,
            timeout=self._session_seconds,
            randomize_hosts=True,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2},
            command_retry={"max_tries": 0},
            auth_data=[("digest", self._credentials.digest)] if self._credentials.digest else None,
            sasl_options=self._sasl_options(),
        )
        client.add_listener(lambda state: self._state_changed(client, connections, state))
        self._client, self._connections = client, connections
        client.start_async()
        return client

    def _sasl_options(self) -> dict[str, Any] | None:
        sasl = dict(self._credentials.sasl)
        if sasl.get("mechanism") != "DIGEST-MD5":
            return sasl or None
        from metadata.store import zookeeper_sasl  # imported late, because pure-sasl is an extra

        return zookeeper_sasl.options(sasl["username"], sasl["password"], self._learn_no_sasl)

    def _learn_no_sasl(self) -> None:
        self._no_sasl = True

    def _settled(self, client: Any) -> bool:
        """Return whether a wait for this client can end, because the client is connected or will not connect.

        kazoo's state alone does not show that a client will not connect. After a failure the state AUTH_FAILED soon becomes CLOSED,
        and CLOSED is also the initial state of a client. So a check that comes late would miss the failure.
        """
        return client.connected or client is self._ended or client is not self._client or self._refusal() is not None

    def _refusal(self) -> ConfigurationError | None:
        return self._connections.refusal if self._connections else None

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _state_changed(self, client: KazooClient, connections: Connections, state: str) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED:
            connections.connected()
            # kazoo calls this before it sends any request in a new session. So no reply of the new session counts as a reply of the
            # old session.
            self.id = client.client_id[0]
            self._alone = False
            self._measured = None  # the new connection's server may follow another leader
            client.get_async(QUORUM).rawlink(self._learn_quorum)
            try:
                if self._on_connect:
                    self._on_connect(client)
            finally:
                self._notify()  # an error of the callback must not leave the callers of `client` waiting
        elif state == KazooState.LOST:
            self.id = None
            self._auth_failures += client.client_state == KeeperState.AUTH_FAILED
            if client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED):
                self._ended = client
        self._notify()

    def _learn_quorum(self, answer: Any) -> None:
        """Note from the answer whether the server is standalone. A standalone server has no quorum configuration. Each new
        connection sends this request again. Until the answer comes, the server counts as not standalone.
        """
        self._alone = answer.exception is None and not answer.value[0]

    def _refused(self, error: KazooException) -> ConfigurationError:
        return refusal(error, self.hosts, self._credentials, no_sasl=self._no_sasl)

    def _unreachable(self) -> StoreError:
        last = f" (last attempt: {self._connections.last})" if self._connections and self._connections.last else ""
        return Unavailable(
            f"No ZooKeeper server of {self.hosts} answered within {self._connect_seconds:g} s{last}; nothing was done.",
            advice="Check that the servers run and have a quorum, the host names and ports, TLS settings and firewalls.",
        )

    def close(self) -> None:
        if os.getpid() != self._pid:
            self._closed = True  # the client is the parent's, and so is whoever holds the lock
            return
        with self._guard:
            if self._closed:
                return
            self._closed, client = True, self._client
        if client is not None:
            client.stop()
            client.close()

    # --- reading ---

    def begin(self) -> int:
        """Return the id of the current session. Raises Unavailable."""
        while True:
            self.client()
            if (found := self.id) is not None:
                return found

    def flight(self, requests: Sequence[Request], session: int | None = None) -> list[Outcome]:
        """Send all requests, then wait for all answers, in one round trip. Send the flight again if the connection is lost.

        Raises SessionLost if `session` is given and another session answered, Unavailable if no server answers in time.
        """
        deadline = self.clock.monotonic() + self._connect_seconds
        while True:
            client = self.client()
            if session is not None and self.id != session:
                raise session_lost()
            answers = [request(client) for request in requests]
            outcomes = [self._outcome(answer) for answer in answers]
            if session is not None and self.id != session:
                raise session_lost()
            if any(isinstance(outcome, AuthFailedError) for outcome in outcomes):
                self._check_failures()
            elif not any(isinstance(outcome, LOST) for outcome in outcomes):
                self._auth_failures = 0
                return outcomes
            if self.clock.monotonic() > deadline:
                raise self._unreachable()

    def _outcome(self, answer: Any) -> Outcome:
        try:
            return answer.get(timeout=self._session_seconds + self._connect_seconds)
        except (*KNOWN, *LOST, AuthFailedError) as error:
            return error
        except KazooException as error:
            return self.checked(error)

    def checked(self, outcome: Outcome) -> Outcome:
        """Return the outcome if it is no error or one of the errors KNOWN. Otherwise raise ConfigurationError or Unavailable."""
        if isinstance(outcome, REFUSED):
            raise self._refused(outcome) from outcome
        if isinstance(outcome, KazooException) and not isinstance(outcome, KNOWN):
            raise Unavailable(
                f"ZooKeeper at {self.hosts} refused to answer: {outcome!r}.", advice="It must be version 3.6 or newer."
            ) from outcome
        return outcome

    def fresh(self, requests: Sequence[Request], session: int | None = None) -> list[Outcome]:
        """Send a flight that sees every write that any server had acknowledged to any client before the flight began.

        The flight starts with a write. The server answers the later requests of the connection after it has applied this write, and
        thus all earlier writes in the global order. ZooKeeper's `sync` does not guarantee that. The leader answers `sync` without
        waiting, so it may not have applied a write yet that a follower has acknowledged. A leader that was cut off from its quorum
        also answers `sync` (ZOOKEEPER-1675). For a standalone server `sync` suffices.
        """
        path = self.root + CLOCK
        while True:
            alone, now, began = self._alone, self.id, self.clock.monotonic()
            front: Request = (lambda client: client.sync_async(self.root or "/")) if alone else change(path, b"")
            first, *outcomes = self.flight([front, *requests], session)
            if not isinstance(first, NoNodeError):
                if not alone and now is not None and now == self.id:
                    self._learn_time(first, now, began)
                return outcomes
            self.flight([self.create(path)])

    # --- writing ---

    def multi(self, fill: Callable[[Any], None]) -> list[Any]:
        """Send one multi, once, and return its results. The result of a failed operation is an exception. If one operation fails,
        none is done.

        Raises Unavailable (not sent, or refused as a whole) or UnknownOutcome (sent, but no reply came).
        """
        client = self.client()
        transaction = client.transaction()
        fill(transaction)
        try:
            results: list[Any] = transaction.commit_async().get(timeout=self._session_seconds + self._connect_seconds)
        except LOST as error:
            raise UnknownOutcome(
                f"The connection to ZooKeeper at {self.hosts} was lost before a write was answered ({type(error).__name__}).",
                advice="Callers read the records again before they repeat the write.",
            ) from error
        except AuthFailedError as error:
            self._check_failures()
            raise Unavailable(
                f"The connection to ZooKeeper at {self.hosts} failed during authentication; nothing was done.", advice="Try again."
            ) from error
        except REFUSED as error:
            raise self._refused(error) from error
        except NotReadOnlyCallError as error:
            raise Unavailable(f"ZooKeeper at {self.hosts} is read-only now: it has lost its quorum; nothing was done.") from error
        except KazooException as error:
            raise UnknownOutcome(f"ZooKeeper at {self.hosts} answered a write with {error!r}.") from error
        for result in results:
            if isinstance(result, REFUSED):
                raise self._refused(result)
        return results

    def make_folders(self, znode: str) -> None:
        """Create the folders above a znode, below the root, as empty znodes. One round trip."""
        parts = znode.split("/")[1:-1]
        self.flight([self._folder("/" + "/".join(parts[: i + 1])) for i in range(len(parts))])

    def make_root(self) -> None:
        parts = self.root.split("/")[1:]
        self.flight([self.create("/" + "/".join(parts[: i + 1])) for i in range(len(parts))])

    def create(self, path: str, data: bytes = b"") -> Request:
        """Return a request that creates a znode. The caller must accept that the znode exists, because flights are repeated."""
        return lambda client: client.create_async(path, data, acl=self.acl)

    def _folder(self, path: str) -> Request:
        path = self.root + path
        if not is_era(path.rpartition("/")[2]):
            return self.create(path)

        def era(client: KazooClient) -> Any:
            # A sequence begins at 1 on every backend, so the new folder's counter must be advanced once. This is done in the multi
            # that creates the folder, because another process may append as soon as the folder exists. If the folder exists
            # already, the multi fails as a whole, which does no harm.
            transaction = client.transaction()
            transaction.create(path, b"", acl=self.acl)
            transaction.create(path + "/0", b"", acl=self.acl)
            transaction.delete(path + "/0")
            return transaction.commit_async()

        return era

    # --- time ---

    def time(self, session: int) -> ServerTime:
        """Return a measurement of the servers' time. It was made in this session, on the current connection, at most `time_seconds`
        ago. The time may be late by the round trip of the measurement. Raises SessionLost, Unavailable.
        """
        found = self._measured
        if found is None or found.session != session or self.clock.monotonic() - found.at > self.time_seconds:
            path = self.root + CLOCK
            while True:
                began = self.clock.monotonic()
                (answer,) = self.flight([change(path, b"")], session)
                if not isinstance(answer, NoNodeError):
                    break
                self.flight([self.create(path)], session)
            found = self._learn_time(answer, session, began)
        elif self.id != session:
            raise session_lost()
        return found

    def _learn_time(self, answer: Any, session: int, began: float) -> ServerTime:
        """Return the servers' time, taken from the reply to a write that was sent after `began`."""
        with self._changed:
            measured = ServerTime(session, int(answer.mtime), self.clock.monotonic())
            self._measured = self._known = learned(self._known, measured, began, self.hosts)
            return self._measured


def session_lost() -> SessionLost:
    return SessionLost("The ZooKeeper session of this view has ended.", advice="Start over with a new view.")
