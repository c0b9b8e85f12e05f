"""Run the command `python -m conformance` (see `conformance.command`)."""

from __future__ import annotations

from conformance.command.main import main

if __name__ == "__main__":
    raise SystemExit(main())
