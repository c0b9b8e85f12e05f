"""Pulsar's own Java client, to write and read topics beside this project's client.

    with JavaClient(folder, broker.url) as java:
        java.write(topic, [{"key": "a", "value": "1"}], end="commit")
        rows = java.read(topic, count=1)

The program in conformance/pulsar/java is compiled at the first use (`javac`). One process serves all requests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from conformance.processes import marked
from conformance.pulsar_jars import DATA, VERSION, broker_jar, java_command, pulsar_classpath
from metadata.common.errors import ConfigurationError, Unavailable
from txnsegment.java import find_java

How = Literal["stream", "queue", "checkpoint"]
Schema = Literal["string", "bytes", "int64", "avro", "json", "inline", "separated"]
"""`inline` and `separated` are KEY_VALUE schemas of a text and an AVRO record."""
End = Literal["commit", "abort"]
Compression = Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]
Row = Mapping[str, Any]
LIMIT_MS: Final = 60_000
QUIET_MS: Final = 1_000


def compiled(folder: Path) -> Path:
    """Return the folder `classes` in `folder`, which has the compiled Java programs. If it does not exist, compile them. Raises
    ConfigurationError.
    """
    beside = find_java().with_name("javac")
    javac = str(beside) if beside.exists() else shutil.which("javac")
    if javac is None:
        raise ConfigurationError(
            "The Java compiler was not found: there is no javac beside java and none on PATH.",
            advice="Install a JDK (for example: apt install openjdk-17-jdk-headless).",
        )
    classes, partial = folder / "classes", folder / "partial"
    if classes.exists():
        return classes
    sources = [str(source) for source in sorted((DATA / "java").glob("*.java"))]
    command = [javac, "-encoding", "UTF-8", "-proc:none", "-nowarn", "-cp", pulsar_classpath(), "-d", str(partial), *sources]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ran.returncode != 0:
        raise ConfigurationError(
            f"javac failed for {', '.join(sources)}: {ran.stderr[-2000:]}", advice="Use a JDK of Java 17 or newer."
        )
    partial.rename(classes)
    return classes


def rewritten(folder: Path, records: Sequence[tuple[str, bytes]], broker: str = VERSION) -> list[bytes]:
    """Let Pulsar's own classes read records of the metadata store. Return the bytes that these classes then write, one item for
    each record.

    `records`: pairs of the name of a class and a record in JSON. `folder`: gets the compiled program. `broker`: the version of the
    broker from which the classes are taken. Raises ConfigurationError.
    """
    other = [] if broker == VERSION else [str(broker_jar(broker))]
    command = [*java_command("Records", folder, classpath=[compiled(folder)], options=["-Xmx128m"]), *other]
    lines = b"".join(b"%s\t%s\n" % (name.encode(), value) for name, value in records)
    ran = subprocess.run(command, input=lines, capture_output=True, env=marked())
    if ran.returncode != 0:
        raise ConfigurationError(
            f"Pulsar's classes could not read the records: {ran.stderr.decode(errors='replace')[-2000:]}",
            advice="The first line of the message of Java names the record and the field.",
        )
    return ran.stdout.splitlines()


class JavaClient:
    """A process with a Java client of one cluster. A context manager, whose end ends the process.

    A row is `{"value": .., "key": .., "properties": {..}, "event_ms": ..}`. The schema decides the form of the value: a text
    (`string`), hexadecimal digits (`bytes`), a number (`int64`), the fields of conformance/pulsar/java/Order.java (`avro`, `json`),
    or a text and such fields as `{"key": .., "value": ..}` (`inline`, `separated`).
    """

    def __init__(self, folder: Path, url: str, *, options: Sequence[str] = ("-Xmx256m",)) -> None:
        """`options`: options of the Java virtual machine."""
        folder.mkdir(parents=True, exist_ok=True)
        classes = compiled(folder)
        self.log = folder / "java.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*java_command("Rows", folder, classpath=[classes], options=options), url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                start_new_session=True,
                env=marked(),
            )

    def write(
        self,
        topic: str,
        rows: Sequence[Row],
        *,
        schema: Schema = "string",
        end: End | None = None,
        compression: Compression = "NONE",
        batch: int = 0,
        chunk: int = 0,
    ) -> None:
        """Send rows. `end`: how the transaction of the rows ends; None: the rows are sent without a transaction. `batch`: the
        greatest number of rows in an entry (0: no batches). `chunk`: the greatest number of bytes in an entry (0: no limit); a
        longer row is sent in several entries.

        In a transaction, the client sends an entry only when the previous entry is answered. Otherwise it would send some entries
        twice: the broker 5.0.0-M1 answers the entries of a transaction in another order, and the client then connects again and
        repeats all entries that were not answered.
        """
        request = {"topic": topic, "rows": rows, "schema": schema, "end": end, "compression": compression}
        self._ask("write", batch=batch, chunk=chunk, **request)

    def read(
        self, topic: str, *, count: int, how: How = "stream", schema: Schema = "string", subscription: str | None = None
    ) -> list[dict[str, Any]]:
        """Receive `count` rows from the beginning of the topic, and further rows until none comes for a second. Return fewer rows
        if one of the first `count` rows does not come within a minute. `how`: the kind of the Java consumer. `subscription`: the
        name of the subscription (default: a new one).
        """
        name = subscription or uuid.uuid4().hex
        limits = {"count": count, "quiet_ms": QUIET_MS, "limit_ms": LIMIT_MS}
        found: list[dict[str, Any]] = self._ask("read", topic=topic, how=how, schema=schema, subscription=name, **limits)
        return found

    def pour(self, topic: str, count: int, *, size: int, batch: int) -> float:
        """Send rows of `size` bytes with 1,000 keys, without a transaction, up to `batch` rows in an entry. Return the seconds
        taken.
        """
        return float(self._ask("pour", topic=topic, count=count, size=size, batch=batch)) / 1e9

    def drain(self, topic: str, count: int) -> float:
        """Receive `count` rows of bytes from the beginning of a topic by a CheckpointConsumer. Return the seconds taken."""
        return float(self._ask("drain", topic=topic, count=count, limit_ms=LIMIT_MS)) / 1e9

    def _ask(self, what: str, **request: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Unavailable(f"The Java client ended: {self.log.read_text()[-2000:]}", advice=f"See {self.log}.")
        answer = json.loads(line)
        if "error" in answer:
            raise Unavailable(f"The Java client could not {what}: {answer['error']}", advice=f"See {self.log}.")
        return answer["done"]

    def close(self) -> None:
        """End the process. Idempotent."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
