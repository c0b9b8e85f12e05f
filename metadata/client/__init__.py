"""What programs hold: the parts of one process on one cluster."""
