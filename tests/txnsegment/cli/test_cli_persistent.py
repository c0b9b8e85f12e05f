"""Tests of the command line with marker-based topics, persistent:// (docs/in_stream.md)."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner, Result

from txnsegment import Cluster
from txnsegment.cli.app import build

P = "persistent://public/default/p"


def test_the_commands_work_on_persistent_topics(cluster: Cluster, url: str) -> None:
    def run(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(build(), ["--service-url", url, *arguments])
        assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done

    def answer(*arguments: str) -> Any:
        return json.loads(run(*arguments, "--json").stdout)

    assert run("topics", "create", P, "--schema", "n bigint").stdout == f"Created {P}.\n"
    refused = run("topics", "create", "persistent://public/default/q", "--segments", "4", code=1).stderr
    assert "It cannot have 4" in refused
    assert "Make topic://public/default/q instead" in refused
    for command in (("split", P, "--segment", "0"), ("merge", P, "--segments", "0,1"), ("scaling", P, "--min-segments", "2")):
        assert "has no segments" in run("topics", *command, code=1).stderr
    assert P in run("topics", "list").stdout
    with cluster.begin() as txn:
        txn.append(P, pa.table({"n": [1, 2]}))
        txn.commit()
    described = run("topics", "describe", P).stdout
    assert "__contains_txn_messages=true" in described
    assert answer("topics", "describe", P)["properties"] == {"__contains_txn_messages": "true"}
    assert "system's" in run("topics", "properties", P, "--set", "__contains_txn_messages=false", code=1).stderr
    assert answer("topics", "properties", P, "--set", "owner=me") == {"__contains_txn_messages": "true", "owner": "me"}
    run("topics", "properties", P, "--remove", "owner")
    assert run("topics", "read", P).stdout.split() == ["n", "1", "2"]
    assert "2 rows" in run("subscriptions", "create", P, "s").stdout
    (listed,) = answer("subscriptions", "list")
    assert (listed["topic"], listed["lag"]["rows"]) == (P, 2)
    assert "nothing to get" in run("subscriptions", "seek", P, "s", "--to", "latest").stdout
    assert P in run("subscriptions", "describe", P, "s").stdout
    run("subscriptions", "delete", P, "s")
    shown = answer("txns", "show", txn.id)
    assert (shown["state"], shown["segments"]) == ("COMMITTED", [P])
    assert txn.id in run("txns", "list").stdout
    assert answer("segments", "show", P)["segments"][0]["rows"] == 2
    assert "All are sound." in run("verify", P).stdout
    run("sweep")
    shown = run("topics", "model", "namespace://public/default", "--new-persistent", "metadata").stdout
    assert shown == "namespace://public/default: new persistent:// topics are topic:// (metadata).\n"
    run("topics", "delete", P, "--yes")
    assert "There is no topic" in run("topics", "describe", P, code=1).stderr
