"""Draws the figure of a soak: memory, descriptors and threads of each group of processes over time, and the files and znodes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.longevity.judging import Line, measured

PANELS = {
    "memory, MB (driver's JVM: heap after a collection)": ("anonymous memory, MB", "heap after a collection, MB"),
    "resident memory, MB": ("resident memory, MB",),
    "file descriptors": ("descriptors",),
    "threads": ("threads",),
    "files and znodes of the cluster": ("files of ledgers", "znodes"),
}


def draw(folder: Path) -> Path:
    """Write `soak.png`; needs the extra `demo`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = [line for line in measured(folder) if not (line.group == "driver, JVM" and line.what == "anonymous memory, MB")]
    figure, axes = pyplot.subplots(len(PANELS), 1, figsize=(10, 3 * len(PANELS)), sharex=True)
    for axis, (title, wanted) in zip(axes, PANELS.items(), strict=True):
        for line in (line for line in lines if line.what in wanted):
            axis.plot([s / 60 for s, _ in line.series], [v / line.unit for _, v in line.series], label=_label(line), linewidth=1)
        axis.set_title(title, loc="left", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    axes[-1].set_xlabel("minutes")
    figure.suptitle((folder / "machine.txt").read_text().strip(), fontsize=6)
    figure.savefig(path := folder / "soak.png", dpi=110, bbox_inches="tight")
    return path


def _label(line: Line) -> str:
    return line.what if line.group == "cluster" else line.group
