"""Tests of the code that judges the samples of a long run (`benchmarks/longevity`). The tests make the samples themselves. `make
longevity` runs a cluster for hours.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.longevity import sampling
from benchmarks.longevity.judging import MB, judge
from benchmarks.longevity.picture import draw
from benchmarks.longevity.sampling import FIELDS
from conformance.processes import Found


def written(folder: Path, threads: Callable[[int], float] = lambda s: 9, anon: Callable[[int], float] = lambda s: 80) -> Path:
    """Write samples of one process over two hours. `threads` and `anon` (MB) give the values at each second."""
    (folder / "machine.txt").write_text("a machine\n")
    with (folder / "samples.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for s in range(0, 7200, 10):
            writer.writerow((s, "program", 77, 150 * MB, int(anon(s) * MB), 7, int(threads(s))))
    (folder / "cluster.csv").write_text("s,what,count\n0,znodes,9\n2700,znodes,50\n7000,znodes,52\n")
    return folder


def test_memory_that_stops_growing_after_the_first_quarter_is_flat(tmp_path: Path) -> None:
    text, flat = judge(written(tmp_path, anon=lambda s: min(80, 10 + s / 20)), [])
    assert flat
    assert "Nothing that is judged grew." in text


def test_a_thread_that_leaks_every_ten_minutes_is_found(tmp_path: Path) -> None:
    text, flat = judge(written(tmp_path, threads=lambda s: 9 + s // 600), [])
    assert not flat
    assert "Grown: program: threads\n" in text


def test_memory_that_grows_by_twenty_megabytes_an_hour_is_found(tmp_path: Path) -> None:
    text, flat = judge(written(tmp_path, anon=lambda s: 80 + s / 3600 * 20), [])
    assert not flat
    assert "Grown: program: anonymous memory, MB\n" in text
    (line,) = (line for line in text.splitlines() if "anonymous" in line and line.startswith("program"))
    assert float(line.split()[-2]) == pytest.approx(20, abs=0.1), "the trend in an hour"


@pytest.mark.parametrize(("seconds", "judged"), [(700, False), (7000, True)])
def test_files_are_judged_only_in_a_run_that_is_long_enough_to_delete_some(tmp_path: Path, seconds: int, judged: bool) -> None:
    folder = written(tmp_path)
    with (folder / "cluster.csv").open("a") as file:
        file.writelines(f"{s},files of ledgers,{s}\n" for s in range(0, seconds, 10))
    text, flat = judge(folder, [])
    assert flat is not judged
    assert ("Grown: cluster: files of ledgers" in text) is judged


def test_a_process_that_ended_too_soon_is_reported(tmp_path: Path) -> None:
    text, _ = judge(written(tmp_path), ["driver: ...OutOfMemoryError"])
    assert "ENDED TOO SOON: driver: ...OutOfMemoryError" in text


def test_the_figure_is_drawn_from_the_samples(tmp_path: Path) -> None:
    assert draw(written(tmp_path)).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("gone", [False, True], ids=["a process that is ending", "a process that has ended"])
def test_a_process_that_ends_while_being_sampled_ends_no_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """A process that is ending has no memory in /proc, and a process that has ended is not in /proc. The sample leaves both out."""
    if not gone:
        (tmp_path / "7" / "fd").mkdir(parents=True)
        (tmp_path / "7" / "status").write_text("Name:\tpython\nState:\tX (dead)\nThreads:\t1\n")
    monkeypatch.setattr(sampling, "PROC", tmp_path)
    monkeypatch.setattr(sampling, "processes", lambda: [Found(7, "R", 1, 5, 0.0)])
    assert list(sampling.sample({"program": 5}, None)) == []
