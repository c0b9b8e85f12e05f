"""`python -m conformance.scenarios`: its options are in `conformance.scenarios.command`."""

from __future__ import annotations

import sys

from conformance.scenarios.command import main

if __name__ == "__main__":
    sys.exit(main())
