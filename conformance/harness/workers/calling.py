"""Lets a child of the warm process (`warm`) do the work of this process.

This module imports little, because Spark starts hundreds of processes that only run it. So it uses Python's `_socket`: the module
`socket` above it would take as long as the start of Python.

The first caller in a session of the operating system starts the warm process, in this session. So what kills all processes of a
session kills the warm process and its children.
"""

import _socket
import os
import sys
from hashlib import sha256


def run_forked() -> None:
    """Let a child of the warm process run the module of this process, and end this process when the child has ended. Return if the
    warm process is just ending: the caller then runs its module itself. The child gets the arguments, the environment, the folder
    and the standard files of this process. This process waits for the child's end, so that Spark has a child of its own.
    """
    kind = sha256(repr((sys.executable, sys.path)).encode()).hexdigest()[:16]
    address = f"\0txnsegment-warm-{os.getuid()}-{os.getsid(0)}-{kind}"
    listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        listening.bind(address)
    except OSError:  # there is a warm process
        pass
    else:
        listening.listen(64)
        if os.fork() == 0:
            _serve(listening)
    listening.close()
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(address)
        request = repr((sys.orig_argv[2:], sys.path, dict(os.environ), os.getcwd())).encode()  # noqa: PTH109
        files = (0).to_bytes(4, sys.byteorder) + (1).to_bytes(4, sys.byteorder) + (2).to_bytes(4, sys.byteorder)
        connection.sendmsg([len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
        connection.sendall(request)
        started = connection.recv(1)
    except OSError:  # the warm process has just ended
        connection.close()
        return
    if started:
        connection.recv(1)  # returns at the end of the child, which has the other end
        os._exit(0)
    connection.close()


def _serve(listening: _socket.socket) -> None:
    """Become the warm process. Never returns."""
    import socket

    import warm  # type: ignore[import-not-found]  # found by the folder of this file, which is on PYTHONPATH

    warm.serve(socket.socket(fileno=listening.detach()))
