"""The entry point of the command `txnsegment`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is not None and not Path(folder).is_dir():
        # The modules of commands declare metrics, and a declared metric opens its file in this folder.
        sys.exit(
            f"Error: PROMETHEUS_MULTIPROC_DIR is {folder!r}, which is not a folder.\nCreate the folder, or unset the variable."
        )
    from txnsegment.cli.app import build

    build()()
