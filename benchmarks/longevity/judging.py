"""Judges whether the measurements of a soak are flat. The judgement compares the median of the last quarter with the median of the
second quarter. The first quarter does not count: in this time caches fill, workers start, and retention and expiry have nothing
to delete yet.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.longevity.words import WENT_ON

MB = 2**20
STEADY_SECONDS = 3600.0
"""How long a run must last so that its files are judged. A run deletes files only after some ten minutes, the orphan age and
the grace period of its cluster.
"""
Series = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One measured value of one group of processes. `share`, `slack`: the largest relative and absolute growth that still
    counts as flat.
    """

    group: str
    what: str
    series: Series
    unit: float
    share: float
    slack: float
    judged: bool = True

    def median(self, quarter: int) -> float:
        """Return the median over one quarter of the run's time, in units of `unit`. `quarter`: from 1 to 4."""
        end = self.series[-1][0]
        found = [v for s, v in self.series if end * (quarter - 1) / 4 <= s <= end * quarter / 4]
        return statistics.median(found) / self.unit if found else float("nan")

    @property
    def per_hour(self) -> float:
        """The slope of a straight line that is fitted to the second half of the run, in units per hour."""
        half = [(s / 3600, v / self.unit) for s, v in self.series if s >= self.series[-1][0] / 2]
        return statistics.linear_regression(*zip(*half, strict=True)).slope if len(half) > 1 else float("nan")

    @property
    def flat(self) -> bool:
        before, after = self.median(2), self.median(4)
        return after <= before * (1 + self.share) + self.slack


def measured(folder: Path) -> list[Line]:
    """Return the measured values of a soak, one `Line` for each kind of value of a group. The values of all processes of a group
    are added up at each time.
    """
    held: dict[tuple[str, str], dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for row in _rows(folder / "samples.csv"):
        for name in ("rss", "anon", "descriptors", "threads"):
            held[row["group"], name][float(row["s"])] += float(row[name])
        held[row["group"], "processes"][float(row["s"])] += 1
    found = []
    for (group, name), series in held.items():
        ours = group != "ZooKeeper server"
        points = sorted(series.items())
        match name:
            case "anon":
                found.append(Line(group, "anonymous memory, MB", points, MB, 0.05, 8, ours and "JVM" not in group))
            case "rss":
                found.append(Line(group, "resident memory, MB", points, MB, 0.05, 16, ours))
            case _:
                found.append(Line(group, name, points, 1, 0.05, 2, ours))
    if (folder / "heap.csv").exists():
        points = [(float(row["s"]), float(row["heap"])) for row in _rows(folder / "heap.csv")]
        if points:
            found.append(Line("driver, JVM", "heap after a collection, MB", points, MB, 0.05, 4))
    counts: dict[str, Series] = defaultdict(list)
    for row in _rows(folder / "cluster.csv"):
        counts[row["what"]].append((float(row["s"]), float(row["count"])))
    for what, counted in counts.items():
        judged = "files" not in what or counted[-1][0] >= STEADY_SECONDS
        found.append(Line("cluster", what, counted, 1, 0.1, 20, judged))
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]  # (a kill may leave half of a line)


def judge(folder: Path, died: list[str]) -> tuple[str, bool]:
    """Return the summary as text, and whether every judged value is flat."""
    lines = measured(folder)
    minutes = max(line.series[-1][0] for line in lines) / 60
    text = [(folder / "machine.txt").read_text().strip(), f"{minutes:.0f} minutes", ""]
    head = f"{'processes':<24}{'what':<30}{'2nd quarter':>12}{'last quarter':>13}{'per hour':>10}  flat"
    text += [head, "-" * len(head)]
    for line in sorted(lines, key=lambda line: (line.group, line.what)):
        verdict = "yes" if line.flat else "NO" if line.judged else "no (not judged)"
        text.append(
            f"{line.group:<24}{line.what:<30}{line.median(2):>12.1f}{line.median(4):>13.1f}{line.per_hour:>+10.2f}  {verdict}"
        )
    grown = [line for line in lines if line.judged and not line.flat]
    text += ["", f"Grown: {', '.join(f'{line.group}: {line.what}' for line in grown)}" if grown else "Nothing that is judged grew."]
    for log in sorted(folder.glob("*.log")):
        if count := log.read_text(errors="replace").count(WENT_ON):
            text.append(f"{log.name}: something failed and was started again {count} times")
    text += [f"ENDED TOO SOON: {one}" for one in died]
    return "\n".join(text) + "\n", not grown
