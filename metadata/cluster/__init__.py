"""One cluster: its record, its ledger root, and the observations of its clocks."""
