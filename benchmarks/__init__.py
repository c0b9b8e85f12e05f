"""Measures the figures of docs/speed.md, as ratios to named baselines within one run: `make bench`."""
