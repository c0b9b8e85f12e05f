"""Measures the figures of docs/speed.md: `make bench`. Many figures are ratios to a named baseline that the same run measures."""
