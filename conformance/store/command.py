"""`python -m conformance --store URL`: the options of the store suite and what they mean."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from conformance.store.area import Sizes
from conformance.store.run import main
from conformance.store.site import Traits


def add_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("store suite")
    group.add_argument("--store", metavar="URL", help="run the metadata store's contract on this store (it may be in use)")
    group.add_argument("--only", metavar="PATTERN", default="*", help="cases to run, e.g. 'ranges/*' (default: all)")
    group.add_argument("--records", type=int, default=Sizes().records, help="records of the case with many (default 100000)")
    group.add_argument("--one-process", action="store_true", help="the store lives in one process, as memory:// does")
    group.add_argument("--no-groups", action="store_true", help="the store does not do groups of writes whole or not at all")


def run_command(given: Namespace) -> int:
    """The exit code: 0 all shown, 1 something failed, 2 nothing could be shown."""
    one_process = given.one_process or given.store.startswith("memory://")
    traits = Traits(processes=not one_process, groups=not given.no_groups)
    return main(given.store, given.seed, only=given.only, sizes=Sizes(records=given.records), traits=traits)
