"""Tests with hostile input. `make fuzz` searches for inputs that take too long, or that raise another error than a TxnSegmentError.
`make test` replays the inputs that were found.
"""
