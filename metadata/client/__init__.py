"""The per-process client of a cluster."""
