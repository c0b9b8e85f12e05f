"""One cluster: its record, its ledger root, its clock readings."""
