"""Names that the processes of a soak share: the topics, the subscription, the folders."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

TOPIC, IDLE, SUBSCRIPTION = "soaked", "idle", "program"
PERIOD = 5.0
"""Seconds between two micro-batches, and between two turns of the program."""

WENT_ON = "WENT ON after an error of"
"""A log line with this text reports a failure after which the work was restarted."""


@dataclass(frozen=True)
class Place:
    folder: Path
    url: str
    own_ledgers: bool
    """Whether the ledgers have a folder of their own (ZooKeeper), and are not in the folder of the embedded cluster."""

    @property
    def ledgers_folder(self) -> Path:
        return self.folder / "ledgers" if self.own_ledgers else self.folder / "cluster" / "ledgers"

    @property
    def ledgers(self) -> str | None:
        return self.ledgers_folder.as_uri() if self.own_ledgers else None

    @property
    def stop(self) -> Path:
        return stop_file(self.folder)


def stop_file(folder: Path) -> Path:
    """Return the path of the stop file. All processes end when it exists."""
    return folder / "stop"


def given(program: str) -> tuple[str, Path]:
    """Return the URL of the cluster and the folder of the soak, from the command line."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    words = parser.parse_args()
    return words.url, words.folder
