"""Many gets in one request. This is ZooKeeper's multiRead (since 3.6), which kazoo does not offer.

A thousand gets by kazoo take some 200 ms in Python. The same gets in multiReads take a few ms. The server does the gets of a
multiRead in order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.states import ZnodeStat

GETS = 100
"""Maximum number of gets in one request. So a reply has at most some 75 MB, even if every record has the maximum size."""

_GET: Final = 4
_ERROR: Final = -1
_HEADER = struct.Struct("!i?i")  # type, end marker, error
_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")


class MultiGet:
    """A multiRead request with the attributes that kazoo's connection uses: `type`, `serialize`, `deserialize`."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        parts = []
        for path in self._paths:
            text = path.encode()
            parts.append(_HEADER.pack(_GET, False, _ERROR) + _INT.pack(len(text)) + text + b"\0")  # the last byte: set no watch
        return b"".join(parts) + _HEADER.pack(_ERROR, True, _ERROR)

    @staticmethod
    def deserialize(reply: bytes, offset: int) -> list[Any]:
        """Return (data, stat) or an exception for each path, in the order of the request. `offset`: where the results begin in the
        reply.
        """
        results: list[Any] = []
        while True:
            kind, end, _ = _HEADER.unpack_from(reply, offset)
            offset += _HEADER.size
            if end:
                return results
            (number,) = _INT.unpack_from(reply, offset)
            offset += _INT.size
            if kind == _ERROR:
                results.append(EXCEPTIONS[number]())
                continue
            data = reply[offset : offset + max(number, 0)]  # -1 means null: other clients may create a znode without data
            offset += max(number, 0)
            results.append((data, ZnodeStat._make(_STAT.unpack_from(reply, offset))))
            offset += _STAT.size


def get_all(paths: Sequence[str]) -> Any:
    """Return one request that gets all paths. `Session.flight` can send it."""

    def send(client: KazooClient) -> Any:
        answer = client.handler.async_result()
        client._call(MultiGet(paths), answer)
        return answer

    return send
