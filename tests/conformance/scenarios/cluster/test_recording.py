"""Tests of the cluster suite's input for the history checker: row names, histories of killed recorders, ends of streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from conformance.history.files import Writer
from conformance.history.format import Plan, Poll, Row, Start
from conformance.scenarios.cluster.input import COLUMNS, identity, rows_of, written
from conformance.scenarios.cluster.recording import ends, kept
from conformance.scenarios.cluster.run import changed

TOPIC, OLDER = "topic://public/default/loaded", "persistent://public/default/streamed"
SEGMENT = "segment://public/default/loaded/0000-ffff-0"


def row(segment: str, ledger: int) -> Row:
    return Row(f"{segment}#{ledger}", segment, (ledger, 0, 0))


def test_rows_keep_the_names_given_by_their_writer() -> None:
    key, seq = written(3, "loader")[7]
    table = pa.table(dict(zip(COLUMNS, ([key], [seq], [TOPIC], [SEGMENT], ["12:0:3"], ["0_9"]), strict=True)))
    assert rows_of(table) == (Row(identity(TOPIC, key, seq), SEGMENT, (12, 0, 3), key, "0_9"),)
    assert len({identity(TOPIC, *one) for batch in range(3) for one in written(batch, "loader")}) == 600


def test_histories_of_killed_processes_are_read_up_to_the_last_whole_line(tmp_path: Path) -> None:
    poll = Poll(2, 1, "s", 0, (TOPIC,), (row(SEGMENT, 7),))
    with Writer(tmp_path / "poll-1.jsonl", Start(0, "reader")) as history:
        history.add(poll)
    with (tmp_path / "poll-1.jsonl").open("a") as half:
        half.write('{"event":"po')
    (tmp_path / "read-1.jsonl").write_text('{"event":"st')
    assert kept(tmp_path) == [poll]


def test_a_stream_ends_at_the_highest_delivered_number_of_each_log() -> None:
    topics = (OLDER, TOPIC)
    polls = [
        Poll(2, 1, "s", 0, topics, (row(SEGMENT, 7), row(OLDER, 40))),
        Poll(3, 2, "s", 1, topics, (row(SEGMENT, 9),)),
        Poll(3, 2, "other", 0, (TOPIC,), ()),
    ]
    assert set(ends(polls, 10, 12)) == {
        Plan(12, 10, "other", (TOPIC,), 0, 0),
        Plan(12, 10, "s", topics, 9, 9),
        Plan(12, 10, "s", (OLDER,), 40, 40, log=OLDER),
    }


def test_changes_are_counted_by_their_kind() -> None:
    notes = ["split loaded 0", "compact streamed: 9 files into 1", "trim failed: Unavailable: gone", "trim passing: 20 rows"]
    assert list(changed(notes)) == ["splits", "compactions", "refused_changes", "trims"]
