"""Real object stores with the S3 protocol, for tests and development.

    with VersityGateway(folder) as server:                  # checks signatures; `go install` builds it once
        os.environ.update(server.environment)
        connect(url, ledgers=server.uri("bucket", "ledgers"))
    with MotoServer(folder) as server:                      # from PyPI; an emulator in memory, which checks no signatures
        ...

The servers listen on 127.0.0.1 only. They end with the block, and with the process that started them. A gateway keeps its objects
in the given folder; an emulator loses its objects at its end.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from conformance.ports import LOCAL, free_ports
from conformance.processes import Session
from metadata.common.errors import ConfigurationError, Unavailable

VERSION: Final = "v1.8.0"
"""The version of VersityGW, the server of `make objects`."""
MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
REGION: Final = "us-east-1"
ACCESS_KEY: Final = "TXNSEGMENTTESTS"
SECRET_KEY: Final = "a-secret-of-the-tests-alone"
START_SECONDS: Final = 60.0
_BUILD_SECONDS: Final = 1800


def versitygw() -> Path:
    """Return the path of the program `versitygw`: that on PATH, else one that `go install` builds into the user's cache. The build
    takes some five minutes, once for each version. Raises ConfigurationError if there is no Go, or if the build fails.
    """
    if found := shutil.which("versitygw"):
        return Path(found)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txnsegment" / f"versitygw-{VERSION}"
    program = folder / "versitygw"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(folder, program)
    return program


def _build(folder: Path, program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ConfigurationError(
            "There is no versitygw on PATH, and no go to build it.",
            advice="Install Go 1.25 or newer; the first use then builds the program with `go install`.",
        )
    building = folder / "building"
    command = [go, "install", f"{MODULE}@{VERSION}"]
    ran = subprocess.run(
        command,
        env={**os.environ, "GOBIN": str(building)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
    )
    if ran.returncode != 0:
        raise ConfigurationError(
            f"{' '.join(command)} ended with {ran.returncode}: {ran.stderr[-2000:]}",
            advice="Go downloads modules from a proxy: check the network, `go version` and `go env GOPROXY`.",
        )
    (building / "versitygw").rename(program)


class ObjectServer:
    """One S3 server in a process of its own. A context manager, which calls `start` and `stop`."""

    access_key = ACCESS_KEY
    secret_key = SECRET_KEY

    def __init__(self, folder: Path | str, *, port: int | None = None) -> None:
        """`folder`: where the log and the objects are. `port`: the server's port (default: a free port)."""
        self.folder = Path(folder).absolute()
        self.port = port or free_ports(1)[0]
        self._session: Session | None = None

    def command(self) -> Sequence[str]:
        """Return the command that runs the server. Raises ConfigurationError."""
        raise NotImplementedError

    @property
    def hosts(self) -> str:
        """`host:port`, as `endpoint_override` takes it."""
        return f"{LOCAL}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which a client of the server finds its credentials, and looks for no others."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, bucket: str, prefix: str = "ledgers", *, hosts: str | None = None, region: str = REGION) -> str:
        """Return the URI of a ledger root on this server. `hosts`: `host:port` of a proxy in front of it."""
        return f"s3://{bucket}/{prefix}?scheme=http&endpoint_override={hosts or self.hosts}&region={region}"

    def client(self) -> Any:
        """Return a client of boto3, which shares no code with the client of txnsegment."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=f"http://{self.hosts}",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}),
        )

    def start(self) -> Self:
        """Start the server and wait until it takes connections. Raises ConfigurationError or Unavailable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        credentials = {"ROOT_ACCESS_KEY_ID": self.access_key, "ROOT_SECRET_ACCESS_KEY": self.secret_key}
        self._session = Session(self.command(), self.folder / "server.log", environment={**os.environ, **credentials})
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            if not self._session.running() or time.monotonic() > deadline:
                log = self._session.tail(1500)
                self.stop()
                raise Unavailable(f"The object store on {self.hosts} does not serve: ...{log}", advice=f"See {self.folder}.")
            time.sleep(0.02)
        return self

    def _listens(self) -> bool:
        try:
            socket.create_connection((LOCAL, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the server with SIGTERM, and with SIGKILL if it still runs after a time limit."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def kill(self) -> None:
        """End the server with SIGKILL. `start` starts it again on the same port."""
        session, self._session = self._session, None
        if session is not None:
            session.kill()

    def suspend(self) -> None:
        """Suspend the server. It then does not answer and keeps all connections open, as on a paused machine."""
        assert self._session is not None
        self._session.send(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._session is not None
        self._session.send(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class VersityGateway(ObjectServer):
    """VersityGW over a local folder: signatures, regions, multipart uploads and ETags as S3 has them. Its objects are files, and
    outlive a kill. It flushes no file, so it does not show what a power cut would leave.
    """

    def command(self) -> list[str]:
        objects, facts, users = (self.folder / name for name in ("objects", "facts", "users"))
        for folder in (objects, facts, users):
            folder.mkdir(exist_ok=True)
        # Without `--keep-alive`: this version sometimes answers 400 to a request on a connection that served another one before.
        listen = ["--port", self.hosts, "--region", REGION, "--quiet", "--iam-dir", str(users)]
        return [str(versitygw()), *listen, "posix", "--sidecar", str(facts), str(objects)]

    def create_user(self, access_key: str, secret_key: str) -> None:
        """Create a user who may do nothing, until a bucket's policy allows it."""
        admin = [str(versitygw()), "admin", "--endpoint-url", f"http://{self.hosts}", "--region", REGION]
        admin += ["--access", self.access_key, "--secret", self.secret_key]
        user = ["create-user", "--access", access_key, "--secret", secret_key, "--role", "user"]
        subprocess.run([*admin, *user], check=True, capture_output=True, timeout=60)


class MotoServer(ObjectServer):
    """Moto, an emulator of S3 in Python. It checks neither signatures nor regions, and keeps its objects in memory."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", LOCAL, "-p", str(self.port)]


def main() -> None:
    """Build the server now: `python -m conformance.object_stores`. The exit code is 1 if that fails."""
    try:
        sys.stdout.write(f"VersityGW {VERSION}: {versitygw()}\n")
    except ConfigurationError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
