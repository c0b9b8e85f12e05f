"""A check whether two lists of addresses lead to the same ZooKeeper servers. The check creates a znode through the first list and
looks it up through the second list.

The lookup uses no name and password. The second list comes from a file in the ledger root, and a person who writes that file must
not obtain the password. So every user may read the znode, which is empty.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import closing

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import READ_ACL_UNSAFE

from metadata.common.errors import TxnSegmentError
from metadata.store.zookeeper_credentials import anonymous
from metadata.store.zookeeper_paths import CLOCK
from metadata.store.zookeeper_session import Request, Session, stat

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
LOOKS = 5
BETWEEN_SECONDS = 0.1
"""Pause between two lookups. A server may lag behind the others for a moment, even after a sync."""


def is_served_by(session: Session, hosts: Sequence[str]) -> bool:
    """Return whether the servers `hosts` (`host:port` each) hold the store of this session. If `hosts` cannot be reached, log a
    warning with the reason and return False. Raises Unavailable if the session's own servers do not answer.
    """
    path = f"{session.root}{CLOCK}/{uuid.uuid4().hex}"

    def make(client: KazooClient) -> object:
        return client.create_async(path, b"", acl=[*session.acl, *READ_ACL_UNSAFE], ephemeral=True)

    while isinstance(session.flight([make])[0], NoNodeError):
        session.flight([session.create(session.root + CLOCK)])
    try:
        return _seen(session, ",".join(hosts), path)
    except TxnSegmentError as error:
        log.warning("Could not check whether %s are other addresses of %s: %s", ",".join(hosts), session.hosts, error)
        return False
    finally:
        session.flight([lambda client: client.delete_async(path)])


def _seen(session: Session, hosts: str, path: str) -> bool:
    there = Session(
        hosts,
        session.root,
        clock=session.clock,
        connect_seconds=CONNECT_SECONDS,
        session_seconds=CONNECT_SECONDS,
        known=anonymous(),
    )
    sync: Request = lambda client: client.sync_async(path)  # noqa: E731
    with closing(there):
        for left in range(LOOKS - 1, -1, -1):
            _, found = there.flight([sync, stat(path)])
            if found is not None:
                return True
            if left:
                session.clock.sleep(BETWEEN_SECONDS)
    return False
