"""`python -m conformance.scenarios`: its options are in `conformance.command.chaos`."""

from __future__ import annotations

import sys

from conformance.command.chaos import main

if __name__ == "__main__":
    sys.exit(main())
