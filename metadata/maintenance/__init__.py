"""What keeps a cluster small: sweeps, retention, compaction, scaling."""
