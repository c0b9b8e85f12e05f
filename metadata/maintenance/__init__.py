"""Maintenance of a cluster: sweeps, retention, compaction, scaling."""
