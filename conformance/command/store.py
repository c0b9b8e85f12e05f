"""The suite `--store URL`: the contract of the metadata store."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from conformance.command.progress import Progress
from conformance.command.words import Given, Suite, Word, count
from conformance.results import Result

if TYPE_CHECKING:
    from conformance.store.case import Case

WORDS = (
    Word("--only", "cases to run, e.g. 'ranges/*' (default: all)", metavar="PATTERN", default="*"),
    Word("--records", "number of records in the case with many records (default 100000)", count, "N", default=100_000),
    Word("--one-process", "the store lives in one process, as memory:// does", None, default=False),
    Word("--no-groups", "the store has no atomic groups of writes", None, default=False),
)


def run(given: Given, progress: Progress) -> list[Result]:
    from fnmatch import fnmatch

    from conformance.store.area import Sizes
    from conformance.store.run import run as run_cases
    from conformance.store.site import Traits
    from conformance.store.suite import CASES

    url: str = given["store"]
    # The suite cuts connections on purpose, and the ZooKeeper client library would print a log line for each cut.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())

    def told(case: Case, result: Result | None) -> None:
        if result is None:
            progress.at(case.name)
        else:
            progress.advance()

    progress.begin("store", sum(fnmatch(case.name, given["only"]) for case in CASES))
    traits = Traits(processes=not (given["one_process"] or url.startswith("memory://")), groups=not given["no_groups"])
    found = run_cases(url, given.seed, only=given["only"], sizes=Sizes(records=given["records"]), traits=traits, told=told)
    return [replace(result, again=given.again(only=result.name)) for result in found]


STORE = Suite(
    "store",
    "the contract of the metadata store, on any backend; it may be in use",
    Word("--store", "run it on this store", metavar="URL"),
    WORDS,
    run,
)
