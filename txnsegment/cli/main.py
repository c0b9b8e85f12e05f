"""The command `txnsegment`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is not None and not Path(folder).is_dir():
        # Metrics open their files in there when they are declared, which the imports of the commands do.
        sys.exit(f"Error: PROMETHEUS_MULTIPROC_DIR is {folder!r}, which is not a folder.\nMake it, or unset the variable.")
    from txnsegment.cli.app import build

    build()()
