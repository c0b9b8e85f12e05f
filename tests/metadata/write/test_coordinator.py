"""The usage example in the docstring of `Coordinator` works."""

from __future__ import annotations

import inspect

from metadata.rules.transitions import Claim
from metadata.write.background import inline
from metadata.write.coordinator import Coordinator
from metadata.write.write_set import WriteSet
from tests.support.bench import Bench


def test_the_usage_example_commits_as_written() -> None:
    bench = Bench()
    work = bench.work(1)
    example = [line.strip() for line in (inspect.getdoc(Coordinator) or "").splitlines() if line.startswith("    ")]
    assert example
    given = {
        "cluster": bench.party().cluster,
        "background": inline,
        "version": work.claim.version,
        "attempt": work.claim.attempt,
        "parts": work.parts,
        "staged_ms": work.staged_ms,
        "timeout_ms": work.timeout_ms,
    }
    exec("\n".join(example), {"Coordinator": Coordinator, "WriteSet": WriteSet, "Claim": Claim, **given})
    assert len(bench.read()) == len(work.parts)
