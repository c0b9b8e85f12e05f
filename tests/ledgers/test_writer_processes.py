"""A process that cannot finish a file publishes nothing: its disk is full, or it is killed. Each test starts such a process."""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledgers.storage import LedgerStorage


@pytest.fixture
def storage(tmp_path: Path) -> LedgerStorage:
    found = LedgerStorage(f"{tmp_path}/ledgers of mine")
    found.create()
    return found


def _limit_files() -> None:
    """Let the process write no more than 1,000 bytes to a file. It needs -B, since Python stores a compiled module whose write was
    cut short.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_full_disk_is_an_error_and_leaves_no_file(storage: LedgerStorage) -> None:
    code = """if True:
        import sys
        from ledgers.errors import StorageError
        from ledgers.storage import LedgerStorage
        try:
            LedgerStorage(sys.argv[1]).publish("a/x.avro", bytes(100_000))
        except StorageError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, storage.uri], preexec_fn=_limit_files, capture_output=True, text=True, check=True
    )
    assert "larger than this process may write" in done.stdout
    assert list(storage.list("")) == []


def test_a_writer_killed_in_the_middle_publishes_nothing(storage: LedgerStorage) -> None:
    code = """if True:
        import sys
        from ledgers.storage import LedgerStorage
        output = LedgerStorage(sys.argv[1]).open_output("a/x.parquet")
        output.stream.write(bytes(1_000_000))
        print("writing", flush=True)
        sys.stdin.read()
    """
    writer = subprocess.Popen([sys.executable, "-c", code, storage.uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    writer.kill()
    writer.communicate()
    assert storage.info("a/x.parquet") is None
    (left,) = storage.list("")
    assert re.fullmatch(r"a/\.x\.parquet\.[0-9a-f]{32}\.tmp", left.path)
