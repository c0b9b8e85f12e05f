"""Starts a Spark streaming query (`follower`) beside a scenario, and reads the micro-batches that the query recorded."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.harness.spark_start import spark_environment
from conformance.history.format import Poll
from conformance.processes import Session
from conformance.scenarios.driver import Place
from conformance.scenarios.forks import Died
from conformance.scenarios.history import Row, seen
from conformance.scenarios.reading import position_of
from conformance.scenarios.sessions import launched
from metadata.records.names import any_topic_name


def follow(place: Place, folder: Path, stop: Path) -> Session:
    """Start a Spark streaming query on the topic. Wait until it has read what the topic holds now. Raises Died if it does not."""
    (folder / "spark").mkdir()
    given = {"--url": place.url, "--topic": place.topic, "--folder": str(folder / "spark"), "--stop": str(stop)}
    words = [word for pair in given.items() for word in pair]
    query = launched("conformance.scenarios.follower", words, folder / "spark.log", spark_environment(warm=True), nice=0)
    if not query.wait_for(folder / "spark" / "running", 180):
        query.kill()
        raise Died(f"the streaming query did not start: {query.tail()}")
    return query


def polls(file: Path, topic: str) -> list[Poll]:
    """Return the micro-batches in a file of `conformance.scenarios.follower`, without an incomplete last line."""
    topics, found = (str(any_topic_name(topic)),), list[Poll]()
    for line in file.read_text().split("\n")[:-1]:
        noted = json.loads(line)
        rows = [Row(key, seq, batch, of, segment, position_of(at), txn) for key, seq, batch, of, segment, at, txn in noted["rows"]]
        found.append(Poll(noted["at_ms"], noted["at_ms"], "spark", noted["batch"], topics, seen(rows), ordered=False))
    return found
