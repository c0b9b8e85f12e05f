"""A pytest plugin that plants the mutant named by the environment variable TXNSEGMENT_MUTANT, for the whole run:

TXNSEGMENT_MUTANT=keep-tail python -m pytest -p conformance.mutants.plugin tests/metadata/maintenance
"""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from hypothesis import Phase, settings

from conformance.mutants.catalogue import by_name
from conformance.mutants.planting import CHOSEN, planted


def pytest_configure(config: pytest.Config) -> None:
    # One failing example is enough, so Hypothesis does not shrink it. It is not stored either, because later runs without the
    # mutant would try it again.
    settings.register_profile("planted", phases=(Phase.explicit, Phase.generate), database=None)
    settings.load_profile("planted")
    stack = ExitStack()
    stack.enter_context(planted(by_name(os.environ[CHOSEN])))
    config.add_cleanup(stack.close)


def pytest_report_header() -> str:
    return f"mutant: {os.environ[CHOSEN]}"
