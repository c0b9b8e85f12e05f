"""Measures many streaming readers and batch writers at once on one ZooKeeper ensemble: `python -m benchmarks many`."""

from benchmarks.many.measuring import run

__all__ = ["run"]
