"""Hostile input. `make fuzz` searches for inputs that raise an error of another kind than TxnSegmentError, or take too long. `make
test` replays the inputs that were found.
"""
