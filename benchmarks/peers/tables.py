"""Turns the results of cells into tables: medians of the rounds, their spread, and ratios to txnsegment."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

OURS = "txnsegment"
TITLES: Mapping[str, str] = {
    "write_plain": "Batch write, no key",
    "write_keyed": "Batch write, by key into four partitions",
    "read": "Batch read of all columns",
    "column": "Query of one column with a filter",
    "stream_write": "Streaming write, 100,000 rows in a micro-batch",
    "stream_read": "Streaming read, from start() to the end",
    "trigger_1": "Micro-batch of one row",
    "trigger_1000": "Micro-batch of 1,000 rows",
    "delay": "From the return of a commit to its row in a running query",
    "growth": "Batch read after many commits of one row",
}


def markdown(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a table for each workload. `results`: the lines of a file of results. A ratio above 1 means that txnsegment is that
    many times as fast, or takes so much less processor time.
    """
    cells: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for one in results:
        if one["workload"] in TITLES:
            cells.setdefault(one["workload"], {}).setdefault(one["system"], []).append(one)
    return "\n".join(_table(TITLES[name], cells[name]) for name in TITLES if name in cells)


def _table(title: str, systems: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    good = {name: [one for one in found if "seconds" in one] for name, found in systems.items()}
    seconds = {name: [one["seconds"] for one in found] for name, found in good.items() if found}
    processor = {name: statistics.median(one["processor"] for one in found) for name, found in good.items() if found}
    lines = [
        f"### {title}\n",
        "| system | median | lowest to highest | times txnsegment | processor | times txnsegment | more |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in systems:
        if name not in seconds:
            lines.append(f"| {name} | failed | | | | | {systems[name][-1].get('error', '')[:100]} |")
            continue
        middle = statistics.median(seconds[name])
        ratio = f"{middle / statistics.median(seconds[OURS]):.2f}" if OURS in seconds else ""
        share = f"{processor[name] / processor[OURS]:.2f}" if processor.get(OURS) else ""
        spread = f"{_time(min(seconds[name]))} to {_time(max(seconds[name]))}" if len(seconds[name]) > 1 else ""
        lines.append(
            f"| {name} | {_time(middle)} | {spread} | {ratio} | {_time(processor[name])} | {share} | {_more(good[name])} |"
        )
    return "\n".join(lines) + "\n"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _more(found: Sequence[Mapping[str, Any]]) -> str:
    """Return further figures of a system: medians of the rounds."""
    told = []
    for name, word in (("cold", "cold"), ("outside", "outside the triggers")):
        if name in found[0]:
            told.append(f"{word} {_time(statistics.median(one[name] for one in found))}")
    if "first_trigger" in found[0]:
        told.append(f"first trigger {_time(statistics.median(one['first_trigger'] for one in found) / 1000)}")
    for name in ("triggers", "delays"):
        if name in found[0]:
            told.append(f"p99 {_time(statistics.median(one[name]['p99'] for one in found) / 1000)}")
    if "commits" in found[0]:
        told.append(f"commit {_time(statistics.median(one['commits']['p50'] for one in found) / 1000)}")
    if "bytes" in found[0]:
        told.append(f"{statistics.median(one['bytes'] for one in found) / 1e6:.0f} MB")
    for count, one in found[-1].get("counts", {}).items():
        told.append(f"{int(count):,} commits: {one['commits_per_second']} a second, {_grown(one['as_left'])}")
        if "compacted" in one:
            told.append(f"compacted {_grown(one['compacted'])}")
    return ", ".join(told)


def _grown(one: Mapping[str, Any]) -> str:
    """Return what the workload `growth` measured of a table. The results of versions before 2026-11-27 have the read alone, and
    those before 2026-11-28 have no query for one row.
    """
    found = f"read {_time(one['read'])}"
    if "plan" not in one:
        return found
    megabytes = (one["bytes"] + one["records"]) / 1e6
    one_row = f", one row {_time(one['one_row'])}" if "one_row" in one else ""
    return (
        f"{found} (plan {_time(one['plan'])}){one_row}, stream {_time(one['stream'])},"
        f" one commit more: trigger {one['trigger']} ms,"
        f" latestOffset {one['latest_offset']} ms, {megabytes:.0f} MB in {one['files']:,} files"
    )
