"""The options that errors of the Pulsar packages name exist for Pulsar."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from metadata.common.options import OptionTable
from spark_txn_sink.options import SINK as OTHER_SINK
from spark_txn_sink.pulsar.options import SINK
from spark_txn_source.option_table import SOURCE as OTHER_SOURCE
from spark_txn_source.pulsar.option_table import SOURCE

ROOT = Path(__file__).parents[3]
FOLDERS = ("pulsar_protocol", "spark_txn_sink/pulsar", "spark_txn_source/pulsar", "txnsegment/pulsar")


def names(*tables: OptionTable) -> set[str]:
    """Return the options that these tables have, without those that they refuse."""
    return {one.name for table in tables for one in table.options if not one.refused}


def texts() -> Iterator[tuple[str, str]]:
    """Yield each text of the packages that is no docstring, with the name of its file."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            docs = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
            for one in ast.walk(tree):
                if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in docs:
                    yield path.name, one.value


def test_no_error_names_an_option_that_only_other_clusters_have() -> None:
    there, elsewhere = names(SINK, SOURCE), names(OTHER_SINK, OTHER_SOURCE)
    foreign = {name for name in elsewhere - there if re.search("[A-Z]", name)}
    assert foreign, "the test compares nothing"
    found = [(file, name) for file, text in texts() for name in foreign if re.search(rf"\b{name}\b", text) and " " in text]
    assert found == []
